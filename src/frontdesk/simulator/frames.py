"""The long connection's frames: a hand-written encoder and decoder of the one proto2 message they consist of.

Fields of ``Frame``: 1 SeqID u64, 2 LogID u64, 3 service i32, 4 method i32 (0 control, 1 data), 5 repeated headers
{1 key, 2 value}, 6 payload_encoding, 7 payload_type, 8 payload, 9 LogIDNew.
Negative numbers do not occur and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

METHOD_CONTROL = 0
METHOD_DATA = 1

_VARINT = 0
_BYTES = 2


class FrameError(ValueError):
    """The bytes are not a frame."""


@dataclass(slots=True)
class Frame:
    """One frame."""

    method: int
    service: int = 0
    seq_id: int = 0
    log_id: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """The frame's bytes."""
    parts = [
        _number(1, frame.seq_id),
        _number(2, frame.log_id),
        _number(3, frame.service),
        _number(4, frame.method),
    ]
    for key, value in frame.headers.items():
        parts.append(_text(5, _text(1, key.encode()) + _text(2, value.encode())))
    if frame.payload:
        parts.append(_text(8, frame.payload))
    return b"".join(parts)


def decode(data: bytes) -> Frame:
    """Reads a frame; unknown fields are skipped, broken bytes raise :class:`FrameError`."""
    frame = Frame(method=-1)
    for number, value in _fields(data):
        if isinstance(value, bytes):
            if number == 5:
                pair = dict(_fields(value))
                frame.headers[_decoded(pair.get(1))] = _decoded(pair.get(2))
            elif number == 8:
                frame.payload = value
        elif number == 1:
            frame.seq_id = value
        elif number == 2:
            frame.log_id = value
        elif number == 3:
            frame.service = value
        elif number == 4:
            frame.method = value
    if frame.method not in (METHOD_CONTROL, METHOD_DATA):
        raise FrameError("a frame has method 0 or 1")
    return frame


def _varint(value: int) -> bytes:
    if value < 0:
        raise FrameError("negative numbers do not occur in frames")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _text(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == _BYTES:
            length, at = _read_varint(data, at)
            if at + length > len(data):
                raise FrameError("a field is longer than the frame")
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise FrameError("a field has a kind that frames do not use")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise FrameError("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _decoded(value: int | bytes | None) -> str:
    if not isinstance(value, bytes):
        raise FrameError("a header has a key and a value")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FrameError("a header is not UTF-8") from None
