"""The role table, its lookup on every request, what a token narrows, and the administrators gate."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from frontdesk.identity.members import remove_member
from frontdesk.identity.model import ACCESS_VALUES, ROLES, Actor, Right, TokenScope
from frontdesk.identity.projects import list_projects, set_access_row
from frontdesk.identity.rights import (
    hidden_project_ids,
    membership,
    passes_gate,
    require,
    require_gate,
    require_platform_admin,
    require_project,
)
from frontdesk.identity.users import update_user
from frontdesk.identity.workspaces import create_workspace, update_workspace
from frontdesk.kernel.errors import Problem
from tests.contract.world import World, refusal

# Written out from the specification, not derived from the code: one letter for admin, maintainer, operator, viewer.
TABLE = {
    "workspace.read": "amov",
    "inbox.work": "amo",
    "agents.run": "amo",
    "actions.approve": "amo",
    "artifacts.export": "amo",
    "configuration.manage": "am",
    "members.manage": "am",
    "agents.manage": "am",
    "admins.manage": "a",
}


def token(world: World, **narrowed: object) -> TokenScope:
    scope = TokenScope("tok_1", "access", None, None, None, platform_admin=False)
    return dataclasses.replace(scope, **narrowed)  # type: ignore[arg-type]


def with_token(actor: Actor, scope: TokenScope) -> Actor:
    return dataclasses.replace(actor, token=scope, session_id=None, is_platform_admin=scope.platform_admin)


@pytest.mark.spec("DESK-259")
@pytest.mark.parametrize("role", ROLES)
async def test_each_cell_of_the_role_table(world: World, role: str) -> None:
    """A role gives exactly the rights that the table marks for it, one refusal for each other cell."""
    assert set(TABLE) == {right.value for right in Right}
    actor = await world.person("someone", role)
    for right in Right:
        asked = world.database.read(lambda tx, right=right: require(tx, actor, world.workspace_id, right))
        if role[0] in TABLE[right.value]:
            assert (await asked).role == role
        else:
            assert await refusal(asked) == "permission_required"


@pytest.mark.spec("DESK-259")
async def test_a_lookup_sees_what_changed_a_moment_ago(world: World) -> None:
    """Disabling the user, switching the workspace off and removing the member each refuse the very next lookup."""
    database, home = world.database, world.workspace_id
    actor, member = await world.person_and_member("someone", "viewer")
    assert member is not None

    async def ask() -> str:
        try:
            await database.read(lambda tx: require(tx, actor, home, Right.READ))
        except Problem as problem:
            return problem.code
        return "ok"

    assert await ask() == "ok"
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": True}))
    assert await ask() == "membership_required"
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": False}))
    assert await ask() == "ok"
    await database.write(lambda tx: update_workspace(tx, world.owner, home, {"active": False}))
    assert await ask() == "membership_required"
    await database.write(lambda tx: update_workspace(tx, world.owner, home, {"active": True}))
    assert await ask() == "ok"
    await database.write(lambda tx: remove_member(tx, world.owner, home, member.id))
    assert await ask() == "membership_required"


async def test_an_absent_workspace_and_a_foreign_one_look_alike(world: World) -> None:
    other = await world.database.write(lambda tx: create_workspace(tx, world.owner, name="Other", slug="other"))
    actor = await world.person("someone", "admin")
    for workspace_id in (other.id, "wsp_00000000000000000000000000000000", ""):
        asked = world.database.read(lambda tx, wanted=workspace_id: membership(tx, actor, wanted))
        assert await refusal(asked) == "membership_required"


async def test_a_token_gives_what_it_and_its_owner_both_have(world: World) -> None:
    database, home = world.database, world.workspace_id
    operator = await world.person("someone", "operator")

    async def rights(**narrowed: object) -> set[str]:
        actor = with_token(operator, token(world, **narrowed))
        found = await database.read(lambda tx: membership(tx, actor, home))
        return {right.value for right in found.rights}

    assert await rights() == {right for right, roles in TABLE.items() if "o" in roles}
    assert await rights(rights=frozenset({"inbox.work", "admins.manage"})) == {"inbox.work"}
    assert await rights(rights=frozenset()) == set()
    assert await rights(workspace_id=home, rights=frozenset({"workspace.read"})) == {"workspace.read"}
    assert await rights(kind="host", workspace_id=home, rights=frozenset({"agents.run"})) == {"agents.run"}
    # A results token's rights belong to results; it has none of its owner's, named or not.
    assert await rights(kind="results", workspace_id=home) == set()
    assert await rights(kind="results", workspace_id=home, rights=frozenset({"workspace.read"})) == set()
    elsewhere = with_token(operator, token(world, workspace_id="wsp_00000000000000000000000000000000"))
    assert await refusal(database.read(lambda tx: membership(tx, elsewhere, home))) == "membership_required"


async def test_the_gate_lets_platform_administrators_by_local_or_bootstrap_login_through(world: World) -> None:
    admin_token = token(world, platform_admin=True)
    owner = world.owner
    through = {
        "local": owner,
        "bootstrap": dataclasses.replace(owner, auth_method="bootstrap"),
        "access token with the power": with_token(owner, admin_token),
    }
    refused = {
        "oidc": dataclasses.replace(owner, auth_method="oidc"),
        "connector": dataclasses.replace(owner, auth_method="connector"),
        "local without the power": dataclasses.replace(owner, is_platform_admin=False),
        "access token without the power": with_token(owner, token(world)),
        "oidc token": dataclasses.replace(with_token(owner, admin_token), auth_method="oidc"),
        "host token": with_token(owner, dataclasses.replace(admin_token, kind="host")),
        "results token": with_token(owner, dataclasses.replace(admin_token, kind="results")),
    }
    assert [name for name, actor in through.items() if not passes_gate(actor)] == []
    assert [name for name, actor in refused.items() if passes_gate(actor)] == []
    for actor in refused.values():
        with pytest.raises(Problem, match="platform_admin_required"):
            require_platform_admin(actor)
    secret = await world.project("secret", access="administrators")
    for actor in refused.values():
        asked = world.database.read(lambda tx, actor=actor: require_gate(tx, actor, secret.id))
        assert await refusal(asked) == "administrators_only"
    for actor in through.values():
        await world.database.read(lambda tx, actor=actor: require_gate(tx, actor, secret))


async def test_the_gate_asks_for_membership_first_and_for_the_project_next(world: World) -> None:
    home = world.workspace_id
    secret = await world.project("secret", access="administrators")
    admin = await world.person("admin", "admin")
    stranger = await world.person("stranger", platform_admin=True)

    async def ask(actor: Actor, project_id: str, right: Right = Right.READ) -> str:
        return await refusal(world.database.read(lambda tx: require_project(tx, actor, home, project_id, right)))

    assert await ask(stranger, secret.id) == "membership_required"
    assert await ask(admin, secret.id) == "administrators_only"
    assert await ask(admin, "prj_00000000000000000000000000000000") == "project_not_found"
    found = await world.database.read(lambda tx: require_project(tx, world.owner, home, secret.id, Right.CONFIGURE))
    assert found[1] == secret
    await world.database.write(lambda tx: set_access_row(tx, secret.id, "members"))
    found = await world.database.read(lambda tx: require_project(tx, admin, home, secret.id, Right.READ))
    assert found[1].access == "members"


async def test_lists_leave_out_what_the_actor_may_not_see(world: World) -> None:
    home = world.workspace_id
    secret = await world.project("secret", access="administrators")
    plain = await world.project("plain")
    admin = await world.person("admin", "admin")
    narrow = with_token(admin, token(world, project_ids=frozenset({plain.id})))
    narrow_owner = with_token(world.owner, token(world, project_ids=frozenset({secret.id}), platform_admin=True))

    async def seen(actor: Actor) -> tuple[frozenset[str], set[str]]:
        def read(tx: object) -> tuple[frozenset[str], set[str]]:
            hidden = hidden_project_ids(tx, actor, home)  # type: ignore[arg-type]
            projects, _ = list_projects(tx, actor, home, limit=10)  # type: ignore[arg-type]
            return hidden, {project.slug for project in projects}

        return await world.database.read(read)

    assert await seen(world.owner) == (frozenset(), {"first", "plain", "secret"})
    assert await seen(admin) == (frozenset({secret.id}), {"first", "plain"})
    assert await seen(narrow) == (frozenset({secret.id, world.project_id}), {"plain"})
    assert await seen(narrow_owner) == (frozenset({plain.id, world.project_id}), {"secret"})
    asked = world.database.read(lambda tx: require_project(tx, narrow, home, world.project_id, Right.READ))
    assert await refusal(asked) == "permission_required"


async def test_every_access_has_a_check_in_the_database(world: World) -> None:
    assert ACCESS_VALUES == ("members", "administrators")
    with pytest.raises(sa.exc.IntegrityError):
        await world.database.write(lambda tx: tx.execute(sa.text("UPDATE projects SET access = 'everybody'")))
