"""Pure rules shared by every room: no I/O, no engine, no framework.

Nothing here reads a clock, opens a file or imports a room. What needs time or randomness takes it as an argument
(`clock.Clock`, `ids.Entropy`), so that a whole server can be simulated from one seed.
"""
