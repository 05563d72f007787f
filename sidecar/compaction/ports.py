"""What compaction needs from the agent that it serves. Ports and frozen values only.

Who calls whom, and when:
- The agent calls the service's hooks between steps, with no call open. `step.begin` is appended *before* the request
  of that step is built (`Encoder.sync`), and no `await` stands between the two: until `step.begin` is in the log the
  context may still change under a background landing, after it nothing changes but by appending.
- The service appends records, emits events and asks for summaries through this port, and through nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.events import AnyEvent
from protocol.info import WindowSource
from protocol.messages import Message, Usage
from record_store.fold import Entry, State
from record_store.records import Record
from sidecar.providers.port import FinishReason, ModelInfo, RetryPolicy
from sidecar.settings import Settings


@dataclass(frozen=True, slots=True)
class WindowView:
    """The window in force, in tokens: configuration, table or provider, capped by what overflows taught."""

    tokens: int
    source: WindowSource


@dataclass(frozen=True, slots=True)
class SnipLimits:
    """How much of a tool's result a snip keeps: whole lines, and code points at most."""

    head_lines: int
    tail_lines: int
    head_chars: int
    tail_chars: int


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """One attempt at a summary.

    The request is: the session's system prompt and tools as the next step would send them, `entries`, `instruction`.
    `instruction` is a user message that is no part of the context; it is sent as the suffix, marked for no caching.
    While `exact` holds, `entries` are the context's own objects from its first on (the context may have grown since):
    their bytes are those of the step requests. Else the list was shortened or cut, or its images became text; it is
    well paired, may begin with an assistant message, and is encoded on its own.
    `model` (`provider/model`) is another model than the session's, if not None. `attempt` counts from 1.
    """

    compaction_id: str
    attempt: int
    entries: tuple[Entry, ...]
    exact: bool
    instruction: Message
    max_output_tokens: int
    model: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A whole answer. `text` leaves reasoning and tool calls out; it may be empty. `model` is `provider/model`."""

    text: str
    finish: FinishReason
    usage: Usage
    model: str


class AgentPort(Protocol):
    """One agent, as its compaction service sees it."""

    @property
    def state(self) -> State:
        """The folded log, live. Read only: it changes through `append`."""
        ...

    @property
    def settings(self) -> Settings:
        """What is in force for this session now."""
        ...

    @property
    def model(self) -> str:
        """`provider/model` of the session; empty if none is bound."""
        ...

    @property
    def wire_path(self) -> str:
        """The absolute path of this agent's `wire.jsonl`, or a name for it where the store has no files."""
        ...

    def model_info(self, model: str | None = None) -> ModelInfo:
        """What is known of the session's model, or of another one (`provider/model`)."""
        ...

    def retry_policy(self, model: str | None = None) -> RetryPolicy:
        """How the provider of that model wants to be retried."""
        ...

    def window(self) -> WindowView:
        """The session model's window now; reflects a `model.window_learned` as soon as it is appended."""
        ...

    def snip_limits(self, tool: str) -> SnipLimits | None:
        """What a tool says of its own results; None: decided by `has_side_effects`."""
        ...

    def has_side_effects(self, tool: str) -> bool:
        """Whether a tool is known to have side effects; False for unknown ones."""
        ...

    # measuring: all cheap (cached per message object); `factor` is not applied to the estimates

    def used(self) -> int:
        """The measured size of the next request: the last report plus what was appended, factor applied."""
        ...

    @property
    def factor(self) -> float:
        """Observed over estimated tokens for this model, 0.5 to 2."""
        ...

    def message_tokens(self, message: Message) -> int: ...

    def text_tokens(self, text: str) -> int: ...

    def prefix_tokens(self) -> int:
        """Of the system prompt, the standing text and the tools."""
        ...

    def prefix_changed(self) -> bool:
        """Whether model, system prompt or tools differ from those of the last step request that was answered."""
        ...

    # acting

    def append(self, *records: Record) -> tuple[int, ...]:
        """Appends and folds, all or nothing, at once; returns their lines. Raises `Fault` (`store_write_failed`) with
        the state untouched. Never yields to the event loop."""
        ...

    async def sync(self) -> None:
        """On return, what was appended before is on disk. Raises `Fault` (`store_write_failed`)."""
        ...

    def emit(self, event: AnyEvent) -> None:
        """Sends an event of this agent, with the open turn's id if there is one. Never yields, never raises."""
        ...

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Exactly one request to the model, streamed to its end; `llm.request` and `llm.usage` (kind `compaction`) and
        the `usage` event are the agent's. Raises `ProviderError` (never retried inside, teaches no window), or `Fault`
        when the model cannot be served. Cancelling it closes the response at once."""
        ...

    def spawn(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        """Starts `run` in the session's task group: it outlives the turn and is cancelled with the session."""
        ...

    def enable_record_access(self) -> None:
        """Offers `record_search` and `record_read` from the next request on, by record, unless they already are or
        `tools.record_access` is off. Never yields."""
        ...

    def checkpoint(self) -> None:
        """Asks for a checkpoint soon; returns at once."""
        ...

    async def read_record(self, line: int) -> Record | None:
        """The record on that line; None if there is none that can be read."""
        ...

    async def state_before(self, line: int) -> State:
        """The state as it was before the record on `line` was folded (a replay, off the event loop)."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def random(self) -> float:
        """From 0 to 1, for jitter."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def report(self, error: BaseException, doing: str) -> None:
        """Logs an exception that nobody expected, with a reference id."""
        ...
