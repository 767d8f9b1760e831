"""The port that runners implement: one frozen request in, one value out. The desk declares it, `app/` hands runners in.

A runner decides nothing about rights: what it returns is text or a proposal, and only a person on the platform turns a
proposal into an act. Nothing here opens anything; a request is data and means the same in any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from frontdesk.kernel import limits
from frontdesk.kernel.codes import RUNNER_CODES

# ---------------------------------------------------------------------------------------------- failure codes

NOT_CONFIGURED: Final = "runner_not_configured"
UNAVAILABLE: Final = "runner_unavailable"
AUTH_FAILED: Final = "runner_auth_failed"
RATE_LIMITED: Final = "runner_rate_limited"
OVERLOADED: Final = "runner_overloaded"
REQUEST_REJECTED: Final = "runner_request_rejected"
INPUT_TOO_LARGE: Final = "runner_input_too_large"
IDLE_TIMEOUT: Final = "runner_idle_timeout"
HARD_TIMEOUT: Final = "runner_hard_timeout"
CANCELLED: Final = "runner_cancelled"
REFUSED: Final = "runner_refused"
CONTENT_FILTERED: Final = "runner_content_filtered"
OUTPUT_INVALID: Final = "runner_output_invalid"
OUTPUT_TOO_LARGE: Final = "runner_output_too_large"
STEP_LIMIT: Final = "runner_step_limit"
PROTOCOL_ERROR: Final = "runner_protocol_error"
EXITED: Final = "runner_exited"
ANSWER_ONLY_VIOLATION: Final = "answer_only_violation"

# ---------------------------------------------------------------------------------------------- request


class Mode(StrEnum):
    """What the turn may do."""

    WORK = "work"
    ANSWER_ONLY = "answer_only"


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks, as far as a runner may know. `locale` is zh or en and already resolved."""

    person_id: str
    display_name: str
    locale: str


@dataclass(frozen=True, slots=True)
class QuotedContext:
    """The message that the person's message answers."""

    text: str = field(repr=False)
    created_at: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryPair:
    """One earlier question of the session with its complete answer."""

    question: str = field(repr=False)
    answer: str = field(repr=False)
    asked_at: int
    answered_at: int


@dataclass(frozen=True, slots=True)
class BriefingNote:
    """One piece of working context, labelled with where it comes from and which revision of it this is."""

    title: str
    text: str = field(repr=False)
    source: str
    revision: int


@dataclass(frozen=True, slots=True)
class Briefing:
    """What the runner is told besides the dialogue.

    `missing` names parts that could not be read; they are never shown as empty.
    """

    notes: tuple[BriefingNote, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Everything a runner may know of one turn. Times are microseconds UTC; the two deadlines are durations.

    `origin` is `live`, or `provider_history` for a question that was found later in the chat's own history.
    """

    conversation_id: str
    turn_id: str
    mode: Mode
    text: str = field(repr=False)
    created_at: int
    origin: str
    quoted: QuotedContext | None
    history: tuple[HistoryPair, ...]
    briefing: Briefing
    person: Person
    workspace_id: str
    workspace_name: str
    project_id: str | None
    project_name: str | None
    context: tuple[tuple[str, str], ...]
    idle_us: int = limits.RUNNER_IDLE_US
    hard_us: int = limits.RUNNER_HARD_US

    def document(self) -> dict[str, Any]:
        """The request as plain data, for its size and for a runner that lives behind a wire."""
        return asdict(self)


# ---------------------------------------------------------------------------------------------- result


class Finish(StrEnum):
    """Why the answer ends where it does."""

    COMPLETE = "complete"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the model reported them."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ToolStep:
    """One tool call of the turn: its name and how it ended, never its arguments or output."""

    tool: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of a turn. `usage` None means unknown, never zero; `memory` is what the lead wants to keep."""

    text: str = field(repr=False)
    finish: Finish = Finish.COMPLETE
    model: str | None = None
    usage: Usage | None = None
    tool_trace: tuple[ToolStep, ...] = ()
    memory: str | None = field(default=None, repr=False)
    profile: str | None = None
    template_version: int | None = None


@dataclass(frozen=True, slots=True)
class ProposalDraft:
    """A write that was asked for and not done. A person decides it on the platform, never a message.

    Which permission the decision needs is the desk's to say, not the runner's (`proposals.REQUIRED_PERMISSION`).
    """

    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    summary: str = field(repr=False)
    target_kind: str
    target_id: str
    target_version: int
    diff: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The turn ends in a proposal. Provenance is the turn itself; the desk adds it."""

    draft: ProposalDraft
    model: str | None = None
    usage: Usage | None = None
    tool_trace: tuple[ToolStep, ...] = ()
    profile: str | None = None
    template_version: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ends without text. Raises ValueError for a code that is not a runner's.

    `detail` is for operators and written by our own code; it never holds text of an exception, model or provider.
    """

    code: str
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.code not in RUNNER_CODES:
            raise ValueError(f"{self.code!r} is not a runner's failure code")


Result = Answer | Proposal | Failed

# ---------------------------------------------------------------------------------------------- while it runs


class Step(StrEnum):
    """What progress may tell. Everything but `WAITING` counts as output for the idle limit."""

    THINKING = "thinking"
    TEXT = "text"
    TOOL_STARTED = "tool_started"
    TOOL_FINISHED = "tool_finished"
    WAITING = "waiting"


class Progress(Protocol):
    """Where a runner says that it is alive. Progress is never the answer and never leaves for the chat."""

    def note(self, step: Step, text: str = "") -> None:
        """Tell one step.

        `text` is answer text for `TEXT` and a tool's name for the tool steps; never reasoning, arguments or output.
        """
        ...


class Cancel(Protocol):
    """The polite request to stop; an `asyncio.Event` fits."""

    def is_set(self) -> bool:
        """True once the turn is to end."""
        ...

    async def wait(self) -> Any:
        """Return once the turn is to end."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One place the search found. `excerpt` is at most `EXCERPT_CHARS_MAX` characters."""

    title: str
    excerpt: str = field(repr=False)
    source: str
    revision: int


EXCERPT_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool of the closed list of this turn: its exact name, its kind and the JSON schema of its arguments."""

    name: str
    kind: str
    description: str
    schema: Mapping[str, Any]


class Toolbox(Protocol):
    """The closed list of tools of one turn; the only way a runner reaches Frontdesk's data."""

    tools: tuple[ToolSpec, ...]

    async def search(self, query: str, limit: int) -> tuple[Hit, ...]:
        """At most `limit` hits in the project knowledge and memory of this turn, best first."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool of the list. A name that is not exactly on it executes nothing and answers that it is unknown."""
        ...


# ---------------------------------------------------------------------------------------------- the runner


@dataclass(frozen=True, slots=True)
class RunnerCapabilities:
    """What this runner can do. `answer_only` is true only where it was verified that nothing else is possible."""

    tools: bool
    proposals: bool
    progress: bool
    answer_only: bool
    keeps_process: bool


class Replaceability(StrEnum):
    """Whether what serves a conversation may be replaced. Only `YES` allows it."""

    YES = "yes"
    ACTIVE = "active"
    BACKGROUND = "background"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """What `check` found. `problem` is a failure code, or None where everything needed is there."""

    name: str
    configured: bool
    reachable: bool
    answer_only: bool
    model: str | None = None
    problem: str | None = None


class Runner(Protocol):
    """Who writes the answer of a turn."""

    name: str
    capabilities: RunnerCapabilities

    async def run(self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel) -> Result:
        """Exactly one result, and one model call a step: a runner never retries. Called with no transaction open."""
        ...

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:
        """Whether the process of this conversation may go. Starts and ends nothing, answers in `within_ms`."""
        ...

    async def check(self) -> RunnerReport:
        """What `doctor` shows. Makes no model call."""
        ...

    async def close(self, within_ms: int) -> None:
        """End what this runner keeps alive. Idempotent."""
        ...


Runners = Mapping[str, Runner]
