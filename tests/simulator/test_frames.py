"""The hand-written frame codec against the SDK's protobuf classes."""

from __future__ import annotations

import pytest

from frontdesk.simulator import frames
from frontdesk.simulator.frames import Frame


def test_the_sdk_reads_what_the_codec_writes() -> None:
    from lark_channel.ws.pb.pbbp2_pb2 import Frame as SdkFrame

    headers = {"type": "event", "message_id": "m", "sum": "1", "seq": "0"}
    frame = Frame(frames.METHOD_DATA, 7, 2**40, 300, headers, "内容".encode())
    read = SdkFrame()
    read.ParseFromString(frames.encode(frame))
    assert (read.SeqID, read.LogID, read.service, read.method) == (2**40, 300, 7, 1)
    assert {header.key: header.value for header in read.headers} == headers
    assert read.payload.decode() == "内容"


def test_the_codec_reads_what_the_sdk_writes() -> None:
    from lark_channel.ws.pb.pbbp2_pb2 import Frame as SdkFrame

    written = SdkFrame()
    written.SeqID, written.LogID, written.service, written.method = 1, 2, 3, 0
    header = written.headers.add()
    header.key, header.value = "type", "ping"
    written.payload_type = "json"
    written.payload = b"{}"
    frame = frames.decode(written.SerializeToString())
    assert frame == Frame(frames.METHOD_CONTROL, 3, 1, 2, {"type": "ping"}, b"{}")


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\x2a\x05ab", b"\x20\x07", b"\x2a\x02\x08\x01", b"\xff" * 12, b"\x0d1234"]
)
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.decode(data)
