"""An OIDC issuer on loopback: discovery and keys over real HTTP, tokens signed without the library under test.

It tells what it was asked, and does what a bad issuer does where a test says so (`answer`). Keys are made once a run.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "frontdesk-test"
DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"

Answer = Callable[[BaseHTTPRequestHandler], bool]


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def number(value: int, length: int | None = None) -> str:
    return encoded(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


def rsa_jwk(kid: str, key: rsa.RSAPrivateKey, **more: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "n": number(numbers.n), "e": number(numbers.e), **more}


def ec_jwk(kid: str, key: ec.EllipticCurvePrivateKey, **more: Any) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": number(numbers.x, 32), "y": number(numbers.y, 32), **more}


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def signature(algorithm: str, key: Any, signed: bytes) -> bytes:
    """By the named algorithm; for HMAC `key` is the secret, for `none` nothing is signed."""
    if algorithm == "none":
        return b""
    if algorithm.startswith("HS"):
        mac = hmac.HMAC(key, hashes.SHA256())
        mac.update(signed)
        return mac.finalize()
    if algorithm.startswith("ES"):
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    digest = hashes.SHA512() if algorithm.endswith("512") else hashes.SHA256()
    scheme = padding.PSS(padding.MGF1(digest), digest.digest_size) if algorithm.startswith("PS") else padding.PKCS1v15()
    return bytes(key.sign(signed, scheme, digest))


def token(claims: dict[str, Any], key: Any, *, algorithm: str = "RS256", kid: str | None = "rsa", **header: Any) -> str:
    """A compact token of any claims under any key."""
    head = {"typ": "JWT", "alg": algorithm, **({"kid": kid} if kid is not None else {}), **header}
    parts = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
    return f"{parts}.{encoded(signature(algorithm, key, parts.encode()))}"


class LocalIssuer:
    """Serves until `close`. `published` is what its JWKS holds; `asked` counts requests by path."""

    def __init__(self) -> None:
        self.published = [rsa_jwk("rsa", rsa_key(), use="sig", alg="RS256"), ec_jwk("ec", ec_key())]
        self.described: dict[str, Any] = {}
        self.asked: list[str] = []
        self.answer: Answer | None = None
        self.ended = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if outer.answer is None or not outer.answer(self):
                    send(self, outer.document(self.path))

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def document(self, path: str) -> Any:
        if path == DISCOVERY:
            described = {
                "issuer": self.address,
                "jwks_uri": self.address + KEYS,
                "authorization_endpoint": self.address + "/authorize",
                "token_endpoint": self.address + "/token",
            }
            return described | self.described
        return {"keys": self.published} if path == KEYS else None

    def claims(self, sub: str, now_s: int | None = None, **more: Any) -> dict[str, Any]:
        """What this issuer would say of a person, good for an hour."""
        now = int(time.time()) if now_s is None else now_s
        return {"iss": self.address, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 3_600, **more}

    def token(self, sub: str, now_s: int | None = None, *, algorithm: str = "RS256", **more: Any) -> str:
        """A good token."""
        key, kid = (rsa_key(), "rsa") if algorithm == "RS256" else (ec_key(), "ec")
        return token(self.claims(sub, now_s, **more), key, algorithm=algorithm, kid=kid)

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send(
    handler: BaseHTTPRequestHandler, document: Any, status: int = 200, headers: dict[str, str] | None = None
) -> bool:
    """Answer with a JSON document, None as 404, bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    handler.send_response(404 if document is None else status)
    for name, value in {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
    return True
