"""The command line of people and scripts: every operation of the registry as a command, over HTTP alone.

`client` speaks to the server, `parameters` turns models into options, `output` shows answers, `commands` builds the
tree.
"""
