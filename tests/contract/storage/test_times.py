"""Times are whole microseconds in UTC, in and out: no zone, no offset and no local clock has a place to go wrong in."""

from __future__ import annotations

import os
import time
import typing
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from frontdesk.app.schema import METADATA
from frontdesk.kernel.clock import SECOND, to_rfc3339
from frontdesk.wire.operations import OPERATIONS
from tests.channels.signing import body_of
from tests.contract.desk_world import SECRETS, DeskWorld, Seat
from tests.contract.inbox.pushing import Provider, payload

NAIVE = "2026-03-29T02:30:00"  # an hour that Central Europe skips


@pytest.fixture(params=["Europe/Berlin", "Asia/Shanghai"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The machine in another zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def test_no_column_and_no_field_holds_a_time_that_could_be_naive() -> None:
    """FC-24: every instant of the schema is an integer, and no request of the API takes a date or time at all."""
    for table in METADATA.tables.values():
        for column in table.columns:
            assert not isinstance(column.type, sa.DateTime | sa.Date | sa.Time | sa.Interval), column
            if column.name.endswith("_at") or column.name in {"at", "not_before", "created_at"}:
                assert isinstance(column.type, sa.Integer), column
    seen: set[type] = set()
    for operation in OPERATIONS.values():
        for model in (operation.request, operation.query):
            if model is not None:
                _without_dates(model, seen)
    assert len(seen) > 20


def _without_dates(kind: Any, seen: set[type]) -> None:
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        for field in kind.model_fields.values():
            _without_dates(field.annotation, seen)
    assert kind not in {datetime, date}
    for part in typing.get_args(kind):
        _without_dates(part, seen)


async def test_a_time_without_an_offset_is_refused_at_the_boundary(desk: DeskWorld, seat: Seat) -> None:
    """FC-24: a push signed at a text that is no number is 400 without a row; a message that calls itself made at one is
    taken by the time it was signed at, and its own is kept as none.
    """
    provider = Provider(desk, patient=True)
    key = SECRETS["encrypt_key"]
    path = f"/api/v1/channels/feishu/installations/{desk.installation_id}/events"
    before = await desk.counts()
    for at in (NAIVE, "1774747800.5", "-1", "１７７４７４７８００"):
        headers = {"X-Lark-Request-Timestamp": at, "X-Lark-Request-Nonce": "n", "X-Lark-Signature": "0" * 64}
        encoded = {name: value.encode("utf-8") for name, value in headers.items()}
        answer = await provider.client.post(path, content=body_of(payload("late"), key), headers=encoded)
        assert (answer.status_code, answer.json()["code"]) == (400, "callback_shape_invalid"), at
    assert await desk.counts() == before
    assert await provider.push(payload("hi", parent_id=seat.activation, create_time=NAIVE)) == 200
    (row,) = await desk.rows("receipts", intent="reply")
    assert (row["status"], row["provider_created_at"], row["created_at"]) == ("received", 0, desk.clock.now_us())


async def test_the_beginning_of_time_is_an_instant_like_any_other(desk: DeskWorld, seat: Seat, zone: str) -> None:
    """FC-25: in any zone of the machine instant 0 is written as such, and is compared without an error: a message
    signed then is outside the window, one made then is answered, and what is due then is due.
    """
    assert to_rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert to_rfc3339(1_774_747_800 * SECOND) == "2026-03-29T01:30:00.000000Z"
    old = await desk.ask("old", seat, signed_at_ms=0)
    assert (old["status"], old["error_code"]) == ("rejected", "timestamp_outside_window")
    made_then = await desk.ask("made then", seat, created_at_ms=0)
    await desk.force("receipts", made_then["id"], not_before=0)
    await desk.work()
    assert (await desk.row("receipts", made_then["id"]))["status"] == "completed"
    assert [request.text for request in desk.runner.requests] == ["made then"]
