"""The key ring: MultiFernet ciphertext, first key encrypts, every listed key decrypts."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class CredentialUnavailable(Exception):
    """Missing, empty, malformed or wrong keys, or a corrupt ciphertext. One error on purpose: it names no cause."""


class KeyRing:
    """Encrypts secrets at rest. Built from comma-separated Fernet keys; a ring without usable keys fails at use.

    Does not prevent: reading secrets by who holds the keys and the database together.
    """

    def __init__(self, keys: str) -> None:
        self._ring: MultiFernet | None = None
        self._first: Fernet | None = None
        names = [key.strip() for key in keys.split(",") if key.strip()]
        try:
            fernets = [Fernet(name) for name in names]
            self._ring = MultiFernet(fernets) if fernets else None
            self._first = fernets[0] if fernets else None
        except (ValueError, TypeError):
            self._ring = None
        self._clear: dict[str, str] = {}

    @property
    def usable(self) -> bool:
        """True where at least one key is listed and all are well formed."""
        return self._ring is not None

    def encrypt(self, clear: str) -> str:
        """Ciphertext under the first key. Raises `CredentialUnavailable` without usable keys."""
        if self._ring is None:
            raise CredentialUnavailable
        return self._ring.encrypt(clear.encode("utf-8")).decode("ascii")

    def decrypt(self, ciphertext: str | None) -> str:
        """Clear text, never empty. Anything else is `CredentialUnavailable`; nothing falls back to plaintext."""
        if self._ring is None or not ciphertext:
            raise CredentialUnavailable
        known = self._clear.get(ciphertext)
        if known is not None:
            return known
        try:
            clear = self._ring.decrypt(ciphertext.encode("ascii")).decode("utf-8")
        except (InvalidToken, UnicodeError, ValueError):
            raise CredentialUnavailable from None
        if not clear:
            raise CredentialUnavailable
        return clear

    def decrypt_kept(self, ciphertext: str | None) -> str:
        """As `decrypt`, remembering a bounded number of results: for the reception path, which asks on every push."""
        clear = self.decrypt(ciphertext)
        if len(self._clear) >= 256:
            self._clear.clear()
        self._clear[ciphertext or ""] = clear
        return clear

    def rotate(self, ciphertext: str) -> str:
        """The same clear text under the first key. Raises `CredentialUnavailable` where no key reads it."""
        return self.encrypt(self.decrypt(ciphertext))

    def is_current(self, ciphertext: str) -> bool:
        """True where the first key alone reads it, so that rotating would change nothing that matters."""
        try:
            return self._first is not None and bool(self._first.decrypt(ciphertext.encode("ascii")))
        except (InvalidToken, UnicodeError, ValueError):
            return False

    def can_read(self, *ciphertexts: str | None) -> bool:
        """True where every one of `ciphertexts` decrypts to something non-empty."""
        try:
            for ciphertext in ciphertexts:
                self.decrypt_kept(ciphertext)
        except CredentialUnavailable:
            return False
        return True


def new_key() -> str:
    """A fresh Fernet key for `credential_keys`."""
    return Fernet.generate_key().decode("ascii")
