"""HTTP handlers of identity, one module for each noun; every module with `ROUTES` is bound by `app.routes`."""
