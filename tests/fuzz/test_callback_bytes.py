"""The callback, byte by byte: whatever is done to a validly signed push, it is refused and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import structlog
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.app.schema import METADATA
from frontdesk.app.telemetry import configure_logging
from frontdesk.kernel.limits import CALLBACK_BODY_BYTES_MAX
from tests.channels.signing import body_of, encrypted, headers_for, signature
from tests.contract.desk_world import SECRETS
from tests.contract.inbox.pushing import payload
from tests.fuzz.profile import bounded
from tests.fuzz.served import Site, planted

KEY = SECRETS["encrypt_key"]
AT = "1767225600"
MARKER = "zanzibar-4711"
SIGNED = (b"x-lark-request-timestamp", b"x-lark-request-nonce", b"x-lark-signature")
Header = tuple[bytes, bytes]


@dataclasses.dataclass(frozen=True)
class Push:
    """Raw headers and the body in the pieces it comes in."""

    headers: tuple[Header, ...]
    body: bytes
    pieces: int = 1

    def value(self, name: bytes) -> bytes:
        return b"\x00".join(value for key, value in self.headers if key == name)

    @property
    def subject(self) -> bytes:
        """What the signature covers, and the signature."""
        stamp, nonce, sign = (self.value(name) for name in SIGNED)
        return stamp + nonce + b"\x01" + sign + b"\x01" + self.body

    def with_header(self, name: bytes, *values: bytes) -> Push:
        kept = [pair for pair in self.headers if pair[0] != name]
        return dataclasses.replace(self, headers=(*kept, *((name, value) for value in values)))


def genuine(message_id: str = "om_fuzz", nonce: str = "nonce-1", **changes: Any) -> Push:
    """A message of the person at the chat, signed and encrypted as the provider does it."""
    body = body_of(payload(MARKER, message_id=message_id, **changes), KEY)
    return _signed(body, nonce)


def _signed(body: bytes, nonce: str = "nonce-1") -> Push:
    pairs = headers_for(body, KEY, AT, nonce)
    return Push(tuple((name.encode(), value.encode()) for name, value in pairs), body)


class Door:
    """The callback of the site's installation; every push comes from an address of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.path = f"/api/v1/channels/feishu/installations/{site.plan.home['installation_id']}/events"
        self.pushed = 0
        self.bodies: list[bytes] = []

    def push(self, push: Push) -> int:
        """The status of the answer. A body that quotes anything fails at once."""
        status, headers, body = self.site.run(self._push(push))
        assert not [secret for secret in (*planted(), MARKER) if secret.encode() in body]
        if status >= 400:
            assert headers[b"content-type"] == b"application/problem+json"
            assert json.loads(body)["status"] == status
        self.site.process.clock.advance(1_000_000)  # a budget of one a second never runs out
        return status

    async def _push(self, push: Push) -> tuple[int, dict[bytes, bytes], bytes]:
        self.pushed += 1
        size = max(1, -(-len(push.body) // push.pieces))
        parts = [push.body[start : start + size] for start in range(0, len(push.body), size)] or [b""]
        incoming = iter(
            [
                {"type": "http.request", "body": part, "more_body": index < len(parts) - 1}
                for index, part in enumerate(parts)
            ]
        )
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return next(incoming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        number = self.pushed
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "headers": [(name.lower(), value) for name, value in push.headers],
            "client": (f"127.{number // 62_500 % 250}.{number // 250 % 250}.{number % 250}", 4000),
            "server": ("localhost", 80),
        }
        await self.site.process.api(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], dict(sent[0]["headers"]), body

    def rows(self) -> dict[str, int]:
        """How many rows each table holds."""

        def count(tx: Any) -> dict[str, int]:
            tables = METADATA.tables.values()
            return {table.name: tx.count(sa.select(sa.func.count()).select_from(table)) for table in tables}

        counted: dict[str, int] = self.site.run(self.site.process.database.read(count))
        return counted


@pytest.fixture
def logged() -> io.StringIO:
    """What the product logs, as it is configured to."""
    kept = io.StringIO()
    configure_logging("info")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=kept))
    return kept


@pytest.fixture
def door(site: Site, logged: io.StringIO) -> Iterator[Door]:
    """The callback, which after everything still takes the genuine push; the log has neither trace nor text."""
    made = Door(site)
    before = made.rows()
    yield made
    assert made.rows() == before, "a refused push left a row"
    assert made.push(genuine()) == 200
    after = made.rows()
    assert after["receipts"] == before["receipts"] + 1
    assert "desk.inbox.callback" in logged.getvalue()
    for word in ("Traceback", "internal_error", MARKER, *planted()):
        assert word not in logged.getvalue()


def flipped(data: bytes, bits: list[int]) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        place = bit % (len(data) * 8)
        changed[place // 8] ^= 1 << (place % 8)
    return bytes(changed)


@st.composite
def bent_bodies(draw: st.DrawFn) -> Push:
    """The push with another body under its old signature."""
    push = genuine()
    body = push.body
    kind = draw(st.sampled_from(["flip", "cut", "tail", "insert", "repeat", "swap", "spaces", "escape", "coding"]))
    here, there = draw(st.integers(0, len(body))), draw(st.integers(0, len(body)))
    first, last = min(here, there), max(here, there)
    extra = draw(st.binary(min_size=1, max_size=40))
    bent = {
        "flip": lambda: flipped(body, draw(st.lists(st.integers(0, len(body) * 8 - 1), min_size=1, max_size=8))),
        "cut": lambda: body[:first],
        "tail": lambda: body[first:],
        "insert": lambda: body[:first] + extra + body[first:],
        "repeat": lambda: body[:last] + body[first:],
        "swap": lambda: body[last:] + body[first:last] + body[:first],
        "spaces": lambda: json.dumps(json.loads(body), indent=draw(st.integers(0, 3))).encode(),
        "escape": lambda: body.replace(b"encrypt", b"encr\\u0079pt", 1),
        "coding": lambda: body.decode().encode(draw(st.sampled_from(["utf-16", "utf-8-sig", "utf-32", "cp037"]))),
    }[kind]()
    return dataclasses.replace(push, body=bent, pieces=draw(st.integers(1, 4)))


@st.composite
def bent_headers(draw: st.DrawFn) -> Push:
    """The push with other signature headers over its old body."""
    push = genuine()
    name = draw(st.sampled_from(SIGNED))
    value = push.value(name)
    junk = draw(st.binary(min_size=1, max_size=300).filter(lambda text: not {10, 13, 0} & set(text)))
    digits = draw(st.text("0123456789", min_size=1, max_size=30)).encode()
    kind = draw(
        st.sampled_from(["drop", "twice", "other", "junk", "empty", "case", "space", "flip", "digits", "long", "wide"])
    )
    if kind == "drop":
        return push.with_header(name)
    if kind == "twice":
        return push.with_header(name, value, value)
    values = {
        "other": signature(push.body, KEY + "x", AT, "nonce-1").encode(),
        "junk": junk,
        "empty": b"",
        "case": value.upper() if name == SIGNED[2] else value.swapcase() + b"a",
        "space": value + b" ",
        "flip": flipped(value, [draw(st.integers(0, len(value) * 8 - 1))]),
        "digits": digits,
        "long": value * 30,
        "wide": "".join(chr(0xFEE0 + byte) for byte in value).encode("utf-8"),
    }
    return push.with_header(name, values[kind])


@given(push=bent_bodies())
@bounded(120)
def test_a_bent_body_is_refused(push: Push, door: Door) -> None:
    """No flipped bit, cut, splice, other spelling or coding of a signed body is answered 200, and none leaves a row."""
    if push.body != genuine().body:
        assert door.push(push) in {400, 413, 500}


@given(push=bent_headers())
@bounded(100)
def test_bent_signature_headers_are_refused(push: Push, door: Door) -> None:
    """No dropped, repeated, changed, padded or re-spelt signature header is answered 200, and none leaves a row."""
    if push.subject != genuine().subject:
        assert door.push(push) in {400, 500}


@given(
    encoding=st.sampled_from([b"gzip", b"br", b"deflate", b"identity, gzip", b"", b"x" * 300, b"\xff"]),
    length=st.sampled_from([None, b"-1", b"1e3", b"0x10", b" 5", b"5 ", b"", b"9" * 40, b"\xb2", b"262145"]),
    packed=st.booleans(),
)
@bounded(40)
def test_odd_encodings_and_lengths_are_refused(encoding: bytes, length: bytes | None, packed: bool, door: Door) -> None:
    """Another content encoding, and a length that is none, are refused whatever is signed."""
    push = genuine()
    if packed:
        push = _signed(gzip.compress(push.body, mtime=0))
    if length is None:
        push = push.with_header(b"content-encoding", encoding)
        assert door.push(push) == 415
    else:
        assert door.push(push.with_header(b"content-length", length)) in {400, 413}


def test_sizes_around_the_limit(door: Door) -> None:
    """A signed body of the limit's size is read, one byte more is 413 however it is cut into pieces."""
    for pieces in (1, 2, 7):
        for size, status in ((CALLBACK_BODY_BYTES_MAX, 500), (CALLBACK_BODY_BYTES_MAX + 1, 413)):
            body = b'{"encrypt":"' + b"A" * (size - 14) + b'"}'
            assert door.push(dataclasses.replace(_signed(body), pieces=pieces)) == status
            spaced = b'{"encrypt":"AAAA"' + b" " * (size - 18) + b"}"
            assert door.push(dataclasses.replace(_signed(spaced), pieces=pieces)) == status


def test_digits_moved_between_timestamp_and_nonce_never_make_a_message(site: Site) -> None:
    """The provider signs timestamp and nonce as one text, so digits moved from one to the other keep the signature. The
    time they then name is years away: what is recorded is a refusal, and nothing runs.
    """
    door = Door(site)
    before = door.rows()
    for shift in (-9, -1, 1, 9):
        push = genuine(f"om_moved_{shift}", nonce="1234567890")
        both = push.value(SIGNED[0]) + push.value(SIGNED[1])
        cut = len(push.value(SIGNED[0])) + shift
        assert door.push(push.with_header(SIGNED[0], both[:cut]).with_header(SIGNED[1], both[cut:])) == 200
    codes = site.run(site.process.database.read(lambda tx: tx.rows(sa.select(METADATA.tables["receipts"]))))
    moved = [row["error_code"] for row in codes if row["provider_message_id"].startswith("om_moved")]
    assert moved == ["timestamp_outside_window"] * 4
    assert door.rows() == before | {"receipts": before["receipts"] + 4}


WHOLE = json.dumps(payload(MARKER, message_id="om_plain")).encode()


@st.composite
def odd_plaintexts(draw: st.DrawFn) -> bytes:
    """What a holder of the key could encrypt: bent events, and JSON of any kind."""
    kind = draw(st.sampled_from(["bytes", "flip", "json", "field", "cut"]))
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=12,
    )
    if kind == "bytes":
        return draw(st.binary(max_size=200))
    if kind == "cut":
        return WHOLE[: draw(st.integers(0, len(WHOLE)))]
    if kind == "flip":
        return flipped(WHOLE, draw(st.lists(st.integers(0, len(WHOLE) * 8 - 1), min_size=1, max_size=4)))
    if kind == "json":
        return json.dumps(draw(anything)).encode()
    event = json.loads(WHOLE)
    part = draw(st.sampled_from([(), ("header",), ("event",), ("event", "message"), ("event", "sender")]))
    found = event
    for name in part:
        found = found[name]
    found[draw(st.sampled_from(sorted(found)))] = draw(anything)
    return json.dumps(event).encode()


@given(plain=odd_plaintexts())
@bounded(120)
def test_signed_nonsense_is_taken_without_a_defect(plain: bytes, site: Site, logged: io.StringIO) -> None:
    """What is signed and encrypted with the right key may hold anything: it is acknowledged or refused, and nothing
    raises on the way.
    """
    door = Door(site)
    body = json.dumps({"encrypt": encrypted(plain, KEY)}, separators=(",", ":")).encode()
    assert door.push(_signed(body)) in {200, 400, 500}
    for word in ("Traceback", "internal_error", "Error ", MARKER):
        assert word not in logged.getvalue()
