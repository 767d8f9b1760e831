"""Identity on the wire, one module for each noun; every module with `OPERATIONS` is a room of `wire.operations`."""
