"""A push with two faults is answered for the one that comes first in desk.md 6.2, whichever two they are."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import pytest

from frontdesk.kernel import limits
from frontdesk.kernel.errors import DatabaseBusy
from tests.http.conftest import Site, signed
from tests.http.test_callback import MAX, PATH
from tests.http.test_problems import assert_problem


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a push, and how it is answered. A field that is None is left to the other fault."""

    status: int
    code: str
    installation: str | None = None
    shapely: bool = True
    signed: bool = True
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    client_spent: bool = False
    installation_spent: bool = False
    broken_commit: bool = False


# In the order of the table. An unknown installation has no secrets, budget or commit that could be at fault as well.
FAULTS = {
    "1 unknown installation": Fault(404, "installation_not_found", installation="ins_9"),
    "2 a client that was refused too often": Fault(429, "rate_limited", client_spent=True),
    "3 an encoding": Fault(415, "encoding_unsupported", headers={"Content-Encoding": "gzip"}),
    "3 a length that is no number": Fault(400, "body_malformed", headers={"Content-Length": "zz"}),
    "3 a length over the bound": Fault(413, "body_too_large", headers={"Content-Length": str(MAX + 1)}),
    "4 a wrong shape": Fault(400, "callback_shape_invalid", shapely=False),
    "6 unusable secrets": Fault(503, "verification_material_unavailable", installation="ins_x"),
    "7 a forgery": Fault(500, "callback_not_accepted", signed=False),
    "9 an installation over its budget": Fault(429, "rate_limited", installation_spent=True),
    "10 a commit that fails": Fault(500, "callback_not_accepted", broken_commit=True),
}
SAME_HEADER = ("3 a length that is no number", "3 a length over the bound")
SAME_INSTALLATION = ("1 unknown installation", "6 unusable secrets")
PAIRS = [pair for pair in itertools.combinations(FAULTS, 2) if pair not in (SAME_HEADER, SAME_INSTALLATION)]


async def busy() -> None:
    """A database that can't be written."""
    raise DatabaseBusy


async def bring_about(site: Site, first: Fault, second: Fault) -> None:
    """What lies before the push: budgets that are used up, a database that does not commit."""
    if first.installation_spent or second.installation_spent:
        async with site.client(token=None, address="127.0.0.8") as provider:
            for _ in range(limits.CALLBACK_BURST):
                assert (await provider.post(PATH, content=signed())).status_code == 200
    if first.client_spent or second.client_spent:
        async with site.client(token=None, address="127.0.0.7") as noisy:
            for _ in range(limits.REFUSED_REQUESTS_PER_MINUTE):
                assert (await noisy.post(PATH, content=b"x")).status_code == 400
    if first.broken_commit or second.broken_commit:
        site.ports.before_commit = busy
    site.ports.received.clear()
    site.channel.asked.clear()


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
async def test_of_two_faults_the_earlier_row_answers(site: Site, pair: tuple[str, str]) -> None:
    """Each pair of rows: the answer is the earlier one's, and nothing is received."""
    first, second = FAULTS[pair[0]], FAULTS[pair[1]]
    await bring_about(site, first, second)
    installation = first.installation or second.installation or "ins_1"
    content = signed() if first.signed and second.signed else b"forged:hello"
    if not (first.shapely and second.shapely):
        content = b"x"
    async with site.client(token=None, address="127.0.0.7") as client:
        response = await client.post(
            PATH.replace("ins_1", installation), content=content, headers={**second.headers, **first.headers}
        )
    assert_problem(response, first.status, first.code)
    assert site.ports.received == []
    row = int(pair[0].split()[0])
    asked = [] if row < 4 else ["precheck"] if row < 7 else ["precheck", "verify"]
    assert site.channel.asked == asked, "what a later row would do was not begun"
