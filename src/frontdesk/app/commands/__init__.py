"""Administration commands: they open the data folder, and some the database; every other command is an HTTP client."""

from __future__ import annotations

import click

from frontdesk.app.commands import demo, doctor, initialise, keys, migrate, serve, simulator, up, users


def attach_commands(group: click.Group) -> None:
    """Add every administration command to `group`."""
    for command in (
        initialise.init,
        serve.serve,
        serve.work,
        simulator.simulator,
        up.up,
        demo.demo,
        doctor.doctor,
        migrate.migrate,
        keys.keys,
        users.user,
        users.token,
    ):
        group.add_command(command)
