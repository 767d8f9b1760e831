"""The ordinary send of console and API: a turn under its own lease, answered in this process.

The caller waits a bounded time; the turn goes on without them. A process that dies leaves its running turns to
`turns.interrupt_abandoned`, which finds them once their lease has lapsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from frontdesk.desk.conversations import answering, turns
from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations.model import Conversation, ConversationBusy, Turn, TurnOutcome
from frontdesk.desk.conversations.proposals import store_proposal
from frontdesk.desk.conversations.request import Briefer, build_request, runner_name_of
from frontdesk.desk.conversations.service import get_conversation
from frontdesk.identity import read_standing, record_event
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.codes import RUNNER_CODES
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.kernel.machine import Lease
from frontdesk.kernel.secret_shapes import find_secret_shape
from frontdesk.storage.database import Database
from frontdesk.storage.patience import write_patiently
from frontdesk.storage.tx import Tx

T = TypeVar("T")

LOCALE_DEFAULT: Final = "en"

log = structlog.get_logger("frontdesk.conversations")


@dataclass(frozen=True, slots=True)
class Message:
    """What a person sends."""

    request_id: str
    content: str = field(repr=False)
    surface: str


@dataclass(frozen=True, slots=True)
class Sent:
    """The turn of a send. `done` is false where it still runs."""

    turn: Turn
    done: bool


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn of this process that runs, with all it takes to answer and to end it."""

    actor: Actor
    conversation: Conversation
    turn: Turn
    lease: Lease
    runner_name: str
    request: port.TurnRequest


@dataclass(slots=True)
class _Hold:
    """What the heartbeat tells the work."""

    cancel: asyncio.Event
    lost: bool = False


class ConversationSender:
    """Sends, and answers what it sent. One instance per process; `owner` is unique to the process's start."""

    def __init__(
        self,
        database: Database,
        runners: port.Runners,
        briefer: Briefer,
        *,
        owner: str,
        lease_us: int,
        default_runner: str,
        secrets: tuple[str, ...] = (),
        idle_us: int = limits.RUNNER_IDLE_US,
        hard_us: int = limits.RUNNER_HARD_US,
    ) -> None:
        self._database = database
        self._runners = runners
        self._briefer = briefer
        self._owner = owner
        self._lease_us = lease_us
        self._default_runner = default_runner
        self._secrets = secrets
        self._idle_us = idle_us
        self._hard_us = hard_us
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancels: set[asyncio.Event] = set()
        self._accepting = True

    def start(self) -> None:
        """Take sends (again). Idempotent."""
        self._accepting = True

    async def stop(self, grace_s: float) -> None:
        """Take no more sends; what runs may end within the grace, then it is cancelled (`runner_cancelled`)."""
        self._accepting = False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        # Looked at anew each time: what just began adds the task that answers it.
        while self._tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)
        while self._tasks:
            for cancel in list(self._cancels):
                cancel.set()
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    async def send(
        self,
        actor: Actor,
        workspace_id: str,
        conversation_id: str,
        message: Message,
        *,
        wait_s: float = limits.SEND_WAIT_US / SECOND,
    ) -> Sent:
        """Put a message before the actor's own conversation and wait for the answer; a known id runs nothing again.

        Raises `turn_open` (another turn runs, or this id's own), `turn_failed`, `idempotency_key_reused`,
        `conversation_closed`, `input_too_long`, `credential_text_refused`, the runner's code where the turn failed
        while waiting, and the refusals of rights and gate.
        """
        if not self._accepting:
            raise Problem("unavailable")
        # In a task of its own: a caller that goes away between commit and start must not leave a turn nobody answers.
        starting = self._spawn(self._start(actor, workspace_id, conversation_id, message), "begin")
        turn, work = await asyncio.shield(starting)
        if work is None:
            return _replayed(turn, message.content)
        await asyncio.wait({work}, timeout=wait_s)
        now = await self._database.read(lambda tx: turns.find_turn(tx, turn.id))
        return _ended(turn if now is None else now)

    async def _start(
        self, actor: Actor, workspace_id: str, conversation_id: str, message: Message
    ) -> tuple[Turn, asyncio.Task[None] | None]:
        begun = await self._database.write(lambda tx: self._begin(tx, actor, workspace_id, conversation_id, message))
        if isinstance(begun, Turn):
            return begun, None
        return begun.turn, self._spawn(self._work(begun), begun.turn.id)

    def _begin(self, tx: Tx, actor: Actor, workspace_id: str, conversation_id: str, message: Message) -> _Begun | Turn:
        conversation = get_conversation(tx, actor, workspace_id, conversation_id, Right.AGENTS_RUN, lock=True)
        known = turns.find_turn_by_request(tx, conversation.id, message.request_id)
        if known is not None:
            return known
        if not conversation.active:
            raise Problem("conversation_closed")
        if find_secret_shape(message.content) is not None:
            raise Problem("credential_text_refused")
        lease = Lease(self._owner, 1, tx.now + self._lease_us)
        try:
            begun = turns.begin_turn(
                tx, conversation, message.request_id, message.content, surface=message.surface, lease=lease
            )
        except ConversationBusy:
            raise Problem("turn_open") from None
        if not begun.fresh:
            return begun.turn
        request = build_request(
            tx,
            conversation,
            begun.turn,
            briefing=self._briefer(tx, conversation, begun.turn),
            locale=read_standing(tx, actor.user_id, workspace_id, share=False).locale or LOCALE_DEFAULT,
            secrets=self._secrets,
            idle_us=self._idle_us,
            hard_us=self._hard_us,
        )
        runner_name = runner_name_of(tx, conversation, self._default_runner)
        return _Begun(actor, conversation, begun.turn, lease, runner_name, request)

    def _spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=f"send {name}")
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it is told; a caller that went away is not, and the loop stays silent

    async def _work(self, begun: _Begun) -> None:
        try:
            result = await self._answer(begun)
            if result is not None:
                answered = result
                await write_patiently(self._database, lambda tx: _finish(tx, begun, answered))
        except DatabaseBusy:
            log.warning("conversations.database_busy", operation="desk.conversations.send", id=begun.turn.id)
        except Exception as error:  # noqa: BLE001 - the top of one turn: its lease lapses, it ends `interrupted`
            _log_defect("conversations.defect", begun.turn.id, error)

    async def _answer(self, begun: _Begun) -> port.Result | None:
        """None: the lease was lost meanwhile, and whatever the runner gave is dropped."""
        hold = _Hold(asyncio.Event())
        self._cancels.add(hold.cancel)
        heart = asyncio.get_running_loop().create_task(self._beat(begun, hold), name=f"lease {begun.turn.id}")
        try:
            result = await answering.answer(
                self._runners, begun.runner_name, begun.request, hold.cancel, secrets=self._secrets
            )
        finally:
            # Ended before the final write, so that no renewal can follow it.
            heart.cancel()
            await asyncio.wait({heart})
            self._cancels.discard(hold.cancel)
        return None if hold.lost else result

    async def _beat(self, begun: _Begun, hold: _Hold) -> None:
        pause_s = self._lease_us / 3 / SECOND
        while True:
            await asyncio.sleep(pause_s)
            try:
                ours, stopped = await self._database.write(lambda tx: _renewed(tx, begun, self._lease_us))
            except DatabaseBusy:
                continue  # the fence decides at the end, not a renewal that could not be tried
            except Exception as error:  # noqa: BLE001 - as above
                _log_defect("conversations.renewal_failed", begun.turn.id, error)
                continue
            if not ours:
                hold.lost = True
                hold.cancel.set()
                return
            if stopped:
                hold.cancel.set()


def _log_defect(event: str, turn_id: str, error: Exception) -> None:
    # The type alone: an exception's text may hold what a person or a model wrote.
    log.error(event, operation="desk.conversations.send", id=turn_id, code=type(error).__name__)


def _replayed(turn: Turn, content: str) -> Sent:
    if turn.user_content != content:
        raise Problem("idempotency_key_reused")
    if turn.running:
        raise Problem("turn_open")
    if not turn.answered:
        raise Problem("turn_failed")
    return Sent(turn, done=True)


def _ended(turn: Turn) -> Sent:
    if turn.status == "failed":
        raise Problem(turn.error_code if turn.error_code in RUNNER_CODES else "turn_failed")
    return Sent(turn, done=not turn.running)


def _renewed(tx: Tx, begun: _Begun, lease_us: int) -> tuple[bool, bool]:
    ours = turns.renew_turn(tx, begun.turn.id, begun.lease, tx.now + lease_us)
    turn = turns.find_turn(tx, begun.turn.id) if ours else None
    return ours, turn is not None and turn.cancel_requested_at is not None


def _finish(tx: Tx, begun: _Begun, result: port.Result) -> None:
    """The one commit that ends the turn, under its lease; a lost lease writes nothing."""
    turn = turns.find_turn(tx, begun.turn.id)
    done: Turn | None = None
    if isinstance(result, port.Failed):
        done = _fail(tx, begun, result.code, result.detail)
    elif turn is not None and turn.cancel_requested_at is not None:
        done = _fail(tx, begun, port.CANCELLED)
    else:
        done = _complete(tx, begun, result) or _fail(tx, begun, "conversation_revision_changed")
    if done is not None:
        _record(tx, begun, done)


def _fail(tx: Tx, begun: _Begun, code: str, detail: str | None = None) -> Turn | None:
    runner = turns.runner_column(begun.runner_name)
    return turns.fail_turn(tx, begun.turn.id, code, detail, lease=begun.lease, runner=runner)


def _complete(tx: Tx, begun: _Begun, result: port.Answer | port.Proposal) -> Turn | None:
    outcome = turns.outcome_of(result, begun.runner_name)
    if isinstance(result, port.Proposal):
        draft = result.draft
        try:
            return _commit(tx, begun, outcome, lambda inner: _opened(inner, begun, draft))
        except Problem:  # the person lost their rights meanwhile: the exchange is kept, nobody may act on it
            outcome = TurnOutcome("completed", outcome.response, outcome.tool_trace, outcome.runner)
    return _commit(tx, begun, outcome, None)


def _opened(tx: Tx, begun: _Begun, draft: port.ProposalDraft) -> bool:
    return store_proposal(tx, begun.turn.id, draft, begun.actor) is not None


def _commit(tx: Tx, begun: _Begun, outcome: TurnOutcome, also: Callable[[Tx], bool] | None) -> Turn | None:
    return turns.complete_turn(
        tx,
        begun.turn.id,
        expected_revision=begun.conversation.revision,
        outcome=outcome,
        context_hash=begun.conversation.context_hash,
        lease=begun.lease,
        also=also,
    )


def _record(tx: Tx, begun: _Begun, turn: Turn) -> None:
    record_event(
        tx,
        workspace_id=begun.conversation.workspace_id,
        kind=f"turn.{turn.status}",
        object_kind="turn",
        object_id=turn.id,
        project_id=begun.conversation.project_id,
        owner_user_id=begun.conversation.owner_user_id,
        actor_id=begun.actor.user_id,
        code=turn.error_code,
    )
