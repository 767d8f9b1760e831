"""Secrets of installations: encrypted on the way in, and the one function that says whether they can be used.

Health, the callback, grants and sending all ask `usable` or `credentials_of`, so they can't disagree about a secret
that is missing, empty or unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frontdesk.desk.connections.channel import Channel, Credentials
from frontdesk.desk.connections.model import CREDENTIAL_UNAVAILABLE, Installation, InstallationView
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing

SECRETS: Final = ("app_secret", "encrypt_key", "verification_token")
WEBHOOK: Final = "webhook"


def encrypted(secrets: Mapping[str, str], keyring: KeyRing) -> dict[str, str]:
    """Column values of clear secrets, by ciphertext column. Raises `credential_unavailable` without a usable key."""
    try:
        return {f"{name}_ct": keyring.encrypt(clear) for name, clear in secrets.items()}
    except CredentialUnavailable:
        raise Problem(CREDENTIAL_UNAVAILABLE) from None


def ciphertext(installation: Installation, name: str) -> str | None:
    """The stored ciphertext of one of `SECRETS`."""
    return {
        "app_secret": installation.app_secret_ct,
        "encrypt_key": installation.encrypt_key_ct,
        "verification_token": installation.verification_token_ct,
    }[name]


def secrets_needed(installation: Installation, channel: Channel, *, callback: bool = False) -> tuple[str, ...]:
    """Secrets the inbound mode needs; with `callback`, those its webhook address needs whatever the mode.

    A long-connection installation is ready with its app secret alone, while a push to its webhook must be verified.
    """
    needed = channel.secrets_needed(installation.inbound)
    if not callback:
        return needed
    return tuple(dict.fromkeys((*needed, *channel.secrets_needed(WEBHOOK))))


def credentials_of(
    installation: Installation, channel: Channel | None, keyring: KeyRing, *, needed: tuple[str, ...] | None = None
) -> Credentials:
    """Clear secrets for one request or attempt. Raises `CredentialUnavailable` where a needed one can't be read.

    `needed` defaults to what the inbound mode needs. The app secret is always needed; other secrets come along where
    they can be read. A channel that is not installed here (None) has no usable secrets.
    """
    if channel is None:
        raise CredentialUnavailable
    required = channel.secrets_needed(installation.inbound) if needed is None else needed

    def optional(name: str) -> str | None:
        if name in required:
            return keyring.decrypt_kept(ciphertext(installation, name))
        try:
            return keyring.decrypt_kept(ciphertext(installation, name))
        except CredentialUnavailable:
            return None

    return Credentials(
        app_secret=keyring.decrypt_kept(installation.app_secret_ct),
        encrypt_key=optional("encrypt_key"),
        verification_token=optional("verification_token"),
    )


def usable(installation: Installation, channel: Channel | None, keyring: KeyRing, *, callback: bool = False) -> bool:
    """The one readiness function: every secret that the mode (with `callback`: the address) needs is readable."""
    return not unusable_secrets(installation, channel, keyring, callback=callback)


def unusable_secrets(
    installation: Installation, channel: Channel | None, keyring: KeyRing, *, callback: bool = False
) -> tuple[str, ...]:
    """Names of needed secrets that are missing, empty or unreadable; all of them where the channel is not installed."""
    if channel is None:
        return SECRETS
    needed = dict.fromkeys(("app_secret", *secrets_needed(installation, channel, callback=callback)))
    return tuple(name for name in needed if not keyring.can_read(ciphertext(installation, name)))


def callback_credentials(installation: Installation, channel: Channel, keyring: KeyRing) -> Credentials:
    """What a push to the webhook is verified with. Raises `CredentialUnavailable`: answer 503, build nothing."""
    return credentials_of(installation, channel, keyring, needed=secrets_needed(installation, channel, callback=True))


def shown_status(installation: Installation, is_usable: bool) -> str:
    """The status people see: an active installation without usable secrets reads as `blocked`; nothing is written."""
    return "blocked" if installation.active and not is_usable else installation.status


def shown_error(installation: Installation, is_usable: bool) -> str | None:
    """The newest cause that is not cleared: unreadable secrets stand before what a connect once found."""
    if not is_usable and installation.status != "revoked":
        return CREDENTIAL_UNAVAILABLE
    return installation.last_error_code


def view(installation: Installation, channel: Channel | None, keyring: KeyRing) -> InstallationView:
    """The installation as people see it; holds no secret and no ciphertext."""
    unusable = unusable_secrets(installation, channel, keyring)
    return InstallationView(
        id=installation.id,
        workspace_id=installation.workspace_id,
        channel=installation.channel,
        name=installation.name,
        app_id=installation.app_id,
        tenant_key=installation.tenant_key,
        inbound=installation.inbound,
        status=shown_status(installation, not unusable),
        has_app_secret=bool(installation.app_secret_ct),
        has_encrypt_key=bool(installation.encrypt_key_ct),
        has_verification_token=bool(installation.verification_token_ct),
        unusable_secrets=unusable,
        target_url=installation.target_url,
        command_language=installation.command_language,
        provider_zone=installation.provider_zone,
        late_answers_enabled=installation.late_answers_enabled,
        config_revision=installation.config_revision,
        last_ready_at=installation.last_ready_at,
        last_error_code=shown_error(installation, not unusable),
        last_error_at=installation.last_error_at,
        revoked_at=installation.revoked_at,
        created_at=installation.created_at,
        updated_at=installation.updated_at,
    )
