"""What `frontdesk doctor` asks others: the port, the running server, the provider, and each active connection's app.

Every question is bounded and sends no message; with FRONTDESK_TOKEN the running server is asked for its own probe,
because only its memory holds the last refused push, from which exchanged secrets are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from importlib import metadata
from typing import Any, Final

import httpx2

from frontdesk.api.threads import ThreadPool
from frontdesk.app.finding import OK, Finding, note, ok, wrong
from frontdesk.app.serving import StartRefused, listening_socket
from frontdesk.app.settings import Settings, is_loopback, public_url
from frontdesk.channels.feishu import sdk
from frontdesk.channels.feishu.transport import tls_context
from frontdesk.channels.registry import build_channels
from frontdesk.cli.client import Client, Failed, Refused
from frontdesk.desk import connections
from frontdesk.desk.connections.channel import Channel, Channels, ProbeReport
from frontdesk.desk.connections.model import Installation
from frontdesk.kernel.clock import SystemClock, to_rfc3339
from frontdesk.kernel.codes import PROBLEMS, ROW_CODES
from frontdesk.kernel.secretbox import KeyRing

ASK_S: Final = 5.0
PROBE_S: Final = 32.0  # two calls of the channel's own bound
OFFSET_S_MAX: Final = 60
DOMAIN_PATH: Final = "/open-apis/bot/v3/info"  # any answer will do; without a token it is a refusal
_SECRET_FIELDS: Final = {
    "app_secret": "app secret",
    "encrypt_key": "encrypt key",
    "verification_token": "verification token",
}


async def examine(
    settings: Settings, environment: Mapping[str, str], keyring: KeyRing, installations: Sequence[Installation]
) -> AsyncIterator[Finding]:
    """Port, server, SDK, provider, then each active installation."""
    yield await _port(settings)
    address = environment.get("FRONTDESK_URL") or public_url(settings)
    yield await _server(address, "FRONTDESK_URL" if environment.get("FRONTDESK_URL") else "public_url")
    yield _sdk()
    reachable = True
    for finding in await _provider(settings):
        reachable = reachable and not (finding.check == "feishu_domain" and finding.status != OK)
        yield finding
    if not installations:
        yield note("connections", "none is active, or none could be read")
        return
    pool = ThreadPool("doctor", 2)
    try:
        channels: Channels = build_channels(
            settings.feishu_domain, settings.outbound_proxy or None, SystemClock(), pool
        )
        for installation in installations:
            asked = _Asked(settings, environment, keyring, installation, channels.get(installation.channel))
            try:
                for finding in await asked.findings(reachable):
                    yield finding
            except Exception as error:  # noqa: BLE001 - its text could hold a value
                said = f"the check itself failed ({type(error).__name__})"
                yield wrong(asked.name, said, None, "report this, with the lines above")
    finally:
        pool.close()


# ---------------------------------------------------------------------------------------------- this machine


async def _port(settings: Settings) -> Finding:
    host, port = settings.bind, settings.port
    if port == 0:
        return ok("port", "a free one is taken at each start")
    try:
        listening_socket(host, port).close()
    except (StartRefused, OSError, ValueError):
        pass
    else:
        return ok("port", f"{port} on {host} is free")
    scheme = "https" if settings.tls_cert else "http"
    shown = "127.0.0.1" if host in {"0.0.0.0", ""} else "[::1]" if host == "::" else _bracketed(host)  # noqa: S104
    document = await _ask(f"{scheme}://{shown}:{port}/healthz", trusted=False)
    if document is not None and document[1].get("alive") is True:
        return ok("port", f"{port} on {host} is served by a Frontdesk")
    said = f"{port} on {host} is taken by another program, or is not this machine's"
    return wrong("port", said, "port (or bind)", "stop that program, or choose another port (0 takes a free one)")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


async def _server(address: str, setting: str) -> Finding:
    answer = await _ask(address.rstrip("/") + "/readyz", trusted=True)
    if answer is None:
        return note("server", "none answers there; its readiness was not looked at", setting, "run `frontdesk serve`")
    status, document = answer
    checks = document.get("checks")
    if not isinstance(document.get("ready"), bool) or not isinstance(checks, dict):
        said = f"what answers there ({status}) is not a Frontdesk"
        return wrong("server", said, setting, "name the address Frontdesk has")
    if document["ready"]:
        return ok("server", "running and ready")
    named = {"database": "database_url", "migrations": "database_url", "worker": "reply_enabled"}
    failing = [name for name in named if checks.get(name) is False]
    what = ", ".join(failing) or "it does not say what"
    advice = "look at the lines above and at the server's log, then start it again"
    return wrong("server", f"running and not ready: {what}", named[failing[0]] if failing else None, advice)


async def _ask(url: str, *, trusted: bool) -> tuple[int, dict[str, Any]] | None:
    """Status and JSON object of a GET without credentials, an empty object for another body; None: no answer."""
    verify = tls_context() if trusted else False
    try:
        async with asyncio.timeout(ASK_S), httpx2.AsyncClient(verify=verify, trust_env=False, timeout=ASK_S) as client:
            answer = await client.get(url)
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, ValueError):
        return None
    try:
        document = answer.json()
    except ValueError:
        document = None
    return answer.status_code, document if isinstance(document, dict) else {}


def _sdk() -> Finding:
    advice = f"install {sdk.DISTRIBUTION}=={sdk.VERSION}"
    try:
        installed = metadata.version(sdk.DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return wrong("sdk", f"{sdk.DISTRIBUTION} is not installed", None, advice)
    if installed != sdk.VERSION:
        said = f"{sdk.DISTRIBUTION} {installed} is installed; {sdk.VERSION} is the version that was tested"
        return wrong("sdk", said, None, advice)
    return ok("sdk", f"{sdk.DISTRIBUTION} {installed}")


# ---------------------------------------------------------------------------------------------- the provider


async def _provider(settings: Settings) -> list[Finding]:
    domain = settings.feishu_domain
    clock = SystemClock()
    before = clock.now_us()
    date = None
    try:
        async with (
            asyncio.timeout(ASK_S),
            httpx2.AsyncClient(
                verify=tls_context(), trust_env=False, timeout=ASK_S, proxy=settings.outbound_proxy or None
            ) as client,
        ):
            answer = await client.get(domain + DOMAIN_PATH)
            date = answer.headers.get("date")
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, ValueError) as error:
        setting = "feishu_domain (or outbound_proxy)"
        advice = "correct the domain, or open the way to it: name resolution, firewall, proxy, certificate"
        said = f"unreachable domain: nothing answered within {ASK_S:.0f} s ({type(error).__name__})"
        return [wrong("feishu_domain", said, setting, advice), note("clock", "not compared: no provider answered")]
    return [ok("feishu_domain", f"{domain} answers"), _offset(date, (before + clock.now_us()) // 2)]


def _offset(date: str | None, now_us: int) -> Finding:
    try:
        theirs = parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        theirs = None
    if theirs is None:
        return note("clock", "not compared: the provider names no time")
    # The header has whole seconds: what lies within one is no offset.
    offset = round(now_us / 1_000_000 - theirs - 0.5)
    if abs(offset) <= OFFSET_S_MAX:
        return ok("clock", f"{offset:+d} s from the provider's")
    said = f"{offset:+d} s from the provider's; pushes are refused or judged too old by such a clock"
    return wrong("clock", said, "the machine's clock (no setting of Frontdesk)", "switch time synchronisation on")


class _Asked:
    """One active installation."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        keyring: KeyRing,
        installation: Installation,
        channel: Channel | None,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._keyring = keyring
        self._installation = installation
        self._channel = channel
        self.name = f"connection {installation.id} ({installation.name})"
        self._update = f"`frontdesk desk connections update` of {installation.id}"

    async def findings(self, reachable: bool) -> list[Finding]:
        """Secrets, callback address, token, bot, how long it was not reached, exchanged secrets."""
        found = [self._secrets(), self._callback()]
        report = None
        if found[0].status == OK and reachable and self._channel is not None:
            target = connections.installed_of(self._installation, self._channel, self._keyring)
            try:
                async with asyncio.timeout(PROBE_S):
                    report = await self._channel.probe(target)
            except TimeoutError:
                report = ProbeReport("connect_failed", "connect_failed")
            found += [self._token(report), *self._bot(report)]
        else:
            found.append(note(self.name, "the provider was not asked for a token, see above"))
        found += self._history(report)
        found.append(await asyncio.to_thread(self._exchanged))
        return found

    def _secrets(self) -> Finding:
        unusable = connections.unusable_secrets(self._installation, self._channel, self._keyring)
        if not unusable:
            return ok(self.name, "its secrets are usable")
        names = ", ".join(_SECRET_FIELDS[name] for name in unusable)
        advice = f"put the old key back into credential_keys, or enter them again: {self._update}"
        return wrong(self.name, f"missing or unreadable: {names}", f"credential_keys, {' '.join(unusable)}", advice)

    def _callback(self) -> Finding:
        base = public_url(self._settings)
        path = connections.view(self._installation, self._channel, self._keyring).callback_path
        host = httpx2.URL(base).host
        provider = httpx2.URL(self._settings.feishu_domain).host
        if self._installation.inbound == "webhook" and is_loopback(host) and not is_loopback(provider):
            said = f"callback address {base}{path}: the provider cannot reach this machine by a loopback name"
            return note(self.name, said, "public_url", "set it to the address the provider is to call")
        return ok(self.name, f"callback address {base}{path}")

    def _token(self, report: ProbeReport) -> Finding:
        if report.token == OK:
            return ok(self.name, "the provider gives a token")
        number = f", the provider's number {report.provider_code}" if report.provider_code is not None else ""
        said = f"no token: {_sentence(report.token)} ({report.token}{number})"
        if report.token == "provider_credentials_rejected":  # noqa: S105 - a code
            advice = f"copy both from the provider's console: {self._update}"
            return wrong(self.name, said, "app_id, app_secret", advice)
        return wrong(self.name, said, "feishu_domain (or outbound_proxy)", "try again; see the domain's line above")

    def _bot(self, report: ProbeReport) -> list[Finding]:
        if report.token != OK:
            return []
        if report.bot_info == OK:
            return [ok(self.name, "the provider names the app's bot")]
        number = f", the provider's number {report.provider_code}" if report.provider_code is not None else ""
        said = f"no bot: {_sentence(report.bot_info)} ({report.bot_info}{number})"
        return [wrong(self.name, said, "app_id", "switch the bot on in the provider's console and publish the app")]

    def _history(self, report: ProbeReport | None) -> list[Finding]:
        code, since = self._installation.last_error_code, self._installation.last_error_at
        if code is None or since is None:
            return []
        said = f"not reached since {to_rfc3339(since)} ({code})"
        if report is not None and report.token == OK:
            return [note(self.name, f"{said}; it is now")]
        return [wrong(self.name, said, "app_secret, feishu_domain (or outbound_proxy)", "see the lines above")]

    def _exchanged(self) -> Finding:
        url, token = self._environment.get("FRONTDESK_URL"), self._environment.get("FRONTDESK_TOKEN")
        if not token:
            said = "the running server was not asked about its last refused push"
            advice = "set them to look for exchanged secrets"
            return note(self.name, said, "FRONTDESK_URL, FRONTDESK_TOKEN", advice)
        mine = self._installation
        path = f"/api/v1/workspaces/{mine.workspace_id}/installations/{mine.id}/probe"
        try:
            with Client(url or public_url(self._settings), token) as client:
                document = client.call("POST", path).document
        except Refused as refused:
            advice = "use a token of somebody with `configuration.manage` in that workspace"
            return wrong(self.name, f"the running server refused the probe ({refused.code})", "FRONTDESK_TOKEN", advice)
        except Failed:
            said = "the server named by FRONTDESK_URL gave no usable answer to the probe"
            return wrong(self.name, said, "FRONTDESK_URL", "run `frontdesk serve`, or correct the address")
        found = document.get("verification") if isinstance(document, dict) else None
        if found == OK:
            return ok(self.name, "the last refused push, if any, does not verify with exchanged secrets")
        said = "encrypt key and verification token are exchanged: the last refused push verifies the other way round"
        advice = f"enter each in the other's place: {self._update}"
        if found != "credentials_swapped":
            said, advice = "the running server's probe answered something unknown", "update this program"
        return wrong(self.name, f"{said} ({found})", "encrypt_key, verification_token", advice)


def _sentence(code: str) -> str:
    if code in ROW_CODES:
        return ROW_CODES[code][0].rstrip(".")
    return PROBLEMS[code].en.rstrip(".") if code in PROBLEMS else "refused"
