"""Administration commands: they open the data folder, and some the database; every other command is an HTTP client.

Only the module of the command that was typed is imported: a simulator needs no database, a server no simulator.
"""

from __future__ import annotations

from typing import Final

# Command → where it stands, in the order of the help.
COMMANDS: Final = {
    "up": "frontdesk.app.commands.up:up",
    "demo": "frontdesk.app.commands.demo:demo",
    "init": "frontdesk.app.commands.initialise:init",
    "serve": "frontdesk.app.commands.serve:serve",
    "work": "frontdesk.app.commands.serve:work",
    "listen": "frontdesk.app.commands.listen:listen",
    "simulator": "frontdesk.app.commands.simulator:simulator",
    "doctor": "frontdesk.app.commands.doctor:doctor",
    "migrate": "frontdesk.app.commands.migrate:migrate",
    "keys": "frontdesk.app.commands.keys:keys",
    "retention": "frontdesk.app.commands.retention:retention",
    "user": "frontdesk.app.commands.users:user",
    "token": "frontdesk.app.commands.users:token",
}
