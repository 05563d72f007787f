"""Events of a session: the `event` of `agent.chat.event`. Pure data.

All are durable (they have an id of their own and can be replayed) but `text_delta` and `reasoning_delta`.
Order in a turn: `turn_started`, then per step `step_started`, deltas, `message`, `tool_call_started`...,
`tool_result`..., with `usage` before the next step; `turn_ended` last.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from protocol.info import CacheDiagnostics
from protocol.messages import ErrorInfo, JsonObject, Message, Part, StopReason, Usage


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """Base of all events; `type` is the tag."""


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    content: tuple[Part, ...]


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    step: int


class TextDelta(Event, frozen=True, kw_only=True, tag="text_delta"):
    """`offset` is where this text starts in the message, in code points."""

    message_id: str
    text: str
    offset: int


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning_delta"):
    """`offset` is where this text starts in the message's reasoning, in code points."""

    message_id: str
    text: str
    offset: int


class MessageEvent(Event, frozen=True, kw_only=True, tag="message"):
    """The whole assistant message."""

    message: Message


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """`arguments` is null when the model's text is not a JSON object."""

    tool_call_id: str
    name: str
    arguments: JsonObject | None


class ToolResult(Event, frozen=True, kw_only=True, tag="tool_result"):
    """`locations` and `diff` are there for file tools, for hosts that show them."""

    tool_call_id: str
    name: str
    content: tuple[Part, ...]
    is_error: bool
    duration_ms: int
    locations: tuple[str, ...] = ()
    diff: JsonObject | None = None


class UsageEvent(Event, frozen=True, kw_only=True, tag="usage"):
    """Tokens of one model request."""

    kind: Literal["step", "compaction"]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cache: CacheDiagnostics | None


class ContextSoftLimit(Event, frozen=True, kw_only=True, tag="context_soft_limit"):
    used: int
    window: int


class ContextRewritten(Event, frozen=True, kw_only=True, tag="context_rewritten"):
    """The free half changed the context; `line` is that of the record."""

    action: str
    pre_tokens: int
    post_tokens: int
    line: int


class CompactionStarted(Event, frozen=True, kw_only=True, tag="compaction_started"):
    compaction_id: str
    trigger: Literal["auto", "manual", "overflow"]
    mode: Literal["background", "blocking"]
    pre_tokens: int


class CompactionBlocked(Event, frozen=True, kw_only=True, tag="compaction_blocked"):
    """The turn now waits for this compaction."""

    compaction_id: str


class CompactionLanded(Event, frozen=True, kw_only=True, tag="compaction_landed"):
    compaction_id: str
    pre_tokens: int
    post_tokens: int
    summary_kind: Literal["model", "excerpt"]
    duration_ms: int
    line: int


class CompactionDiscarded(Event, frozen=True, kw_only=True, tag="compaction_discarded"):
    compaction_id: str
    reason: str


class CompactionFailed(Event, frozen=True, kw_only=True, tag="compaction_failed"):
    compaction_id: str
    reason: str
    attempts: int


class CircuitOpened(Event, frozen=True, kw_only=True, tag="circuit_opened"):
    reason: Literal["consecutive_failures", "rapid_refill"]


class CircuitClosed(Event, frozen=True, kw_only=True, tag="circuit_closed"):
    reason: Literal["consecutive_failures", "rapid_refill"]


class RetryScheduled(Event, frozen=True, kw_only=True, tag="retry_scheduled"):
    attempt: int
    delay_ms: int
    reason: str
    status: int | None = None


class StreamReset(Event, frozen=True, kw_only=True, tag="stream_reset"):
    """What was shown of this message from `offset` on is void: the step is tried again."""

    message_id: str
    offset: int


class SteerApplied(Event, frozen=True, kw_only=True, tag="steer_applied"):
    message_id: str


class TodoItem(Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "done"]


class TodoUpdated(Event, frozen=True, kw_only=True, tag="todo_updated"):
    todos: tuple[TodoItem, ...]


class RecallHit(Struct, frozen=True):
    id: str
    score: float
    reasons: tuple[str, ...]
    freshness: Literal["fresh", "aging", "stale"]


class Omitted(Struct, frozen=True):
    id: str
    reason: str


class MemoryRecalled(Event, frozen=True, kw_only=True, tag="memory_recalled"):
    """What recall did before a turn; `suppressed` says why nothing was looked for."""

    query: str
    hits: tuple[RecallHit, ...]
    omitted: tuple[Omitted, ...]
    suppressed: str | None = None


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something that a person may want to know; `kind` is a stable word."""

    kind: str
    message: str


class TurnEnded(Event, frozen=True, kw_only=True, tag="turn_ended"):
    """A `TurnResult`."""

    turn_id: str
    stop_reason: StopReason
    text: str
    usage: Usage
    error: ErrorInfo | None = None


DELTAS = (TextDelta, ReasoningDelta)
"""The events that are not durable: they carry the last durable number."""

EVENTS: tuple[type[Event], ...] = (
    TurnStarted, StepStarted, TextDelta, ReasoningDelta, MessageEvent, ToolCallStarted, ToolResult, UsageEvent,
    ContextSoftLimit, ContextRewritten, CompactionStarted, CompactionBlocked, CompactionLanded, CompactionDiscarded,
    CompactionFailed, CircuitOpened, CircuitClosed, RetryScheduled, StreamReset, SteerApplied, TodoUpdated,
    MemoryRecalled, Notice, TurnEnded,
)  # fmt: skip
"""Every event type, in the order of the reference page."""

AnyEvent = (
    TurnStarted | StepStarted | TextDelta | ReasoningDelta | MessageEvent | ToolCallStarted | ToolResult | UsageEvent
    | ContextSoftLimit | ContextRewritten | CompactionStarted | CompactionBlocked | CompactionLanded
    | CompactionDiscarded | CompactionFailed | CircuitOpened | CircuitClosed | RetryScheduled | StreamReset
    | SteerApplied | TodoUpdated | MemoryRecalled | Notice | TurnEnded
)  # fmt: skip


class ChatEvent(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Params of the notification `agent.chat.event`.

    `event_id` is `"<epoch>-<n>"`: `epoch` is 8 hex digits of this daemon process, `n` counts durable events of the
    session; a delta carries the last durable `n`.
    """

    session_id: str
    agent_id: str
    event_id: str
    event: AnyEvent
    turn_id: str | None = None
