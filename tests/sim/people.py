"""The people of a simulation: they write, and they withdraw what they allowed, by the product's own verbs."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frontdesk.desk import connections, conversations, grants, inbox, outbox, runs
from frontdesk.desk.connections.channel import Recall
from frontdesk.desk.conversations.sender import Message
from frontdesk.desk.grants import CreateGrant, CreateRaced
from frontdesk.identity.members import add_member, remove_member, update_member
from frontdesk.identity.model import Actor
from frontdesk.identity.projects import update_project
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.storage.tx import Tx
from tests.contract.world import World as Place
from tests.contract.world import first_world
from tests.sim.life import LOST, Life, Violation, through
from tests.sim.plan import Doom
from tests.sim.provider import APP_ID, CHANNEL, SECRETS, TENANT

if TYPE_CHECKING:
    from tests.sim.world import World


@dataclasses.dataclass(eq=False)
class Person:
    """One person in one private chat."""

    actor: Actor
    member_id: str
    sender: str
    chat: str
    conversation: str = ""
    grant: str = ""
    messages: list[str] = dataclasses.field(default_factory=list)


class People:
    """Who writes, and who changes things. `busy` counts acts under way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.persons: list[Person] = []
        self.busy = 0
        self._numbers = itertools.count(1)
        self.place: Any = None

    # ------------------------------------------------------------------------------------------ before the first start

    def move_in(self, place: Any, persons: tuple[Person, ...]) -> None:
        """Begin as those who settled in."""
        self.place = place
        self.persons = [dataclasses.replace(person, messages=[]) for person in persons]
        self._numbers = itertools.count(len(persons) + 1)

    async def settle_in(self) -> None:
        """First start, an installation, and for each person a binding, a conversation and a grant."""
        world = self.world
        setup = world.new_life(0, Doom())
        database = setup.database
        place = self.place = await first_world(database)
        named = {"keyring": setup.process.keyring, "channels": setup.process.channels}
        made = await database.write(
            lambda tx: connections.create_installation(
                tx,
                place.owner,
                workspace_id=place.workspace_id,
                channel=CHANNEL,
                name="Bot",
                app_id=APP_ID,
                tenant_key=TENANT,
                secrets=SECRETS,
                **named,
            )
        )
        world.installation = made.id
        for number in range(world.plan.persons):
            actor, member = await Place.person_and_member(place, f"person{number}", "operator")
            assert member is not None
            person = Person(actor, member.id, f"ou_{number}", f"oc_{number}")
            self.persons.append(person)
            await database.write(lambda tx, who=person: self._bind_now(tx, who, named))
            await database.write(lambda tx, who=person: self._converse(tx, who))
            await database.write(lambda tx, who=person: self._grant(tx, who, setup, None))
        setup.end()
        database.close_now()

    def _bind_now(self, tx: Tx, person: Person, named: dict[str, Any]) -> None:
        text = self._challenge(tx, person, named)
        event = self.world.provider.message(person.sender, person.chat, text, None)
        received = inbox.receive(tx, self.world.installation, event, transport="webhook")
        assert received.outcome == "completed", received

    def _challenge(self, tx: Tx, person: Person, named: dict[str, Any]) -> str:
        issued = connections.create_challenge(
            tx,
            person.actor,
            workspace_id=self.place.workspace_id,
            installation_id=self.world.installation,
            **named,
        )
        return issued.command_text

    def _converse(self, tx: Tx, person: Person) -> str:
        made = conversations.create_conversation(
            tx,
            person.actor,
            self.place.workspace_id,
            title="Quarter",
            context={"project_id": self.place.project_id},
            find_run=runs.find_run_scope,
        )
        person.conversation = made.id
        return made.id

    def _grant(self, tx: Tx, person: Person, life: Life, seconds: int | None) -> str:
        binding = connections.my_binding(
            tx, person.actor, workspace_id=self.place.workspace_id, installation_id=self.world.installation
        )
        if binding is None:
            raise Problem("binding_not_found")
        order = CreateGrant(
            self.place.workspace_id,
            self.place.project_id,
            f"request-{next(self._numbers)}",
            self.world.installation,
            binding.id,
            person.conversation,
            **({} if seconds is None else {"expires_in_seconds": seconds}),
        )
        process = life.process
        view = grants.create(
            tx, person.actor, order, keyring=process.keyring, channels=process.channels, reply_ready=True
        )
        person.grant = view.grant.id
        return view.grant.id

    # ------------------------------------------------------------------------------------------ while it runs

    def go(self) -> None:
        """Begin to live."""
        for person in self.persons:
            self.world.spawn(self._live(person), f"person {person.sender}")
        if self.world.plan.trouble or self.world.plan.steps or self.world.plan.stop:
            self.world.spawn(self._trouble(), "trouble")
        if self.world.plan.leap:
            self.world.spawn(self._leap_apart(), "leap")
            self.world.spawn(self._strike_surely(), "sure death")
        if self.world.plan.sure_revocation is not None:
            self.world.spawn(self._withdraw_surely(self.world.plan.sure_revocation), "sure withdrawal")

    async def _live(self, person: Person) -> None:
        world, plan = self.world, self.world.plan
        await asyncio.sleep(1)
        while not world.quiet:
            await asyncio.sleep(world.dice.uniform(0, 2 * plan.pause_s))
            if world.quiet:
                return
            if (mend := self._mended_by(person)) is not None and world.dice.random() < 0.7:
                await self._act(mend, person)
            elif world.chance(plan.withdraw):
                await self._act(world.dice.choice(WITHDRAWALS), person)
            elif world.chance(plan.console):
                await self._act(People.console, person)
            elif world.chance(plan.recall) and person.messages:
                world.provider.push(Recall(APP_ID, TENANT, world.dice.choice(person.messages[-3:])))
            else:
                self._say(person)

    def _mended_by(self, person: Person) -> Callable[..., Any] | None:
        """What a person does whose grant has become unusable."""
        world = self.world
        reason = world.watch.reason_against(person.grant, world.true.now_us())
        if reason is None:
            return None
        return People.rebind if "binding" in reason else People.close if "closed" in reason else People.renew

    def _say(self, person: Person) -> None:
        """A question: in answer to one of our messages, to nothing, rarely to something that is not there."""
        world = self.world
        ours = [shown.message_id for shown in world.provider.shown if shown.chat_id == person.chat]
        parent = world.dice.choice(ours[-3:]) if ours and world.dice.random() < 0.6 else None
        if world.chance(0.02) and world.plan.trouble:
            parent = "om_forged"
        event = world.provider.message(person.sender, person.chat, f"question {next(self._numbers)}", parent)
        person.messages.append(event.message_id)
        world.provider.push(event)

    def tempt(self, grant_id: str | None) -> None:
        """Work under a grant just began: sometimes that is the moment at which its person takes it back."""
        world = self.world
        for person in self.persons:
            if person.grant == grant_id and world.chance(world.plan.ambush):
                world.spawn(self._ambush(person), f"ambush {person.sender}")

    def rush(self) -> None:
        """Work that takes a while just began: sometimes a clock leaps past its lease."""
        world = self.world
        if world.chance(world.plan.steps * 0.3):
            world.later(world.lag() * world.dice.choice((1, 4, 20)), self._leap, world.dice.choice((40, 600)) * SECOND)

    def _leap(self, step: int) -> None:
        clock = self.world.dice.choice(self.world.clocks)
        clock.offset_us += step if clock.offset_us < 10 * MINUTE else -20 * MINUTE
        self.world.note(f"a clock leaps to {clock.offset_us}")

    async def _leap_apart(self) -> None:
        """Once at a moment of its own, two processes' clocks come to stand ten minutes further apart, or closer."""
        world = self.world
        await asyncio.sleep(world.dice.uniform(1, world.plan.duration_s - 1))
        if world.quiet:
            return
        clock = world.dice.choice(world.clocks)
        clock.offset_us += 10 * MINUTE if clock.offset_us <= 0 else -10 * MINUTE
        world.note(f"a clock leaps ten minutes to {clock.offset_us}")
        world.happened["leap"] += 1

    async def _strike_surely(self) -> None:
        """Late in the day a process dies, where none has died yet."""
        world = self.world
        await asyncio.sleep(world.plan.duration_s * 0.85)
        while not world.quiet and not world.deaths:
            if (life := world.any_life()) is not None:
                world.strike(life)
            await asyncio.sleep(0.5)

    async def _withdraw_surely(self, name: str) -> None:
        """Once at a moment of its own, somebody takes this back, however often it has to be tried."""
        world = self.world
        await asyncio.sleep(world.dice.uniform(1, world.plan.duration_s * 0.8))
        person = world.dice.choice(self.persons)
        for _ in range(20):
            if world.quiet or await self._act(getattr(People, name), person) == "done":
                break
            await asyncio.sleep(1)
        await asyncio.sleep(world.dice.uniform(0, 20))
        for verb in MENDS[name]:
            await self._act(verb, person)

    async def _ambush(self, person: Person) -> None:
        world = self.world
        await asyncio.sleep(world.lag() * world.dice.choice((1, 4, 20)))
        off, on = world.dice.choice(AMBUSHES)
        if await self._act(off, person) == "done":
            world.happened[f"ambush {off.__name__}"] += 1
        await asyncio.sleep(world.dice.uniform(0, 20))
        for verb in on:
            await self._act(verb, person)

    async def _act(self, verb: Callable[..., Any], person: Person) -> str:
        """One act through one process, and how it ended. What it is refused with is part of life; a defect is not."""
        world = self.world
        life = world.any_life()
        if life is None:
            return "nobody serves"
        self.busy += 1
        outcome = await through(life, verb(self, life, person), verb.__name__)
        self.busy -= 1
        told = type(outcome).__name__ if isinstance(outcome, BaseException) else "done"
        if outcome is LOST:
            told = "lost"
        if isinstance(outcome, Problem):
            told = outcome.code
        world.note(f"{person.sender} {verb.__name__} by {life.name}: {told}")
        if isinstance(outcome, BaseException) and not isinstance(outcome, Problem | DatabaseBusy | CreateRaced):
            raise world.violation(Violation(f"{verb.__name__} ended with {outcome!r}")) from outcome
        if told == "done":
            world.happened[f"act {verb.__name__}"] += 1
        return told

    async def revoke(self, life: Life, person: Person) -> None:
        process, place = life.process, self.place
        await life.database.write(
            lambda tx: grants.revoke(
                tx,
                person.actor,
                place.workspace_id,
                place.project_id,
                person.grant,
                keyring=process.keyring,
                channels=process.channels,
            )
        )

    async def authorise(self, life: Life, person: Person) -> None:
        seconds = self.world.dice.choice((None, None, 300))
        await life.database.write(lambda tx: self._grant(tx, person, life, seconds))

    async def renew(self, life: Life, person: Person) -> None:
        await self.revoke(life, person)
        await self.authorise(life, person)

    async def close(self, life: Life, person: Person) -> None:
        await life.database.write(
            lambda tx: conversations.close_conversation(tx, person.actor, self.place.workspace_id, person.conversation)
        )
        if self.world.dice.random() < 0.7:
            await life.database.write(lambda tx: self._converse(tx, person))
            await self.authorise(life, person)

    async def unbind(self, life: Life, person: Person) -> None:
        place = self.place

        def unbind(tx: Tx) -> None:
            bound = connections.my_binding(
                tx, person.actor, workspace_id=place.workspace_id, installation_id=self.world.installation
            )
            if bound is not None:
                connections.unbind(tx, person.actor, workspace_id=place.workspace_id, binding_id=bound.id)

        await life.database.write(unbind)

    async def rebind(self, life: Life, person: Person) -> None:
        named = {"keyring": life.process.keyring, "channels": life.process.channels}
        text = await life.database.write(lambda tx: self._challenge(tx, person, named))
        self.world.provider.push(self.world.provider.message(person.sender, person.chat, text, None))
        await asyncio.sleep(5)
        await self.revoke(life, person)
        await self.authorise(life, person)

    async def console(self, life: Life, person: Person) -> None:
        message = Message(f"console-{next(self._numbers)}", f"typed {next(self._numbers)}", "console")
        await life.process.sender.send(person.actor, self.place.workspace_id, person.conversation, message)

    async def settle(self, life: Life, person: Person) -> None:
        """The owner decides an unknown delivery."""
        unknown = self.world.mirror.rows("deliveries", status="indeterminate")
        if not unknown:
            return
        delivery_id = self.world.dice.choice(unknown)[0]
        outcome = self.world.dice.choice(("settled_sent", "settled_not_sent"))
        await life.database.write(
            lambda tx: outbox.settle(
                tx,
                self.place.owner,
                self.place.workspace_id,
                delivery_id,
                outcome=outcome,
                reason="looked",
                read_back=None,
            )
        )

    # ------------------------------------------------------------------------------------------ trouble

    async def _trouble(self) -> None:
        """Whoever runs the place: switches things off and on, steps clocks, stops processes."""
        world, plan = self.world, self.world.plan
        while not world.quiet:
            await asyncio.sleep(world.dice.uniform(1, 40))
            if world.chance(plan.steps):
                clock = world.dice.choice(world.clocks)
                step = world.dice.choice((-1, 1)) * world.dice.choice((SECOND, 40 * SECOND, 10 * MINUTE))
                clock.offset_us += step
                world.note(f"a clock steps by {step}")
            if world.chance(plan.stop) and (life := world.any_life()) is not None:
                world.spawn(world.stop(life), "stop")
            if world.chance(plan.trouble):
                person = world.dice.choice(self.persons)
                off, on = world.dice.choice(TROUBLES)
                await self._act(off, person)
                await asyncio.sleep(world.dice.uniform(0, 20))
                for _ in range(3):
                    await self._act(on, person)

    async def _enable(self, life: Life, enabled: bool) -> None:
        process = life.process
        await life.database.write(
            lambda tx: connections.update_installation(
                tx,
                self.place.owner,
                workspace_id=self.place.workspace_id,
                installation_id=self.world.installation,
                changes={"enabled": enabled},
                keyring=process.keyring,
                channels=process.channels,
            )
        )

    async def switch_off(self, life: Life, person: Person) -> None:
        await self._enable(life, False)

    async def switch_on(self, life: Life, person: Person) -> None:
        await self._enable(life, True)

    async def _role(self, life: Life, person: Person, role: str) -> None:
        place = self.place
        await life.database.write(
            lambda tx: update_member(tx, place.owner, place.workspace_id, person.member_id, role=role)
        )

    async def demote(self, life: Life, person: Person) -> None:
        await self._role(life, person, "viewer")

    async def promote(self, life: Life, person: Person) -> None:
        await self._role(life, person, "operator")

    async def remove(self, life: Life, person: Person) -> None:
        place = self.place
        await life.database.write(lambda tx: remove_member(tx, place.owner, place.workspace_id, person.member_id))

    async def admit(self, life: Life, person: Person) -> None:
        def admit(tx: Tx) -> str:
            place = self.place
            member = add_member(tx, place.owner, place.workspace_id, role="operator", user_id=person.actor.user_id)
            return member.id

        person.member_id = await life.database.write(admit)

    async def disable(self, life: Life, person: Person) -> None:
        await life.database.write(
            lambda tx: update_user(tx, self.place.owner, person.actor.user_id, {"disabled": True})
        )

    async def enable(self, life: Life, person: Person) -> None:
        await life.database.write(
            lambda tx: update_user(tx, self.place.owner, person.actor.user_id, {"disabled": False})
        )

    async def _archive(self, life: Life, archived: bool) -> None:
        place = self.place
        await life.database.write(
            lambda tx: update_project(tx, place.owner, place.workspace_id, place.project_id, {"archived": archived})
        )

    async def archive(self, life: Life, person: Person) -> None:
        await self._archive(life, True)

    async def restore(self, life: Life, person: Person) -> None:
        await self._archive(life, False)


WITHDRAWALS: tuple[Callable[..., Any], ...] = (
    People.revoke,
    People.authorise,
    People.authorise,
    People.renew,
    People.renew,
    People.close,
    People.unbind,
    People.rebind,
    People.settle,
)
TROUBLES: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (People.switch_off, People.switch_on),
    (People.demote, People.promote),
    (People.remove, People.admit),
    (People.disable, People.enable),
    (People.archive, People.restore),
)
AMBUSHES: tuple[tuple[Callable[..., Any], tuple[Callable[..., Any], ...]], ...] = (
    (People.revoke, (People.authorise,)),
    (People.close, (People.renew,)),
    (People.unbind, (People.rebind,)),
    (People.console, (People.renew,)),
    *((off, (on, on, on)) for off, on in TROUBLES),
)
MENDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "revoke": (People.authorise,),
    "unbind": (People.rebind,),
    "close": (),
    **{off.__name__: (on, on, on) for off, on in TROUBLES},
}
