"""People, workspaces and races for contract tests: made by the product's own verbs, in real transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from frontdesk.identity.authentication import authenticate
from frontdesk.identity.bootstrap import first_start
from frontdesk.identity.members import add_member
from frontdesk.identity.model import Actor, Login, Member, Project
from frontdesk.identity.projects import create_project
from frontdesk.identity.sessions import create_session
from frontdesk.identity.users import insert_local_user
from frontdesk.kernel.errors import Problem
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

T = TypeVar("T")
UNUSABLE_HASH = "scrypt$none"
RACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class World:
    """A first start and whoever the test adds. `owner` is platform administrator and admin of `home`."""

    database: Database
    owner: Actor
    workspace_id: str
    project_id: str

    async def person(self, name: str, role: str | None = None, *, platform_admin: bool = False) -> Actor:
        """A new user, logged in; with a role, a member of `home`."""
        return (await self.person_and_member(name, role, platform_admin=platform_admin))[0]

    async def person_and_member(
        self, name: str, role: str | None, *, platform_admin: bool = False
    ) -> tuple[Actor, Member | None]:
        """As `person`, with the membership."""

        def make(tx: Tx) -> tuple[Actor, Member | None]:
            user = insert_local_user(
                tx,
                username=name,
                display_name=name.title(),
                email=f"{name}@example.org",
                password_hash=UNUSABLE_HASH,
                is_platform_admin=platform_admin,
            )
            member = None
            if role is not None:
                member = add_member(tx, self.owner, self.workspace_id, role=role, user_id=user.id)
            return logged_in(tx, user.id), member

        return await self.database.write(make)

    async def project(self, slug: str, access: str = "members") -> Project:
        """A project of `home`."""
        return await self.database.write(
            lambda tx: create_project(tx, self.owner, self.workspace_id, name=slug, slug=slug, access=access)
        )


async def first_world(database: Database) -> World:
    """The world after `frontdesk init`."""

    def make(tx: Tx) -> World:
        made = first_start(tx, UNUSABLE_HASH)
        return World(database, logged_in(tx, made.user_id), made.workspace_id, made.project_id)

    return await database.write(make)


def logged_in(tx: Tx, user_id: str, *, auth_method: str = "local", password_hash: str | None = UNUSABLE_HASH) -> Actor:
    """The actor of a new session of this user."""
    made = create_session(tx, Login(user_id, password_hash, enabled=True), auth_method=auth_method)
    return authenticate(tx, made.token)


async def refusal(work: Any) -> str:
    """The code of the problem that the awaitable ends with; a failure where it ends well."""
    try:
        result = await work
    except Problem as problem:
        return problem.code
    raise AssertionError(f"expected a problem, got {result!r}")


async def race(sessions: Sequence[Database], *works: Callable[[Tx], T]) -> list[T | BaseException]:
    """Run each work in a write of its own session, all at once.

    On PostgreSQL the transactions meet at a barrier once all have begun. SQLite's writers are serial, a second one
    cannot begin: there they are only started together.
    """
    assert len(sessions) == len(works)
    barrier = threading.Barrier(len(works))
    meet = sessions[0].engine_name == "postgresql"
    met: set[int] = set()

    def meeting(index: int, work: Callable[[Tx], T]) -> Callable[[Tx], T]:
        def run(tx: Tx) -> T:
            if meet and index not in met:  # a retried transaction does not wait again
                met.add(index)
                barrier.wait(RACE_SECONDS)
            return work(tx)

        return run

    started = [
        session.write(meeting(index, work)) for index, (session, work) in enumerate(zip(sessions, works, strict=True))
    ]
    return await asyncio.gather(*started, return_exceptions=True)


def codes(outcomes: Sequence[Any]) -> list[str]:
    """`ok` or the problem's code for each outcome of a race, sorted; any other exception is raised."""
    found: list[str] = []
    for outcome in outcomes:
        if isinstance(outcome, Problem):
            found.append(outcome.code)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found.append("ok")
    return sorted(found)
