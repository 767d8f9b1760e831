"""Event pushes: faults on them, their attempts, and the redelivery schedule on either clock.

An attempt is delivered when its answer is 200 within the answer time; otherwise the next one follows 15 s, 5 min, 1 h
and 6 h after the one before, with the same event id, and then the push has failed. On the manual clock nothing becomes
due by itself.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import httpx2

from frontdesk.simulator import callback, events, shapes
from frontdesk.simulator.config import SimulatorConfig
from frontdesk.simulator.faults import FaultList, PushFault
from frontdesk.simulator.longconn import Hub
from frontdesk.simulator.model import App, Attempt, Push, PushOptions
from frontdesk.simulator.state import World

ATTEMPTS_AT_ONCE = 128


@dataclass(slots=True)
class Draft:
    """An event to push. ``raw`` replaces the whole plaintext; ``event_id`` is new unless given."""

    app: App
    event_type: str
    event: dict[str, Any] = field(default_factory=dict)
    chat_id: str | None = None
    message_id: str | None = None
    raw: str | None = None
    event_id: str | None = None
    options: PushOptions = field(default_factory=PushOptions)
    duplicate: int = 0
    delay_ms: int = 0
    new_event_id: bool = False


class Pusher:
    """Owns the queue of due attempts. ``start`` and ``stop`` belong to the server's lifespan."""

    def __init__(self, world: World, faults: FaultList, hub: Hub, config: SimulatorConfig) -> None:
        self.world = world
        self._faults = faults
        self._hub = hub
        self._config = config
        self._client = callback.new_client(config.answer_timeout_ms)
        self._slots = asyncio.Semaphore(ATTEMPTS_AT_ONCE)
        self._queue: list[tuple[int, int, str]] = []
        self._ticket = 0
        self._wake = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[int, list[Push]] = {}
        self._loop_task: asyncio.Task[None] | None = None

    # -- submitting --------------------------------------------------------------------------------------------------

    def submit(self, draft: Draft) -> list[Push]:
        """Makes the pushes of one event, faults applied: the first is the event, the rest are duplicates."""
        fault = self._faults.take_push(draft.app.app_id, draft.chat_id)
        if fault is not None:
            draft = replace(
                draft,
                options=_faulty(draft.options, fault),
                duplicate=draft.duplicate + fault.duplicate,
                delay_ms=draft.delay_ms + fault.delay_ms,
                new_event_id=draft.new_event_id or fault.new_event_id,
            )
        event_id = draft.event_id or shapes.new_id("")
        pushes = [self._make(draft, event_id, fault)]
        copies = [shapes.new_id("") if draft.new_event_id else event_id for _ in range(draft.duplicate)]
        pushes += [self._make(draft, copy_id, fault) for copy_id in copies]
        if fault is not None and fault.drop:
            for push in pushes:
                push.state = "dropped"
        elif fault is not None and fault.reorder > 1:
            self._hold(fault, pushes)
        else:
            for push in pushes:
                self._schedule(push, push.created_ms + draft.delay_ms)
        for push in pushes:
            self.world.save_push(push)
        return pushes

    def _make(self, draft: Draft, event_id: str, fault: PushFault | None) -> Push:
        now = self.world.clock.now_ms()
        payload = draft.raw
        if payload is None:
            payload = events.wrap(draft.app, event_id, draft.event_type, draft.event, now)
        return Push(
            push_id=shapes.new_id("psh_"),
            app_id=draft.app.app_id,
            event_id=event_id,
            event_type=draft.event_type,
            payload=payload,
            created_ms=now,
            chat_id=draft.chat_id,
            message_id=draft.message_id,
            fault=fault.label if fault else None,
            options=replace(draft.options, new_event_id=draft.new_event_id),
        )

    def _hold(self, fault: PushFault, pushes: list[Push]) -> None:
        held = self._held.setdefault(id(fault), [])
        for push in pushes:
            push.state = "held"
            held.append(push)
        if len(held) >= fault.reorder:
            self._release(self._held.pop(id(fault)))

    def _release(self, held: list[Push]) -> None:
        """Hands held pushes over one by one, the newest first."""
        ordered = list(reversed(held))
        for push in ordered:
            push.state = "waiting"
            push.due_ms = None
            self.world.save_push(push)

        async def one_by_one() -> None:
            for push in ordered:
                await self._attempt(push)

        self._spawn(ordered[0].push_id, one_by_one())

    def release_held(self) -> None:
        """Lets go of what a reorder window still holds; called when the fault list changes."""
        for held in self._held.values():
            self._release(held)
        self._held.clear()

    def push_now(self, push: Push) -> None:
        """Makes a waiting or failed push's next attempt due at once."""
        if push.state in ("waiting", "failed", "dropped") and push.push_id not in self._tasks:
            self._schedule(push, self.world.clock.now_ms())

    # -- time --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins working; pushes that a killed simulator left waiting are picked up again."""
        for push in self.world.pushes.values():
            if push.state in ("held", "waiting"):
                self._schedule(push, push.due_ms if push.due_ms is not None else self.world.clock.now_ms())
        self._loop_task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends all work; waiting pushes stay in the world."""
        tasks = list(self._tasks.values())
        if self._loop_task is not None:
            tasks.append(self._loop_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def forget(self) -> None:
        """Drops every waiting attempt; the world has been reset."""
        self._queue.clear()
        self._held.clear()
        for task in self._tasks.values():
            task.cancel()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._start_due()
            seconds: float | None = None
            if self._queue and not self.world.clock.manual:
                seconds = max(0.0, (self._queue[0][0] - self.world.clock.now_ms()) / 1_000)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _schedule(self, push: Push, due_ms: int) -> None:
        push.state = "waiting"
        push.due_ms = due_ms
        self.world.save_push(push)
        self._ticket += 1
        heapq.heappush(self._queue, (due_ms, self._ticket, push.push_id))
        self._wake.set()

    def _start_due(self) -> None:
        now = self.world.clock.now_ms()
        while self._queue and self._queue[0][0] <= now:
            due_ms, _, push_id = heapq.heappop(self._queue)
            push = self.world.pushes.get(push_id)
            if push is not None and push.state == "waiting" and push.due_ms == due_ms and push_id not in self._tasks:
                self._spawn(push_id, self._attempt(push))

    def _spawn(self, key: str, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def first_attempt(self, push: Push) -> None:
        """Waits for the attempt that is due now; returns at once for a held, delayed or dropped push."""
        self._start_due()
        task = self._tasks.get(push.push_id)
        if task is not None:
            await asyncio.wait([task])

    async def settle(self) -> None:
        """Waits until nothing is due and nothing is being attempted."""
        while True:
            self._start_due()
            if not self._tasks:
                return
            await asyncio.wait(list(self._tasks.values()))
            await asyncio.sleep(0)  # lets the tasks' own done callbacks run

    async def move_clock(self, target_ms: int) -> None:
        """Sets the clock, on a manual one by way of every due time, and waits for the attempts that became due."""
        clock = self.world.clock
        while clock.manual:
            await self.settle()
            if not self._queue or not clock.now_ms() < self._queue[0][0] <= target_ms:
                break
            clock.set(self._queue[0][0])
        clock.set(target_ms)
        self._wake.set()
        await self.settle()

    # -- attempts ----------------------------------------------------------------------------------------------------

    async def _attempt(self, push: Push) -> None:
        async with self._slots:
            app = self.world.apps.get(push.app_id)
            if app is None:
                return
            number = len(push.attempts) + 1
            options = push.options
            if options.attempts and number > options.attempts:
                options = PushOptions(via=options.via, redeliver=options.redeliver, attempts=options.attempts)
            fresh_id = push.options.new_event_id and number > 1
            event_id = shapes.new_id("") if fresh_id else push.event_id
            attempt = Attempt(number, self.world.clock.now_ms(), self._way(app, options), event_id)
            push.attempts.append(attempt)
            push.due_ms = None
            self.world.save_push(push)
            started = time.monotonic()
            await self._hand_over(app, push, options, attempt)
            attempt.duration_ms = round((time.monotonic() - started) * 1_000)
            self._conclude(push, attempt)

    def _way(self, app: App, options: PushOptions) -> Literal["webhook", "ws", "none"]:
        wanted = options.via or app.transport
        if wanted in ("ws", "auto") and self._hub.connected(app.app_id):
            return "ws"
        if wanted != "ws" and app.callback_url:
            return "webhook"
        return "none"

    async def _hand_over(self, app: App, push: Push, options: PushOptions, attempt: Attempt) -> None:
        timeout_ms = self._config.answer_timeout_ms
        try:
            if attempt.via == "none":
                attempt.error = "no callback address and no long connection"
            elif attempt.via == "ws":
                payload = callback.varied_payload(push, options, attempt.event_id).encode()
                attempt.status, attempt.answer = await self._hub.deliver(
                    app.app_id, payload, options.fragments, timeout_ms
                )
            else:
                signed = callback.signed_request(app, push, options, attempt.event_id, self.world.clock.now_ms())
                attempt.timestamp = signed.timestamp
                async with asyncio.timeout(timeout_ms / 1_000):
                    response = await self._client.post(app.callback_url, content=signed.body, headers=signed.headers)
                attempt.status = response.status_code
                attempt.answer = response.text[: callback.ANSWER_CHARS_KEPT]
        except (TimeoutError, httpx2.TimeoutException):
            attempt.error = f"no answer within {timeout_ms / 1_000:g} s"
        except ConnectionError as error:
            attempt.error = str(error)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            attempt.error = f"could not be reached ({type(error).__name__})"

    def _conclude(self, push: Push, attempt: Attempt) -> None:
        if push.push_id not in self.world.pushes:
            return  # the world was reset meanwhile
        done = len(push.attempts) - 1
        if attempt.status == 200:
            push.state = "delivered"
            self.world.save_push(push)
        elif self._config.redeliver and push.options.redeliver and done < len(shapes.REDELIVERY_MS):
            self._schedule(push, attempt.at_ms + shapes.REDELIVERY_MS[done])
        else:
            push.state = "failed"
            self.world.save_push(push)

    # -- the URL check -----------------------------------------------------------------------------------------------

    async def set_callback(self, app: App, url: str) -> dict[str, Any]:
        """Keeps the callback address, whatever the check says, and performs the URL check."""
        app.callback_url = callback.checked_url(url)
        app.callback_ok, app.callback_status, app.callback_reason = await callback.check_url(self._client, app)
        self.world.save_app(app)
        return {"ok": app.callback_ok, "status": app.callback_status, "reason": app.callback_reason}


def _faulty(options: PushOptions, fault: PushFault) -> PushOptions:
    """The options of a push with a fault laid over them."""
    old = fault.old_timestamp
    shift = callback.OLD_TIMESTAMP_MS if old is True else int(old)
    other = "im.chat.updated_v1" if fault.other_type is True else fault.other_type
    merged = asdict(options)
    for name in ("bad_signature", "unsigned", "plaintext", "wrong_tenant", "wrong_app", "wrong_token", "lower_headers"):
        merged[name] = merged[name] or getattr(fault, name)
    merged["old_timestamp_ms"] = merged["old_timestamp_ms"] or shift
    merged["other_type"] = merged["other_type"] or other or None
    merged["fragments"] = max(options.fragments, fault.fragments)
    merged["via"] = options.via or fault.via
    merged["attempts"] = options.attempts or fault.attempts
    return PushOptions(**merged)
