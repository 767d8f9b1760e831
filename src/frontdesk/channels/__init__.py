"""Channels: what stands between the desk's port and one provider each. `registry` names those this build has."""
