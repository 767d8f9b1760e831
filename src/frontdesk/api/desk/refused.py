"""The last refused push of each installation, in memory alone: from it a probe tells exchanged secrets."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from frontdesk.desk.connections.channel import RawPush
from frontdesk.kernel.limits import CALLBACK_BODY_BYTES_MAX

INSTALLATIONS_MAX: Final = 256
BYTES_MAX: Final = 32 * CALLBACK_BODY_BYTES_MAX


class LastRefused:
    """Bounded by installations and by bytes; the oldest goes first. Nothing of it is ever written or shown."""

    def __init__(self) -> None:
        self._pushes: OrderedDict[str, tuple[RawPush, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, installation_id: str, push: RawPush) -> None:
        """Remember a push whose verification was refused, in place of the installation's earlier one."""
        size = len(push.body) + sum(len(name) + len(value) for name, value in push.headers)
        if size > BYTES_MAX:
            return
        self._drop(installation_id)
        self._pushes[installation_id] = (push, size)
        self._bytes += size
        while len(self._pushes) > INSTALLATIONS_MAX or self._bytes > BYTES_MAX:
            self._drop(next(iter(self._pushes)))

    def get(self, installation_id: str) -> RawPush | None:
        """The push, or None."""
        kept = self._pushes.get(installation_id)
        return kept[0] if kept is not None else None

    def _drop(self, installation_id: str) -> None:
        kept = self._pushes.pop(installation_id, None)
        if kept is not None:
            self._bytes -= kept[1]
