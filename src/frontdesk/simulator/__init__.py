"""A Feishu/Lark stand-in for the demo, the tests and users: real HTTP, real signatures, a chat page, fault knobs.

It owns no table of the product and never imports another room: everything here is what the *provider* knows (apps,
people, private chats, messages, event pushes). Invariants: it binds loopback addresses only; every ``/_sim/*`` route
demands the simulator token; signing, encryption and long-connection frames are its own implementation, never the SDK's;
a wire request is counted when it arrives, before any fault is applied to it.

Public names: :class:`SimulatorConfig`, :class:`SimulatorError`, and in :mod:`frontdesk.simulator.server`
``create_app`` and ``run``. ``README.md`` beside this file is the control API.
"""

from frontdesk.simulator.config import SimulatorConfig, SimulatorError

__all__ = ["SimulatorConfig", "SimulatorError"]
