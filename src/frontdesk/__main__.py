"""`python -m frontdesk`."""

from frontdesk.app.main import main

main(prog_name="frontdesk")
