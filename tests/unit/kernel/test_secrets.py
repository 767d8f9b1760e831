"""Credential shapes and the key ring."""

from __future__ import annotations

import re

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.kernel import secret_shapes
from frontdesk.kernel.secret_shapes import SHAPES, find_secret_shape, redact
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing, new_key

PATTERNS = dict(SHAPES)
EXAMPLES = {
    "private_key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "aws_key": "AKIAIOSFODNN7EXAMPLE",
    "google_key": "AIza" + "Sy" * 17 + "x",
    "api_key": "sk-proj-" + "a1" * 12,
    "github_token": "ghp_" + "A1" * 18,
    "slack_token": "xoxb-123456789012-abcdef",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4",
    "password": "password = hunter22",
    "frontdesk_token": "fdt_" + "a" * 43,
}


@given(st.data(), st.sampled_from(sorted(PATTERNS)))
def test_the_cheap_look_never_hides_a_shape(data: st.DataObject, kind: str) -> None:
    """Whatever matches a shape's pattern is found, in any surroundings: the list of marks opens the gate for it."""
    text = data.draw(st.from_regex(PATTERNS[kind]))
    assert PATTERNS[kind].search(text)
    assert find_secret_shape(text) is not None


@pytest.mark.parametrize("text", ["paſſword=abcd", "PAſſWD = 12345", "PWD=\tabcd", "x Pwd = abcd"])
def test_letters_that_only_look_different_open_the_gate_too(text: str) -> None:
    assert find_secret_shape(text) == "password"


def test_every_shape_has_an_example_that_is_found_and_redacted() -> None:
    assert set(EXAMPLES) == set(PATTERNS)
    for kind, text in EXAMPLES.items():
        assert find_secret_shape(f"see {text} there") == kind
        cleaned = redact(f"see {text} there")
        assert text not in cleaned
        assert f"[redacted:{kind}]" in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "the password is in the safe",
        "password=abc",
        "sk-short",
        "a task-list-with-many-parts",
        "AKIA1234",
        "ghp_tooshort",
        "passkey",
        "-----BEGIN PUBLIC KEY-----",
        "fdt_" + "a" * 42,
    ],
)
def test_ordinary_texts_have_none(text: str) -> None:
    assert find_secret_shape(text) is None
    assert redact(text) == text


def test_known_secrets_are_redacted_wherever_they_stand_and_short_ones_are_not() -> None:
    assert redact("a-known-secret/a-known-secret", ("a-known-secret",)) == "[redacted:secret]/[redacted:secret]"
    assert redact("1234567 stays", ("1234567",)) == "1234567 stays"


def test_marks_are_in_the_form_that_is_compared() -> None:
    assert all(mark == mark.casefold() for mark in secret_shapes._MARKS)


# ---------------------------------------------------------------------------------------------- key ring


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    old, new = new_key(), new_key()
    before = KeyRing(old).encrypt("secret")
    ring = KeyRing(f" {new} , {old},")
    assert ring.decrypt(before) == "secret"
    assert KeyRing(new).decrypt(ring.encrypt("secret")) == "secret"
    with pytest.raises(CredentialUnavailable):
        KeyRing(old).decrypt(ring.encrypt("secret"))


def test_rotation_puts_a_text_under_the_first_key_and_leaves_it_readable() -> None:
    old, new = new_key(), new_key()
    rotated = KeyRing(f"{new},{old}").rotate(KeyRing(old).encrypt("secret"))
    assert KeyRing(new).decrypt(rotated) == "secret"
    with pytest.raises(CredentialUnavailable):
        KeyRing(new).rotate(KeyRing(old).encrypt("secret"))


KEY = new_key()
GOOD = Fernet(KEY).encrypt(b"secret").decode()
BROKEN = {
    "no keys": ("", GOOD),
    "blank keys": (" , ,", GOOD),
    "a malformed key": ("not-a-key", GOOD),
    "one malformed key of two": (f"{KEY},not-a-key", GOOD),
    "another key": (new_key(), GOOD),
    "no ciphertext": (KEY, None),
    "an empty ciphertext": (KEY, ""),
    "a cut ciphertext": (KEY, GOOD[:-4]),
    "a changed ciphertext": (KEY, GOOD[:30] + ("A" if GOOD[30] != "A" else "B") + GOOD[31:]),
    "plain text": (KEY, "secret"),
    "text beyond ascii": (KEY, "密"),
    "an empty text inside": (KEY, Fernet(KEY).encrypt(b"").decode()),
    "bytes that are no text inside": (KEY, Fernet(KEY).encrypt(b"\xff\xfe").decode()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_missing_malformed_wrong_and_corrupt_are_one_error_that_names_no_cause(name: str) -> None:
    keys, ciphertext = BROKEN[name]
    ring = KeyRing(keys)
    for ask in (ring.decrypt, ring.decrypt_kept):
        with pytest.raises(CredentialUnavailable) as caught:
            ask(ciphertext)
        assert caught.value.args == ()
        assert caught.value.__cause__ is None
    assert not ring.can_read(ciphertext)
    assert not ring.can_read(GOOD, ciphertext)


def test_a_ring_without_usable_keys_encrypts_nothing() -> None:
    for keys in ("", "not-a-key", f"{KEY},x"):
        assert not KeyRing(keys).usable
        with pytest.raises(CredentialUnavailable):
            KeyRing(keys).encrypt("secret")
    assert KeyRing(KEY).usable


def test_what_is_remembered_is_bounded_and_right() -> None:
    ring = KeyRing(KEY)
    texts = {ring.encrypt(f"secret {number}"): f"secret {number}" for number in range(300)}
    for ciphertext, clear in texts.items():
        assert ring.decrypt_kept(ciphertext) == clear
        assert ring.can_read(ciphertext)
    assert len(ring._clear) <= 256
    assert all(ring.decrypt(ciphertext) == clear for ciphertext, clear in texts.items())


def test_nothing_of_a_ring_shows_in_its_repr() -> None:
    ring = KeyRing(KEY)
    ring.decrypt_kept(ring.encrypt("marker-4711"))
    assert not re.search(f"marker-4711|{re.escape(KEY)}", repr(ring) + str(ring))
