"""Tag neutralisation: text could ping everyone by `<at user_id="all">`, so such tags lose their `<`."""

from __future__ import annotations

import re
from typing import Final

_TAG: Final = re.compile(r"<(?=/?(?:at|a)(?:[\s/>]|$))", re.IGNORECASE)


def neutralise(text: str) -> str:
    """Replace each `<` that opens or closes a tag named `at` or `a` by `＜` (U+FF1C); all else stays as it is."""
    return _TAG.sub("＜", text)
