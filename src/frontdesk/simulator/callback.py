"""One push over HTTP: what goes into the request, and what came back."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from frontdesk.simulator import events, shapes, signing
from frontdesk.simulator.config import SimulatorError, is_loopback_host
from frontdesk.simulator.model import App, Push, PushOptions

OLD_TIMESTAMP_MS = 10 * 3_600_000
ANSWER_CHARS_KEPT = 300


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Headers and body of a push."""

    headers: dict[str, str]
    body: bytes
    timestamp: str


def checked_url(url: str) -> str:
    """``url`` if it is an http(s) address on loopback; raises :class:`SimulatorError`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise SimulatorError("the callback address is not a URL") from None
    if parts.scheme not in ("http", "https") or not is_loopback_host(host) or parts.username is not None:
        raise SimulatorError(
            "the callback address is http:// or https:// on a loopback host, such as http://127.0.0.1:8080/…"
        )
    return url


def new_client(answer_timeout_ms: int) -> httpx2.AsyncClient:
    """The client for pushes: no proxies, no redirects, a fresh connection each (a restarted receiver is reached).

    Certificates are not checked: receivers are on loopback and bring self-signed ones.
    """
    return httpx2.AsyncClient(
        timeout=answer_timeout_ms / 1_000,
        trust_env=False,
        verify=False,
        follow_redirects=False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )


def varied_payload(push: Push, options: PushOptions, event_id: str) -> str:
    """The plaintext with the header fields that ``options`` bend; a payload that is not an event stays as it is."""
    try:
        value = json.loads(push.payload)
    except (ValueError, RecursionError):
        return push.payload
    header = value.get("header") if isinstance(value, dict) else None
    if not isinstance(header, dict):
        return push.payload
    changes: dict[str, str] = {}
    if event_id != push.event_id:
        changes["event_id"] = event_id
    if options.wrong_tenant:
        changes["tenant_key"] = shapes.new_tenant_key()
    if options.wrong_app:
        changes["app_id"] = shapes.new_app_id()
    if options.wrong_token:
        changes["token"] = shapes.new_secret()
    if options.other_type is not None:
        changes["event_type"] = options.other_type
    if not changes:
        return push.payload
    value["header"] = {**header, **changes}
    return signing.compact_json(value)


def signed_request(app: App, push: Push, options: PushOptions, event_id: str, now_ms: int) -> SignedRequest:
    """Builds the request of one attempt.

    A redelivery repeats the first attempt's bytes and signature (the harder case for a receiver) unless the app
    re-signs, the attempt is to have a new event id, or the oddities are limited to some attempts.
    """
    repeat = push.signed_body and not app.resign_redeliveries and event_id == push.event_id and not options.attempts
    if repeat:
        body, timestamp, nonce = push.signed_body.encode(), push.signed_timestamp, push.signed_nonce
    else:
        payload = varied_payload(push, options, event_id)
        body = payload.encode() if options.plaintext else signing.encrypted_body(payload, app.encrypt_key)
        timestamp, nonce = str((now_ms - options.old_timestamp_ms) // 1_000), secrets.token_hex(8)
        push.signed_body, push.signed_timestamp, push.signed_nonce = body.decode(), timestamp, nonce
    headers = {"Content-Type": "application/json; charset=utf-8", signing.HEADER_REQUEST_ID: secrets.token_hex(16)}
    if not options.unsigned:
        key = app.encrypt_key + ("-not" if options.bad_signature else "")
        headers[signing.HEADER_TIMESTAMP] = timestamp
        headers[signing.HEADER_NONCE] = nonce
        headers[signing.HEADER_SIGNATURE] = signing.sign(body, key, timestamp, nonce)
    if options.lower_headers or app.header_case == "lower":
        headers = {name.lower(): value for name, value in headers.items()}
    return SignedRequest(headers, body, timestamp)


async def check_url(client: httpx2.AsyncClient, app: App) -> tuple[bool, int | None, str]:
    """The provider's URL check: an encrypted, unsigned challenge that must come back. Returns (ok, status, reason)."""
    value = secrets.token_hex(16)
    body = signing.encrypted_body(events.challenge(app, value), app.encrypt_key)
    try:
        response = await client.post(
            app.callback_url, content=body, headers={"Content-Type": "application/json; charset=utf-8"}
        )
    except httpx2.TimeoutException:
        return False, None, "no answer in time"
    except httpx2.HTTPError as error:
        return False, None, f"could not be reached ({type(error).__name__})"
    if response.status_code != 200:
        return False, response.status_code, f"answered {response.status_code}, not 200"
    try:
        answered = response.json().get("challenge")
    except (ValueError, AttributeError):
        answered = None
    if answered != value:
        return False, 200, "answered 200 without the challenge"
    return True, 200, ""
