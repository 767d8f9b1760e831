"""One module a migration, numbered."""
