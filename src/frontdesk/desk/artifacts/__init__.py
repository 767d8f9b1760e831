"""Artifacts: what an agent made, with provenance and hash. Owns the nouns artifact and producer; rows only, so far."""
