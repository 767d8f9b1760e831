"""The simulator's own signing and encryption against the frozen check values."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
from pathlib import Path

import pytest

import frontdesk.simulator
from frontdesk.simulator import signing

KEY = "test-encrypt-key"
PLAINTEXT = '{"challenge":"ch-1","token":"test-token","type":"url_verification"}'
V12 = (
    "AAECAwQFBgcICQoLDA0OD5OvMiWSFJvmDWXcLMiX3eCh8wnXFy2zY6q8JN7//zyKL4wn1Eeh5Kranf4z5LwWHyv/Cae4YCfDbQPBbIbF"
    "+TRyqWPJ+ufogXXjRJ09Q+UW"
)
V13 = "6f05313c76868c5613ccfd17f5c332174cf442ba336eb959302ffa58f39ae3ae"


@pytest.mark.spec("DESK-356")
def test_encryption_and_signature_reproduce_the_check_values() -> None:
    """Its encryption gives V12 and its signature gives V13, byte for byte."""
    body = signing.encrypted_body(PLAINTEXT, KEY, bytes(range(16)))
    assert body == b'{"encrypt":"' + V12.encode() + b'"}'
    assert signing.sign(body, KEY, "1767225600", "nonce-1") == V13


@pytest.mark.spec("DESK-356")
def test_no_module_of_the_simulator_imports_the_sdk() -> None:
    """Signing, encryption and frames are its own: the SDK appears in no import below the package."""
    folder = Path(frontdesk.simulator.__file__).parent
    imported: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert imported & {"lark_channel", "lark_oapi", "Crypto"} == set()
    assert "cryptography" in imported


@pytest.mark.spec("DESK-356")
def test_the_sdk_decrypts_what_the_simulator_encrypts_with_a_fresh_vector() -> None:
    """A random vector and non-ASCII text come back unchanged from the real SDK's decryptor."""
    from lark_channel.core.utils import AESCipher

    text = json.dumps({"text": "你好 <b>" * 50}, ensure_ascii=False)
    first, second = signing.encrypt(text, KEY), signing.encrypt(text, KEY)
    assert first != second
    assert AESCipher(KEY).decrypt_str(first) == text
    assert len(base64.b64decode(first)[:16]) == 16


def test_a_signature_covers_the_raw_bytes() -> None:
    """The same JSON with other spacing has another signature."""
    spaced = signing.sign(b'{"a": 1}', KEY, "1", "n")
    assert spaced != signing.sign(b'{"a":1}', KEY, "1", "n")
    assert spaced == hashlib.sha256(b"1n" + KEY.encode() + b'{"a": 1}').hexdigest()
