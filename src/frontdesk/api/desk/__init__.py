"""HTTP handlers of the people's side, a module a room."""
