"""Records to state: the one reducer, used live and in replay. Pure: no I/O, no clock, no estimator.

`apply(state, record, line)` changes `state` in place and returns nothing. The live session appends a record to the
log and then calls it; opening a session calls it for every record read. Live and replayed state are therefore equal.

What a caller may rely on:
- `state.entries` is the context in order; an `Entry` object stays the same object until its message is edited, so
  identity (`is`) tells whether a region is unchanged.
- `state.rewrites` counts every change of the context that is no append; between two values the context only grows.
- A record that does not fit the state (it names a message that is not there) changes what it can and never raises:
  a damaged log still opens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from protocol.events import TodoItem
from protocol.messages import ErrorInfo, JsonObject, Message, StopReason, ToolSpec, Usage
from record_store import pins, seen
from record_store import records as r
from record_store.pins import PinnedSkill
from record_store.records import TurnMark

MAX_CLIENT_IDS = 10_000
"""How many `client_message_id`s are remembered; the oldest are forgotten first."""

MAX_TURN_OUTCOMES = 256
"""How many past turns keep their outcome, for a message that is sent again."""


class Entry(Struct, frozen=True, gc=False):
    """A message of the context and the line that brought it in."""

    message: Message
    line: int


class Pending(Struct, frozen=True, gc=False):
    """An input that was acknowledged and has not entered the context yet."""

    entry: Entry
    turn_id: str
    kind: Literal["turn", "steer"]
    client_message_id: str | None = None


class TurnOutcome(Struct, frozen=True, gc=False, omit_defaults=True):
    turn_id: str
    stop_reason: StopReason
    usage: Usage
    text: str = ""
    error: ErrorInfo | None = None


class Landing(Struct, frozen=True, gc=False):
    """A compaction that landed: the lines it shadowed, its figures and the line of its record."""

    compaction_id: str
    first_line: int
    last_line: int
    pre_tokens: int
    post_tokens: int
    line: int


class Bracket(Struct, frozen=True):
    """A compaction that is neither landed nor cancelled, with its paid summary once there is one.

    `rewrites` is what `State.rewrites` was when it started: equal now, its span is unchanged. `messages` is how many
    messages the context had then.
    """

    start: r.CompactionStart
    line: int
    summary: r.CompactionSummary | None = None
    rewrites: int = 0
    messages: int = 0


class State(Struct):
    """One agent: its context and everything else that its log says. Serialises as it is, for checkpoints."""

    seq: int = 0
    session_id: str = ""
    agent_id: str = "main"
    parent_agent_id: str | None = None
    fork_line: int = 0
    created_at: int = 0
    updated_at: int = 0
    title: str = ""
    cwd: str = ""
    model: str | None = None
    system_prompt: str = ""
    standing: str = ""
    config: JsonObject = field(default_factory=dict)
    closed: bool = False
    window: int = 0
    tools: tuple[ToolSpec, ...] = ()
    builtin: tuple[str, ...] = ()

    entries: list[Entry] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    rewrites: int = 0
    rewrite_reasons: list[str] = field(default_factory=list)

    turns: int = 0
    turn_marks: list[TurnMark] = field(default_factory=list)
    open_turn: str | None = None
    open_step: int | None = None
    last_text: str = ""
    client_ids: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, TurnOutcome] = field(default_factory=dict)
    call_ids: bytearray = field(default_factory=bytearray)
    """Ids of all calls that the log tells of, also of those that left the context (`record_store.seen`)."""

    anchor_tokens: int | None = None
    anchor_count: int = 0
    learned_windows: dict[str, int] = field(default_factory=dict)
    last_request: r.LlmRequest | None = None
    last_request_at: int = 0
    last_usage: r.LlmUsage | None = None

    bracket: Bracket | None = None
    landings: list[Landing] = field(default_factory=list)
    tokens_after_landing: int | None = None
    elided_tokens: int = 0
    breakers: r.Breakers = r.Breakers()

    todos: tuple[TodoItem, ...] = ()
    skills: list[PinnedSkill] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    open_agents: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)

    @property
    def last_landing(self) -> Landing | None:
        return self.landings[-1] if self.landings else None

    def messages(self) -> list[Message]:
        return [e.message for e in self.entries]

    def skills_in_use(self) -> list[PinnedSkill]:
        return pins.in_use(self.skills, (e.message.text for e in self.entries))


def apply(state: State, record: r.Record, line: int) -> None:
    """Folds one record that stands on `line` into `state`."""
    if 0 < state.fork_line < line:
        _forked(state)
    state.seq = line
    state.updated_at = record.time
    if not state.created_at:
        state.created_at = record.time  # until `metadata` says it: that line can be damaged
    fold = _FOLDS.get(type(record))
    if fold is not None:
        fold(state, record, line)


# ---------------------------------------------------------------- configuration


def _metadata(s: State, x: r.Metadata, line: int) -> None:
    s.session_id, s.agent_id, s.created_at = x.session_id, x.agent_id, x.created_at
    s.parent_agent_id = x.parent_agent_id
    s.fork_line = x.fork_line or 0


def _forked(s: State) -> None:
    """The copied past is over: what was under way or allowed in the source is not so here."""
    s.fork_line = 0
    s.pending.clear()
    s.grants.clear()
    s.bracket = None


def _config(s: State, x: r.ConfigUpdate, line: int) -> None:
    if x.model is not None and x.model != s.model:
        if s.model is not None:
            s.rewrite_reasons.append("model")
        s.model = x.model
        s.anchor_tokens = None
    for name in ("title", "cwd", "system_prompt", "standing", "config"):
        value = getattr(x, name)
        if value is not None:
            setattr(s, name, value)
    if x.window is not None:
        s.window = x.window
    _set_breakers(s, x.breakers)
    if x.state is not None:
        s.closed = x.state == "closed"


def _tools(s: State, x: r.ToolsSnapshot, line: int) -> None:
    s.tools, s.builtin = x.tools, x.builtin


# ---------------------------------------------------------------- turns and messages


def _turn_begin(s: State, x: r.TurnBegin, line: int) -> None:
    s.turns += 1
    s.open_turn, s.open_step, s.last_text = x.turn_id, None, ""
    s.turn_marks.append(TurnMark(x.turn_id, len(s.entries)))
    if x.client_message_id is not None:
        _remember(s, x.client_message_id, x.turn_id)
    _enter(s, x.queued)


def _turn_end(s: State, x: r.TurnEnd, line: int) -> None:
    s.outcomes[x.turn_id] = TurnOutcome(x.turn_id, x.stop_reason, x.usage, s.last_text, x.error)
    while len(s.outcomes) > MAX_TURN_OUTCOMES:
        del s.outcomes[next(iter(s.outcomes))]
    s.open_turn = s.open_step = None


def _step_begin(s: State, x: r.StepBegin, line: int) -> None:
    s.open_step = x.step
    _enter(s, x.steers)


def _step_end(s: State, x: r.StepEnd, line: int) -> None:
    s.open_step = None
    _set_breakers(s, x.breakers)


def _append(s: State, x: r.AppendMessage, line: int) -> None:
    entry = Entry(x.message, line)
    if x.queued is None:
        s.entries.append(entry)
        if x.message.role == "assistant":
            s.last_text = x.message.text
            _note_calls(s, x.message)
    else:
        s.pending.append(Pending(entry, x.turn_id or "", x.queued, x.client_message_id))
    if x.client_message_id is not None and x.turn_id is not None:
        _remember(s, x.client_message_id, x.turn_id)


def _note_calls(s: State, message: Message) -> None:
    for call in message.tool_calls or ():
        seen.note(s.call_ids, call.id)


def _enter(s: State, ids: tuple[str, ...]) -> None:
    for message_id in ids:
        for i, p in enumerate(s.pending):
            if p.entry.message.id == message_id:
                s.entries.append(p.entry)
                del s.pending[i]
                break


def _remember(s: State, client_message_id: str, turn_id: str) -> None:
    s.client_ids[client_message_id] = turn_id
    while len(s.client_ids) > MAX_CLIENT_IDS:
        del s.client_ids[next(iter(s.client_ids))]


# ---------------------------------------------------------------- changes of the context


def _rewritten(s: State, reason: str) -> None:
    s.rewrites += 1
    if reason not in s.rewrite_reasons:
        s.rewrite_reasons.append(reason)
    s.anchor_tokens = None
    s.anchor_count = 0


def _splice(s: State, count: int, replacement: tuple[r.Replacement, ...], line: int) -> None:
    span = s.entries[:count]
    kept = {e.message.id: e for e in span}
    new: list[Entry] = []
    for item in replacement:
        if isinstance(item, r.New):
            new.append(Entry(item.message, item.line or line))
        elif item.message_id in kept:
            new.append(kept[item.message_id])
    s.entries[:count] = new
    s.turn_marks = [TurnMark(m.turn_id, m.start - len(span) + len(new)) for m in s.turn_marks if m.start >= len(span)]


def _rewrite(s: State, x: r.Rewrite, line: int) -> None:
    if x.action == "uncompact":
        _splice(s, x.message_count, x.replacement, line)
        s.turn_marks[:0] = x.turn_marks
        if s.landings and s.landings[-1].compaction_id == x.compaction_id:
            s.landings.pop()
        s.tokens_after_landing = x.post_tokens
        if x.elided_tokens is not None:
            s.elided_tokens = x.elided_tokens
    edits = {e.message_id: e.content for e in x.edits}
    if edits:
        for i, e in enumerate(s.entries):
            content = edits.get(e.message.id)
            if content is not None:
                s.entries[i] = Entry(replace(e.message, content=content), e.line)
    _rewritten(s, x.action)


def span_length(bracket: Bracket | None, message_count: int) -> int:
    """How many messages at the start of the context are the span that a record says has so many. What came after the
    bracket's start is never part of it: where lines of the span are lost, it is shorter than the record says."""
    return message_count if bracket is None else min(message_count, bracket.messages)


def _compaction_start(s: State, x: r.CompactionStart, line: int) -> None:
    s.bracket = Bracket(x, line, rewrites=s.rewrites, messages=len(s.entries))
    _set_breakers(s, x.breakers)


def _compaction_summary(s: State, x: r.CompactionSummary, line: int) -> None:
    if s.bracket is not None and s.bracket.start.compaction_id == x.compaction_id:
        s.bracket = replace(s.bracket, summary=x)


def _apply_compaction(s: State, x: r.ApplyCompaction, line: int) -> None:
    bracket = s.bracket
    first, last = bracket.start.span if bracket is not None else (1, line)
    s.bracket = None
    _splice(s, span_length(bracket, x.message_count), x.replacement, line)
    s.landings.append(Landing(x.compaction_id, first, last, x.pre_tokens, x.post_tokens, line))
    s.tokens_after_landing = x.post_tokens
    s.elided_tokens = x.elided_tokens
    s.skills = pins.landed(s.skills, (e.message.text for e in s.entries))
    _set_breakers(s, x.breakers)
    _rewritten(s, "compaction")


def _compaction_cancel(s: State, x: r.CompactionCancel, line: int) -> None:
    s.bracket = None
    _set_breakers(s, x.breakers)


def _set_breakers(s: State, breakers: r.Breakers | None) -> None:
    if breakers is not None:
        s.breakers = breakers


def _undo(s: State, x: r.Undo, line: int) -> None:
    del s.entries[x.keep :]
    left = s.turn_marks[: max(0, len(s.turn_marks) - x.turns)]
    s.turn_marks = [m for m in left if m.start <= x.keep]
    s.turns = max(0, s.turns - x.turns)
    _take_back_skills(s)
    s.breakers = s.breakers.closed()
    _rewritten(s, "undo")


def _clear(s: State, x: r.Clear, line: int) -> None:
    s.entries.clear()
    s.turn_marks.clear()
    s.landings.clear()
    s.skills.clear()
    s.tokens_after_landing = None
    s.elided_tokens = 0
    s.todos = ()
    s.breakers = r.Breakers()
    _rewritten(s, "clear")


def _host_revision(s: State, x: r.HostRevision, line: int) -> None:
    del s.entries[x.keep :]
    s.turn_marks = [m for m in s.turn_marks if m.start < x.keep]
    s.entries.extend(Entry(m, line) for m in x.messages)
    for message in x.messages:
        _note_calls(s, message)
    _take_back_skills(s)
    _rewritten(s, "host_revision")


# ---------------------------------------------------------------- measuring


def _request(s: State, x: r.LlmRequest, line: int) -> None:
    s.last_request_at = x.time
    if x.kind == "step":
        s.last_request = x


def _usage(s: State, x: r.LlmUsage, line: int) -> None:
    s.last_request_at = x.time
    if x.kind != "step" or x.failed:
        return
    s.last_usage = x
    s.rewrite_reasons.clear()
    s.anchor_tokens = x.prompt_tokens + x.completion_tokens
    s.anchor_count = len(s.entries)


def _window_learned(s: State, x: r.WindowLearned, line: int) -> None:
    known = s.learned_windows.get(x.model)
    s.learned_windows[x.model] = x.window if known is None else min(known, x.window)


# ---------------------------------------------------------------- around it


def _todo(s: State, x: r.TodoUpdate, line: int) -> None:
    s.todos = x.todos


def _skill(s: State, x: r.SkillActivate, line: int) -> None:
    if x.mode == "inline" and x.body is not None:
        s.skills = pins.activated(s.skills, PinnedSkill(x.name, x.body))


def _take_back_skills(s: State) -> None:
    """What no message shows any more, one that still waits included, is not in use."""
    waiting = [p.entry for p in s.pending]
    s.skills = pins.shown(s.skills, (e.message.text for e in (*s.entries, *waiting)))


def _approval(s: State, x: r.ToolApproval, line: int) -> None:
    if x.outcome == "allow_session" and x.name not in s.grants:
        s.grants.append(x.name)


def _spawn(s: State, x: r.AgentSpawn, line: int) -> None:
    if x.agent_id not in s.agents:
        s.agents.append(x.agent_id)
        s.open_agents.append(x.agent_id)


def _agent_finished(s: State, x: r.AgentFinish, line: int) -> None:
    s.open_agents = [a for a in s.open_agents if a != x.agent_id]


_FOLDS: dict[type[r.Record], Callable[[State, Any, int], None]] = {
    r.Metadata: _metadata,
    r.ConfigUpdate: _config,
    r.ToolsSnapshot: _tools,
    r.TurnBegin: _turn_begin,
    r.TurnEnd: _turn_end,
    r.StepBegin: _step_begin,
    r.StepEnd: _step_end,
    r.AppendMessage: _append,
    r.Rewrite: _rewrite,
    r.CompactionStart: _compaction_start,
    r.CompactionSummary: _compaction_summary,
    r.ApplyCompaction: _apply_compaction,
    r.CompactionCancel: _compaction_cancel,
    r.Undo: _undo,
    r.Clear: _clear,
    r.HostRevision: _host_revision,
    r.LlmRequest: _request,
    r.LlmUsage: _usage,
    r.WindowLearned: _window_learned,
    r.TodoUpdate: _todo,
    r.SkillActivate: _skill,
    r.ToolApproval: _approval,
    r.AgentSpawn: _spawn,
    r.AgentFinish: _agent_finished,
}

WITHOUT_EFFECT: frozenset[type[r.Record]] = frozenset({r.MemoryWrite, r.StoreRepair})
"""Records that are history only. Every type is either here or has a fold case; a test says so."""
