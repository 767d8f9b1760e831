"""Models and operations of the people's side, a module a room."""
