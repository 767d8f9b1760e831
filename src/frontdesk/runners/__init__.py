"""Implementations of the desk's runner port: who writes the answer of a turn. `app/` builds them and hands them in."""
