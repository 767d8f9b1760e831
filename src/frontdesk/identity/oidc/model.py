"""What an issuer says: the person a token names, and what the issuer publishes of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OidcPerson:
    """A person as a checked token names them.

    `email` is empty unless the issuer verified it: members are added by address, so an unverified one would let
    anybody be taken for somebody else. `nonce` is the code flow's, for whoever began one.
    """

    subject: str  # oidc:<issuer>#<sub>
    display_name: str
    email: str
    nonce: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of the issuer that may verify one algorithm."""

    kid: str | None
    algorithm: str
    key: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Published:
    """What the issuer published when it was last asked. Endpoints of the code flow are None where it names none."""

    keys: tuple[SigningKey, ...]
    authorization_endpoint: str | None
    token_endpoint: str | None


def subject_of(issuer: str, sub: str) -> str:
    """The subject under which a person of this issuer is kept. An issuer has no `#`, so no two pairs are one text."""
    return f"oidc:{issuer}#{sub}"
