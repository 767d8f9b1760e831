"""Back-off as data: exponential with a cap and symmetric jitter, all integers of microseconds."""

from __future__ import annotations

from frontdesk.kernel import limits
from frontdesk.kernel.ids import Entropy


def backoff_us(attempt: int, entropy: Entropy) -> int:
    """Wait before the next try after `attempt` (>= 1) tries: base · factor^(attempt-1), capped, ± jitter."""
    exponent = max(0, min(attempt - 1, 30))
    plain = min(limits.RETRY_BASE_US * int(limits.RETRY_FACTOR**exponent), limits.RETRY_CAP_US)
    spread = plain * limits.RETRY_JITTER_PERCENT // 100
    if spread == 0:
        return plain
    draw = int.from_bytes(entropy.token_bytes(8), "big") % (2 * spread + 1)
    return plain - spread + draw
