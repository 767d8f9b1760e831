"""The HTTP client behind every command: `FRONTDESK_URL` and `FRONTDESK_TOKEN`, nothing read from any file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
import httpx2

from frontdesk.cli.exits import BROKEN_ANSWER, UNREACHABLE, USAGE, exit_of

URL_VARIABLE: Final = "FRONTDESK_URL"
TOKEN_VARIABLE: Final = "FRONTDESK_TOKEN"  # noqa: S105 - the name of a variable
WORKSPACE_VARIABLE: Final = "FRONTDESK_WORKSPACE"
PROJECT_VARIABLE: Final = "FRONTDESK_PROJECT"
DEFAULT_URL: Final = "http://127.0.0.1:8080"
# Longer than the longest answer of the API (a sent message waits 25 s for its turn).
TIMEOUT: Final = httpx2.Timeout(40.0, connect=5.0)


class Failed(click.ClickException):
    """The command failed: one sentence on stderr and an exit code of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


class Refused(Failed):
    """The server refused with a problem. `document` is its body."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.code = str(document.get("code", "unknown"))
        sentence = str(document.get("detail", "The server refused."))
        lines = [f"{sentence} ({self.code})"]
        lines += [f"  {error['path']}: {error['reason']}" for error in document.get("errors") or ()]
        if self.code == "unauthenticated":
            lines.append(f"  Set {TOKEN_VARIABLE} to an access token; `frontdesk login` prints one for a session.")
        super().__init__("\n".join(lines), exit_of(self.code))


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: its status and its document (None for an empty one)."""

    status: int
    document: Any


class Client:
    """One server, one token. Use as a context manager."""

    def __init__(self, url: str, token: str) -> None:
        if not _is_address(url):
            raise Failed(f"{URL_VARIABLE} must look like {DEFAULT_URL}.", UNREACHABLE)
        if not all("!" <= char <= "~" for char in token):
            raise Failed(f"{TOKEN_VARIABLE} holds no token: a token has no blanks and only ASCII characters.", USAGE)
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # No proxy and no other setting of the environment: the token goes to the server that was named.
        self._http = httpx2.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT, trust_env=False, follow_redirects=False
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Answer:
        """Send one request. Raises `Refused` for a problem, `Failed` where no usable answer came."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8")
            request = self._http.build_request(method, path, params=dict(query or {}), content=content, headers=headers)
        except UnicodeEncodeError:
            raise _not_text() from None
        try:
            response = self._http.send(request)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        return _answer(response)

    def events(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The documents of a server-sent event stream, as they come. Raises as `call`."""
        try:
            with self._http.stream(
                "GET", path, params=dict(query or {}), headers={"Accept": "text/event-stream"}, timeout=None
            ) as response:
                if response.status_code >= 400:
                    response.read()
                    _answer(response)
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line.removeprefix("data:"))
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: httpx2.TransportError) -> Failed:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return Failed(
                f"No server answers at {self.url}. Is `frontdesk serve` running, and does {URL_VARIABLE} name it?",
                UNREACHABLE,
            )
        if isinstance(error, httpx2.TimeoutException):
            return Failed(
                f"{self.url} did not answer in time; whether the request was carried out is not known.", UNREACHABLE
            )
        return Failed(
            f"The connection to {self.url} broke; whether the request was carried out is not known.", UNREACHABLE
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _not_text() -> Failed:
    return Failed("An argument is no UTF-8 text; nothing was sent.", USAGE)


def _answer(response: httpx2.Response) -> Answer:
    kind = response.headers.get("content-type", "").partition(";")[0]
    if response.status_code < 300 and not response.content:
        return Answer(response.status_code, None)
    try:
        document = response.json() if kind in {"application/json", "application/problem+json"} else None
    except ValueError:
        document = None
    if response.status_code < 300 and kind == "application/json":
        return Answer(response.status_code, document)
    if isinstance(document, dict) and "code" in document:
        raise Refused(document)
    raise Failed(
        f"The answer ({response.status_code}) is not one of Frontdesk's. Does {URL_VARIABLE} name a Frontdesk server?",
        BROKEN_ANSWER,
    )


def from_environment() -> Client:
    """The client that the environment names."""
    return Client(os.environ.get(URL_VARIABLE) or DEFAULT_URL, os.environ.get(TOKEN_VARIABLE, ""))


def filled(path: str, values: Mapping[str, str]) -> str:
    """`/api/v1` and the path with its parameters filled in."""
    try:
        return "/api/v1" + path.format_map({name: quote(value, safe="") for name, value in values.items()})
    except UnicodeEncodeError:
        raise _not_text() from None
