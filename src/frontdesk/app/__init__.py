"""The composition root: settings, wiring, loops, telemetry, schema, migrations and administration commands."""
