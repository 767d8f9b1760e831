"""The channels this build has, made for the composition root. Making them imports no vendor SDK."""

from __future__ import annotations

from collections.abc import Sequence

from frontdesk.channels.feishu import FeishuChannel
from frontdesk.channels.feishu.line import FeishuLine
from frontdesk.channels.loopback import DEFAULT_TARGETS, LoopbackChannel
from frontdesk.channels.transport import Threads
from frontdesk.desk.connections.channel import Accept, Channel, Installed, Line, OpenLine
from frontdesk.kernel.clock import Clock


def build_channels(
    feishu_domain: str,
    outbound_proxy: str | None,
    clock: Clock,
    threads: Threads,
    loopback_targets: Sequence[str] = DEFAULT_TARGETS,
) -> dict[str, Channel]:
    """Every channel under its key. Raises ValueError for a domain, proxy or list of targets that must not be used."""
    channels: tuple[Channel, ...] = (
        FeishuChannel(feishu_domain, clock, threads, outbound_proxy),
        LoopbackChannel(loopback_targets, clock, threads),
    )
    return {channel.key: channel for channel in channels}


def build_lines(feishu_domain: str, outbound_proxy: str | None, clock: Clock) -> dict[str, OpenLine]:
    """How to open a long connection, for the channels that have one."""

    def feishu(installed: Installed, accept: Accept) -> Line:
        return FeishuLine(feishu_domain, clock, outbound_proxy, installed, accept)

    return {FeishuChannel.key: feishu}
