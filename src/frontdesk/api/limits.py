"""Token buckets in memory, one per key, on the monotonic clock.

One integer per key (the virtual scheduling form of a token bucket): when the bucket will be full again. A key whose
bucket is full needs no entry, so memory is bounded by forgetting those and, past `keys_max`, the least recently used.
"""

from __future__ import annotations

from collections import OrderedDict

from frontdesk.kernel.clock import SECOND, Clock


class TokenBuckets:
    """`burst` tokens per key, refilled one every `interval_us`."""

    def __init__(self, clock: Clock, *, interval_us: int, burst: int, keys_max: int = 4_096) -> None:
        self._clock = clock
        self._interval_us = interval_us
        self._slack_us = (burst - 1) * interval_us
        self._full_at: OrderedDict[str, int] = OrderedDict()
        self._keys_max = keys_max

    def wait_s(self, key: str) -> int:
        """Seconds until a token is there, rounded up; 0 where one is. Takes nothing."""
        full_at = self._full_at.get(key)
        if full_at is None:
            return 0
        wait_us = full_at - self._clock.monotonic_us() - self._slack_us
        return -(-wait_us // SECOND) if wait_us > 0 else 0

    def spend(self, key: str) -> None:
        """Take a token, also where none is left; a bucket never owes more than itself."""
        now = self._clock.monotonic_us()
        full_at = max(self._full_at.get(key, now), now) + self._interval_us
        self._full_at[key] = min(full_at, now + self._slack_us + self._interval_us)
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._keys_max:
            self._full_at.popitem(last=False)

    def take(self, key: str) -> int:
        """Take a token where one is there and return 0; else the seconds to wait."""
        wait_s = self.wait_s(key)
        if wait_s == 0:
            self.spend(key)
        return wait_s

    def __len__(self) -> int:
        return len(self._full_at)
