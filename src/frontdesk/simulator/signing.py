"""Event encryption and signing as the provider documents them, written from the description, never the SDK's code.

Body: ``{"encrypt": base64(iv16 + AES-256-CBC(plaintext, PKCS#7))}`` with key = SHA-256 of the encrypt key.
Signature: lower-case hex SHA-256 of timestamp + nonce + encrypt key (UTF-8), followed by the raw body bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

HEADER_TIMESTAMP = "X-Lark-Request-Timestamp"
HEADER_NONCE = "X-Lark-Request-Nonce"
HEADER_SIGNATURE = "X-Lark-Signature"
HEADER_REQUEST_ID = "X-Request-Id"


def compact_json(value: object) -> str:
    """JSON without blanks and with UTF-8 left as it is, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encrypt(plaintext: str, encrypt_key: str, iv: bytes | None = None) -> str:
    """The base64 ciphertext of ``plaintext``; ``iv`` (16 bytes) is random unless a test fixes it."""
    vector = secrets.token_bytes(16) if iv is None else iv
    if len(vector) != 16:
        raise ValueError("the initialisation vector has 16 bytes")
    padder = PKCS7(128).padder()
    padded = padder.update(plaintext.encode()) + padder.finalize()
    key = hashlib.sha256(encrypt_key.encode()).digest()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return base64.b64encode(vector + encryptor.update(padded) + encryptor.finalize()).decode()


def encrypted_body(plaintext: str, encrypt_key: str, iv: bytes | None = None) -> bytes:
    """The request body of an encrypted push."""
    return compact_json({"encrypt": encrypt(plaintext, encrypt_key, iv)}).encode()


def sign(body: bytes, encrypt_key: str, timestamp: str, nonce: str) -> str:
    """The value of ``X-Lark-Signature`` for ``body`` exactly as it goes over the wire."""
    return hashlib.sha256((timestamp + nonce + encrypt_key).encode() + body).hexdigest()
