"""Asking an issuer: what counts as its answer, what is bounded, and which of its keys verify anything."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from frontdesk.identity.oidc import fetch, tokens
from frontdesk.identity.oidc.addresses import checked_endpoint
from frontdesk.identity.oidc.fetch import Fetcher, IssuerUnusable
from frontdesk.identity.oidc.tokens import Header, matching, read_keys
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import OIDC_DOCUMENT_BYTES_MAX, OIDC_KEYS_MAX
from tests.support.oidc_issuer import DISCOVERY, KEYS, LocalIssuer, ec_jwk, ec_key, rsa_jwk, rsa_key, send


@pytest.fixture
def peer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


def no_tls() -> ssl.SSLContext:
    raise AssertionError("plain http needs no authorities")


def refused(peer: LocalIssuer) -> str:
    with pytest.raises(IssuerUnusable) as caught:
        Fetcher(no_tls)(peer.address)
    assert peer.address not in str(caught.value)
    return str(caught.value)


def test_what_an_issuer_publishes(peer: LocalIssuer) -> None:
    published = Fetcher(no_tls)(peer.address)
    assert [(key.kid, key.algorithm) for key in published.keys] == [("rsa", "RS256"), ("ec", "ES256")]
    assert (published.authorization_endpoint, published.token_endpoint) == (
        f"{peer.address}/authorize",
        f"{peer.address}/token",
    )
    assert peer.asked == [DISCOVERY, KEYS]
    peer.described = {"token_endpoint": "http://id.example.org/token", "authorization_endpoint": 7}
    published = Fetcher(no_tls)(peer.address)
    assert (published.authorization_endpoint, published.token_endpoint) == (None, None)


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://id.example.org"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://id.example.org/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": ["https://id.example.org/keys"]},
        {"jwks_uri": "https://user@id.example.org/keys"},
    ],
)
def test_a_discovery_document_that_is_not_this_issuers(peer: LocalIssuer, described: dict[str, Any]) -> None:
    """Nothing else is asked then: an issuer sends us nowhere but to https, or to this machine where it is on it."""
    peer.described = described
    assert "discovery" in refused(peer)
    assert peer.asked == [DISCOVERY]


def test_an_https_issuer_sends_nobody_to_plain_http() -> None:
    for address in ("http://127.0.0.1/keys", "http://localhost/keys", "http://id.example.org/keys"):
        with pytest.raises(ValueError, match="https"):
            checked_endpoint(address, plain=False)
    assert checked_endpoint("https://keys.example.org/v3/certs", plain=False)


def redirected(handler: BaseHTTPRequestHandler) -> bool:
    elsewhere = {"Location": f"http://{handler.headers['Host']}/elsewhere"}
    return handler.path == "/elsewhere" or send(handler, {}, 302, elsewhere)


def dripping(peer: LocalIssuer, handler: BaseHTTPRequestHandler) -> bool:
    handler.send_response(200)
    handler.end_headers()
    while not peer.ended.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    return True


def test_answers_that_are_none(peer: LocalIssuer) -> None:
    """A redirect is not followed; an error, another text, a compressed or an overlong answer is no answer."""
    for answer in (
        redirected,
        lambda handler: send(handler, {"issuer": peer.address}, 500),
        lambda handler: send(handler, None),
        lambda handler: send(handler, b"<html>"),
        lambda handler: send(handler, b"[1]"),
        lambda handler: send(handler, b'{"issuer": NaN}'),
        lambda handler: send(handler, b"[" * 200_000),
        lambda handler: send(handler, b"{}", 200, {"Content-Encoding": "gzip"}),
        lambda handler: send(handler, b" " * (OIDC_DOCUMENT_BYTES_MAX + 1)),
        lambda handler: handler.wfile.write(b"nonsense\r\n\r\n") > 0,
    ):
        peer.answer = answer
        refused(peer)
    assert set(peer.asked) == {DISCOVERY}


def test_an_answer_that_drips_is_given_up(peer: LocalIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is one of the whole answer: a byte now and then does not keep a thread."""
    monkeypatch.setattr(fetch, "OIDC_FETCH_US", SECOND // 2)
    peer.answer = lambda handler: dripping(peer, handler)
    assert refused(peer) == "the issuer did not answer in time"


def test_an_issuer_without_a_key_of_use(peer: LocalIssuer) -> None:
    peer.published = [{"kty": "oct", "kid": "rsa", "k": "c2VjcmV0", "alg": "HS256"}]
    assert "signing key" in refused(peer)


def test_nothing_listens_there() -> None:
    with socket.socket() as held:  # the port stays ours, and nobody answers at it
        held.bind(("127.0.0.1", 0))
        with pytest.raises(IssuerUnusable, match="did not answer"):
            Fetcher(no_tls)(f"http://127.0.0.1:{held.getsockname()[1]}")


def test_which_keys_verify() -> None:
    """Signing keys for RS256 of 2,048 to 8,192 bits and ES256 on P-256; what else stands in the set is passed over."""
    good = rsa_jwk("a", rsa_key())
    weak = {**good, "n": good["n"][:171]}
    odd = [
        {**good, "use": "enc"},
        {**good, "alg": "RS512"},
        {**good, "alg": "HS256"},
        {**good, "alg": None},
        {**good, "key_ops": ["encrypt"]},
        {**good, "key_ops": 7},
        {**good, "kid": 7},
        {**good, "n": "!"},
        {**good, "n": None},
        {**good, "e": ""},
        {"kty": "RSA", "kid": "a"},
        weak,
        {**good, "n": good["n"] * 5},
        {**ec_jwk("b", ec_key()), "crv": "P-384"},
        {**ec_jwk("b", ec_key()), "x": "AA"},
        {"kty": ["RSA"]},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        "text",
        None,
    ]
    assert read_keys({"keys": odd}) == ()
    assert [key.kid for key in read_keys({"keys": [*odd, good, ec_jwk("b", ec_key(), key_ops=["verify"])]})] == [
        "a",
        "b",
    ]
    assert read_keys({"keys": [None] * OIDC_KEYS_MAX + [good]}) == ()
    assert read_keys({"keys": {"a": good}}) == read_keys({}) == ()


def test_a_private_key_in_the_set_is_taken_for_its_public_part() -> None:
    numbers = rsa_key().private_numbers()
    (key,) = read_keys({"keys": [rsa_jwk("a", rsa_key(), d=str(numbers.d))]})
    assert not key.key.is_private


def test_the_key_a_token_names_and_no_other() -> None:
    keys = read_keys({"keys": [rsa_jwk("a", rsa_key()), rsa_jwk("b", rsa_key(1)), ec_jwk("a", ec_key())]})
    assert [(key.kid, key.algorithm) for key in matching(keys, Header("RS256", "a"))] == [("a", "RS256")]
    assert matching(keys, Header("RS256", "c")) == matching(keys, Header("RS256", None)) == ()
    assert [key.algorithm for key in matching(keys, Header("ES256", None))] == ["ES256"]
    assert tokens.ALGORITHMS == ("RS256", "ES256")
