"""Counting failed logins for each account and address, in this process's memory (DESK-336).

A try is counted when it begins and taken back when it succeeds, so that parallel tries cannot outrun the count. Several
web processes count apart; a restart forgets. Known and unknown accounts are counted alike.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field

from frontdesk.identity.model import normal_username
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.limits import LOGIN_FAILURES_MAX, LOGIN_KEYS_MAX, LOGIN_WINDOW_US


@dataclass(slots=True)
class LoginTry:
    """One counted try; `succeeded` takes it back."""

    keys: tuple[str, str]
    at: int
    counted: bool = field(default=True)


class LoginThrottle:
    """Refuses tries past the limit, for the account and for the address. Used from the event loop's thread alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, list[int]] = OrderedDict()

    def begin(self, username: str, address: str) -> LoginTry:
        """Count a try. Raises `rate_limited` with the seconds to wait where account or address failed too often."""
        now = self._clock.monotonic_us()
        keys = (f"account:{normal_username(username)}", f"address:{address_key(address)}")
        waits = [self._wait_us(key, now) for key in keys]
        if max(waits) > 0:
            raise Problem("rate_limited", retry_after_s=-(-max(waits) // SECOND))
        for key in keys:
            self._tries.setdefault(key, []).append(now)
            self._tries.move_to_end(key)
        while len(self._tries) > LOGIN_KEYS_MAX:
            self._tries.popitem(last=False)
        return LoginTry(keys, now)

    def take_back(self, attempt: LoginTry) -> None:
        """The try was no failed login (it succeeded, or was not decided): forget it."""
        if not attempt.counted:
            return
        attempt.counted = False
        for key in attempt.keys:
            times = self._tries.get(key, [])
            if attempt.at in times:
                times.remove(attempt.at)
            if not times:
                self._tries.pop(key, None)

    def _wait_us(self, key: str, now: int) -> int:
        times = self._tries.get(key)
        if times is None:
            return 0
        times[:] = [at for at in times if at + LOGIN_WINDOW_US > now]
        if len(times) < LOGIN_FAILURES_MAX:
            return 0
        return times[-LOGIN_FAILURES_MAX] + LOGIN_WINDOW_US - now


def address_key(address: str) -> str:
    """An IPv4 address itself, the /64 network of an IPv6 one (one household has it whole), any other text as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
