"""Logging in through the HTTP handler: the throttle, and that nothing tells an unknown user from a wrong password."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import Request

from frontdesk.api.binding import Call
from frontdesk.api.identity.sessions import create
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.identity.authentication import authenticate
from frontdesk.identity.passwords import DUMMY_HASH, hash_password, verify_password
from frontdesk.identity.throttle import LoginThrottle, address_key
from frontdesk.identity.users import insert_local_user, set_password, update_user
from frontdesk.kernel.clock import MINUTE, ManualClock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.wire.identity.sessions import SessionCreate, SessionCreated
from tests.contract.world import World

PASSWORD = "correct horse battery"
HASH = hash_password(PASSWORD, SystemEntropy())

LogIn = Callable[..., Any]


class CountingPool(ThreadPool):
    """A real pool that notes what ran on it."""

    def __init__(self) -> None:
        super().__init__("login", 4)
        self.ran: list[Any] = []

    async def run(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        self.ran.append(fn)
        return await super().run(fn, *arguments)


@pytest.fixture
async def services(world: World, clock: ManualClock) -> AsyncIterator[Services]:
    """Services for the login handler; `owner` has PASSWORD."""
    await world.database.write(lambda tx: set_password(tx, "owner", HASH))
    threads = CountingPool()
    parts: dict[str, Any] = {"keyring": None, "channels": None}
    yield Services(
        database=world.database, clock=clock, entropy=SystemEntropy(), policy=Policy(), threads=threads, **parts
    )
    threads.close()


@pytest.fixture
def log_in(services: Services) -> LogIn:
    """Ask the handler; the token, or the problem."""

    async def ask(username: str, password: str, address: str = "203.0.113.9") -> SessionCreated | Problem:
        scope = {"type": "http", "client": (address, 1), "headers": []}
        body = SessionCreate(username=username, password=password)
        try:
            return await create(Call(services, None, {}, body, None, Request(scope)))  # type: ignore[arg-type]
        except Problem as problem:
            return problem

    return ask


@pytest.mark.spec("DESK-336")
async def test_ten_failures_close_the_account_and_the_address_for_the_window(log_in: LogIn, clock: ManualClock) -> None:
    """After ten failures in 15 minutes the right password is refused from anywhere, and anybody from that address."""
    for number in range(10):
        problem = await log_in("Owner", f"wrong {number}")
        assert problem.code == "login_failed"
        clock.advance(MINUTE)
    from_elsewhere = await log_in("owner", PASSWORD, "198.51.100.7")
    assert from_elsewhere.code == "rate_limited"
    assert from_elsewhere.retry_after_s == 5 * 60
    assert (await log_in("somebody-else", "wrong", "203.0.113.9")).code == "rate_limited"
    assert (await log_in("somebody-else", "wrong", "198.51.100.7")).code == "login_failed"
    clock.advance(5 * MINUTE - 1)
    assert (await log_in("owner", PASSWORD, "198.51.100.7")).code == "rate_limited"
    clock.advance(1)
    assert isinstance(await log_in("owner", PASSWORD, "198.51.100.7"), SessionCreated)


@pytest.mark.spec("DESK-336")
async def test_an_unknown_user_and_a_wrong_password_answer_alike(
    log_in: LogIn, services: Services, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown user, wrong password, no password, disabled user: one code, after one derivation of the same cost."""
    real = hashlib.scrypt
    costs: list[dict[str, Any]] = []

    def noted(password: bytes, **parameters: Any) -> bytes:
        costs.append({name: value for name, value in parameters.items() if name != "salt"})
        return real(password, **parameters)

    def add(tx: Any) -> None:
        insert_local_user(tx, username="no-password", display_name="x")
        disabled = insert_local_user(tx, username="disabled", display_name="x", password_hash=HASH)
        update_user(tx, world.owner, disabled.id, {"disabled": True})

    await world.database.write(add)
    monkeypatch.setattr(hashlib, "scrypt", noted)
    tries = [("nobody", PASSWORD), ("owner", "wrong"), ("no-password", PASSWORD), ("disabled", PASSWORD)]
    answers = [await log_in(username, password) for username, password in tries]
    assert {(answer.code, str(answer), answer.errors, answer.retry_after_s) for answer in answers} == {
        ("login_failed", "login_failed", (), None)
    }
    assert costs == [{"n": 32768, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024, "dklen": 32}] * 4
    assert services.threads.ran == [verify_password] * 4


async def test_a_login_gives_a_session_and_is_no_failure(log_in: LogIn, world: World) -> None:
    for _ in range(12):
        made = await log_in(" OWNER ", PASSWORD)
        assert isinstance(made, SessionCreated)
    actor = await world.database.read(lambda tx: authenticate(tx, made.token))
    assert (actor.subject, actor.is_platform_admin) == ("local:owner", True)


async def test_parallel_tries_do_not_outrun_the_count(log_in: LogIn) -> None:
    answers = await asyncio.gather(*(log_in("owner", "wrong") for _ in range(25)))
    assert sorted(answer.code for answer in answers) == ["login_failed"] * 10 + ["rate_limited"] * 15


def test_an_address_is_counted_as_a_person_has_it() -> None:
    assert address_key("203.0.113.9") == "203.0.113.9"
    assert address_key("::ffff:203.0.113.9") == "203.0.113.9"
    assert address_key("2001:db8:1:2:3:4:5:6") == address_key("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert address_key("2001:db8:1:3::1") != address_key("2001:db8:1:2::1")
    assert address_key("unknown") == "unknown"


def test_the_throttle_forgets_what_is_over_and_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontdesk.identity.throttle.LOGIN_KEYS_MAX", 50)
    throttle = LoginThrottle(ManualClock())
    for number in range(200):
        throttle.begin(f"user-{number}", f"2001:db8:{number:x}::1")
    assert len(throttle._tries) == 50


def test_a_password_text_carries_its_parameters_and_matches_one_password() -> None:
    scheme, parameters, salt, key = HASH.split("$")
    assert (scheme, parameters) == ("scrypt", "n=32768,r=8,p=1")
    assert hash_password(PASSWORD, SystemEntropy()) != HASH
    assert verify_password(PASSWORD, HASH)
    assert not verify_password(PASSWORD + " ", HASH)
    assert verify_password("ﬁsh and café", hash_password("fish and cafe\u0301", SystemEntropy()))
    assert not verify_password(PASSWORD, None)
    for broken in ("", "x", "$$$", f"scrypt$n=2,r=8,p=1${salt}${key}", f"{scheme}${parameters}${salt}$", "scrypt$none"):
        assert not verify_password(PASSWORD, broken)
    assert not verify_password("x" * 1025, HASH)
    assert DUMMY_HASH.startswith(f"{scheme}${parameters}$")
