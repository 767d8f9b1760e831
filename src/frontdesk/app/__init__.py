"""The composition root: settings, wiring, ASGI, loops, telemetry, schema, migrations and the administration commands."""
