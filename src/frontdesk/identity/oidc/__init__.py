"""Who an OIDC issuer vouches for: its keys, the tokens they sign, and the users those tokens name.

Tables: none of its own; a person is a row of `users` whose subject reads `oidc:<issuer>#<sub>`.

Invariants:
- A token counts only with the configured issuer and audience, in time, under a key the issuer publishes now, signed
  RS256 or ES256 (`tokens`). Whatever cannot be checked is refused; an issuer that cannot be asked is never success.
- How often the issuer is asked is bounded by the clock, not by what strangers send (`issuer`).
- An issuer's word makes nobody a platform administrator and nobody a member (`people`).

`issuer`, `fetch` and `tokens` are imported where an issuer is configured: their libraries are nobody else's cost.
"""

from __future__ import annotations

from frontdesk.identity.oidc.addresses import checked_issuer
from frontdesk.identity.oidc.model import OidcPerson, Published, subject_of
from frontdesk.identity.oidc.people import add_person, find_person, provision_person

__all__ = [
    "OidcPerson",
    "Published",
    "add_person",
    "checked_issuer",
    "find_person",
    "provision_person",
    "subject_of",
]
