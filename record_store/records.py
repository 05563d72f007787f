"""The record types of `wire.jsonl`, version 1. Pure data.

A line is `{"seq": n, "type": ..., "time": ms, ...payload, "crc": "8 hex"}`; `seq` and `crc` belong to the line and
are not part of these types (see `encoder`). A record that changes the context carries the whole decision: replay
runs no estimator and no prompt template. Unknown fields and types of newer versions are skipped, never rewritten.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from protocol.events import TodoItem
from protocol.info import CacheDiagnostics
from protocol.messages import ErrorInfo, JsonObject, Message, Part, StopReason, ToolSpec, Usage

Trigger = Literal["auto", "manual", "overflow"]
Mode = Literal["background", "blocking"]


class Record(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all records. `time` is milliseconds since 1970."""

    time: int


class Breakers(Struct, frozen=True, omit_defaults=True):
    """State of the two circuit breakers of automatic compaction, as the policy's code decided it.

    `steps_since_landing` is None until something landed. `failed_at` is the size in tokens at which the last automatic
    attempt that did not land had started; None once something landed. Records that change it carry the whole new value.
    """

    failures: int = 0
    failures_open: bool = False
    refills: int = 0
    refills_open: bool = False
    steps_since_landing: int | None = None
    healthy_steps: int = 0
    failed_at: int | None = None

    def closed(self) -> Breakers:
        """Both circuits closed, their counters at zero."""
        return Breakers(steps_since_landing=self.steps_since_landing)


class Metadata(Record, frozen=True, omit_defaults=True, tag="metadata"):
    """Line 1 of every log. `forked_from` and `fork_line` are set on a fork: lines 2 to `fork_line` are the source's."""

    version: int
    session_id: str
    agent_id: str
    created_at: int
    server_version: str
    parent_agent_id: str | None = None
    forked_from: str | None = None
    fork_line: int | None = None


class ConfigUpdate(Record, frozen=True, omit_defaults=True, tag="config.update"):
    """What is set changes, what is absent stays. `config` replaces the session's whole configuration.

    `standing` is the frozen text that stands in the prefix after `system_prompt` (instructions, facts, skill index).
    `window` is the resolved window in tokens, where it changed.
    """

    title: str | None = None
    cwd: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    standing: str | None = None
    config: JsonObject | None = None
    window: int | None = None
    state: Literal["idle", "closed"] | None = None
    breakers: Breakers | None = None


class ToolsSnapshot(Record, frozen=True, omit_defaults=True, tag="tools.snapshot"):
    """The host's tools, all of them; `builtin` lists the names of the daemon's own tools that are offered with them."""

    tools: tuple[ToolSpec, ...]
    builtin: tuple[str, ...] = ()


class TurnBegin(Record, frozen=True, omit_defaults=True, tag="turn.begin"):
    """A turn starts. `queued` names waiting messages (`context.append_message` with `queued`) that enter now."""

    turn_id: str
    queued: tuple[str, ...] = ()
    client_message_id: str | None = None


class TurnEnd(Record, frozen=True, omit_defaults=True, tag="turn.end"):
    turn_id: str
    stop_reason: StopReason
    usage: Usage
    error: ErrorInfo | None = None


class StepBegin(Record, frozen=True, omit_defaults=True, tag="step.begin"):
    """A step starts. `steers` names waiting steering messages that enter the context now, in this order."""

    turn_id: str
    step: int
    steers: tuple[str, ...] = ()


class StepEnd(Record, frozen=True, omit_defaults=True, tag="step.end"):
    """A step is over, its results included. `used` is the measured context in tokens."""

    turn_id: str
    step: int
    used: int
    breakers: Breakers | None = None


class AppendMessage(Record, frozen=True, omit_defaults=True, tag="context.append_message"):
    """A message. With `queued` it waits: a `turn` input for its `turn.begin`, a `steer` for the next `step.begin`."""

    message: Message
    turn_id: str | None = None
    queued: Literal["turn", "steer"] | None = None
    client_message_id: str | None = None


class Edit(Struct, frozen=True):
    """New content of one message of the context; everything else of it stays."""

    message_id: str
    content: tuple[Part, ...]


class Kept(Struct, frozen=True, tag_field="kind", tag="kept"):
    """A message of the replaced span that stays, byte for byte."""

    message_id: str


class New(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="new"):
    """A message that stands in the span's place: summary, note, reminder, or one that was cut.

    `line` is where its original stands, for one that was cut or brought back; else it counts from this record's line.
    """

    message: Message
    line: int | None = None


Replacement = Kept | New


class TurnMark(Struct, frozen=True, gc=False):
    """Where a turn begins in the context."""

    turn_id: str
    start: int


class Rewrite(Record, frozen=True, omit_defaults=True, tag="context.rewrite"):
    """The context changed without a summary; `action` says how.

    `edits` change messages in place. `uncompact` replaces the first `message_count` messages by `replacement`, in which
    the turns of `turn_marks` begin, and sets `elided_tokens` back.
    """

    action: Literal["snip", "prune", "image_offload", "micro_compact", "quarantine", "uncompact"]
    pre_tokens: int
    post_tokens: int
    edits: tuple[Edit, ...] = ()
    message_count: int = 0
    replacement: tuple[Replacement, ...] = ()
    compaction_id: str | None = None
    elided_tokens: int | None = None
    turn_marks: tuple[TurnMark, ...] = ()


class Limits(Struct, frozen=True):
    """What a compaction was started under: tokens, and how many requests its summary may take."""

    window: int
    trigger_at: int
    block_at: int
    margin: int
    max_attempts: int


class CompactionStart(Record, frozen=True, omit_defaults=True, tag="compaction.start"):
    """On disk before the summary is asked for. The first `message_count` messages of the context are the span.

    `span` is the first and last line that they came from. `limits` lets a reader of the log judge the start.
    """

    compaction_id: str
    trigger: Trigger
    mode: Mode
    span: tuple[int, int]
    message_count: int
    pre_tokens: int
    instruction: str | None = None
    breakers: Breakers | None = None
    limits: Limits | None = None


class CompactionSummary(Record, frozen=True, omit_defaults=True, tag="compaction.summary"):
    """The model's answer, on disk as soon as it came."""

    compaction_id: str
    summary: str
    usage: Usage
    attempts: int
    dropped_messages: int
    model: str | None = None


class ApplyCompaction(Record, frozen=True, omit_defaults=True, tag="context.apply_compaction"):
    """The landing: the first `message_count` messages of the context become `replacement`.

    `elided_tokens` is what the kept user text has lost to its budget so far, over all landings.
    """

    compaction_id: str
    shape: Literal["handoff", "span", "ladder"]
    summary_kind: Literal["model", "excerpt"]
    message_count: int
    replacement: tuple[Replacement, ...]
    pre_tokens: int
    post_tokens: int
    replacement_count: int
    elided_tokens: int = 0
    breakers: Breakers | None = None


class CompactionCancel(Record, frozen=True, omit_defaults=True, tag="compaction.cancel"):
    """Closes a bracket without effect; `reason` is the one word of the event."""

    compaction_id: str
    reason: str
    breakers: Breakers | None = None


class Undo(Record, frozen=True, omit_defaults=True, tag="context.undo"):
    """The last `turns` turns leave the context: the first `keep` messages stay."""

    turns: int
    keep: int


class Clear(Record, frozen=True, omit_defaults=True, tag="context.clear"):
    """The context is empty from here."""


class HostRevision(Record, frozen=True, omit_defaults=True, tag="context.host_revision"):
    """The host's own transcript differs from message `from_message` on: the first `keep` messages of the context stay,
    `messages` follow them."""

    from_message: int
    keep: int
    messages: tuple[Message, ...]


class LlmRequest(Record, frozen=True, omit_defaults=True, tag="llm.request"):
    """A request is about to be sent. Hashes are those of `PrefixShape`; `messages_hash` is over the message bytes.

    `suffix_count` of the messages are not part of the context (the instruction of a summary request).
    """

    kind: Literal["step", "compaction"]
    model: str
    system_hash: str
    tools_hash: str
    prefix_hash: str
    message_count: int
    attempt: int
    suffix_count: int = 0
    messages_bytes: int = 0
    messages_hash: str | None = None
    compaction_id: str | None = None


class LlmUsage(Record, frozen=True, omit_defaults=True, tag="llm.usage"):
    """What a request cost. Only a `step` that was not `failed` measures the context."""

    kind: Literal["step", "compaction"]
    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    failed: bool = False
    cache: CacheDiagnostics | None = None
    compaction_id: str | None = None


class WindowLearned(Record, frozen=True, omit_defaults=True, tag="model.window_learned"):
    """An overflow taught an upper bound of the window: `named` by the provider, or an `estimate`."""

    model: str
    window: int
    source: Literal["named", "estimate"]


class ToolApproval(Record, frozen=True, omit_defaults=True, tag="tool.approval"):
    """Who allowed or refused a call: `policy`, `session_grant`, `host`, `nobody`."""

    tool_call_id: str
    name: str
    outcome: Literal["allow_once", "allow_session", "reject"]
    by: str
    reason: str | None = None


class TodoUpdate(Record, frozen=True, omit_defaults=True, tag="todo.update"):
    todos: tuple[TodoItem, ...]


class SkillActivate(Record, frozen=True, omit_defaults=True, tag="skill.activate"):
    """A skill came into use. An inline one's `body` is pinned: it survives compactions verbatim."""

    name: str
    mode: Literal["inline", "subagent"]
    trigger: str
    body: str | None = None


class MemoryWrite(Record, frozen=True, omit_defaults=True, tag="memory.write"):
    fact_id: str
    revision: int
    scope: Literal["project", "global"]
    op: Literal["create", "update", "forget"]
    by: Literal["auto", "approved", "host"]


class AgentSpawn(Record, frozen=True, omit_defaults=True, tag="agent.spawn"):
    agent_id: str
    turn_id: str
    tool_call_id: str
    purpose: str
    model: str | None = None


class AgentFinish(Record, frozen=True, omit_defaults=True, tag="agent.finish"):
    agent_id: str
    stop_reason: StopReason
    usage: Usage


class StoreRepair(Record, frozen=True, omit_defaults=True, tag="store.repair"):
    """A torn tail was cut: `bytes` bytes went to `saved_as`, beside the log."""

    kind: Literal["torn_tail"]
    bytes: int
    saved_as: str


AnyRecord = (
    Metadata | ConfigUpdate | ToolsSnapshot | TurnBegin | TurnEnd | StepBegin | StepEnd | AppendMessage | Rewrite
    | CompactionStart | CompactionSummary | ApplyCompaction | CompactionCancel | Undo | Clear | HostRevision
    | LlmRequest | LlmUsage | WindowLearned | ToolApproval | TodoUpdate | SkillActivate | MemoryWrite | AgentSpawn
    | AgentFinish | StoreRepair
)  # fmt: skip

RECORDS: tuple[type[Record], ...] = AnyRecord.__args__
RECORD_TYPES: dict[str, type[Record]] = {str(r.__struct_config__.tag): r for r in RECORDS}
