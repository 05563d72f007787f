"""Compaction as a log recorded it, held against its own rules.

    kind           what is wrong
    bracket        a compaction starts while another is open, or something happens to one that is not open
    trigger        an automatic compaction started below the trigger, with a circuit open, or too soon after a failure
    margin         an automatic compaction started before the context had grown by the margin since the last landing
    attempts       more summary requests than one compaction may make
    prefix         a summary request does not extend the step requests before it, byte for byte
    append_only    a step request does not extend the one before it, although nothing was rewritten
    unpaid         a model's summary landed that is not in the log
    gain           a landing did not make the context smaller, or its figures contradict each other
    stale          a landing replaced messages that had changed since its start
    boundary       a landing in the middle of a step, or with a call open
    rewrite        the free half changed the context while a compaction ran
    shape          after a landing there is not exactly one summary, or something is kept that its shape does not keep
    pairing        a landing left a tool result without its call

A log holds hashes and lengths of what was sent, not the bytes. What they prove is checked: equal numbers of messages
between two rewrites have equal bytes, more messages have more. What cannot be proven is not held against anyone, and
neither is what depends on lines that cannot be read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from protocol.messages import ImagePart, Message
from record_store import decoder, fold
from record_store import records as r
from record_store.backend import Line, LogReader
from record_store.decoder import Unknown
from record_store.fold import Entry, State
from record_store.threads import blocking
from sidecar import settings as s
from sidecar.compaction import landing, regions, summary_prompt, triggers
from sidecar.compaction.policy import Policy, resolve_compaction_policy
from sidecar.providers.port import FALLBACK_WINDOW
from sidecar.tokens import rough


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that was broken: on which line, which rule, and how."""

    line: int
    kind: str
    detail: str


async def audit(log: LogReader) -> list[Finding]:
    """The findings of one agent's log, in the order of lines; empty where everything was as it should be.

    A compaction that is still open at the end of the log is none: it runs, or the next opening settles it.
    Raises `StoreReadError`. Reads the whole log, in a thread.
    """
    return await blocking(audit_lines, log.iterate())


def audit_lines(lines: Iterable[Line]) -> list[Finding]:
    """As `audit`, for lines that are at hand. Blocking."""
    auditor = _Auditor()
    findings = [finding for line, raw in lines for finding in auditor.look(line, raw)]
    return sorted(findings, key=lambda f: f.line)


_Found = Iterator[tuple[str, str]]


@dataclass(slots=True)
class _Open:
    """A compaction under way: its start, the span's own objects, and what it did so far. `sent` is the number of
    messages that a step had sent of the span when it started."""

    start: r.CompactionStart
    policy: Policy
    original: tuple[Entry, ...]
    sent: int
    requests: int = 0
    summarised: bool = False


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in the run of requests that nothing was rewritten between."""

    request: r.LlmRequest
    line: int


class _Auditor:
    """Folds the log and looks at each record before it is folded."""

    def __init__(self) -> None:
        self._state = State()
        self._open: _Open | None = None
        # What the source of a fork had open: the fork may close it, and nothing else.
        self._left: _Open | None = None
        self._known = True
        self._requests = _Requests()
        self._landed_in_step: int | None = None

    def look(self, line: int, raw: bytes) -> Iterator[Finding]:
        decoded = decoder.decode_line(raw, line)
        if decoded.damage is not None and decoded.damage.lost:
            self._forget()
        for whole in decoded.records:
            if isinstance(whole.record, Unknown):
                continue
            for kind, detail, *at in self._check(whole.record, line):
                yield Finding(at[0] if at else line, kind, detail)
            fold.apply(self._state, whole.record, line)

    def _forget(self) -> None:
        """A line was lost: what it did to context and brackets is not known until something lands or is cleared."""
        self._known = False
        self._open = None
        self._landed_in_step = None
        self._requests.forget()

    def _check(self, record: r.Record, line: int) -> Iterator[tuple[str, str] | tuple[str, str, int]]:
        if 0 < self._state.fork_line < line:
            self._left, self._open = self._open, None
        match record:
            case r.CompactionStart():
                yield from self._start(record)
            case r.CompactionSummary():
                yield from self._summary(record)
            case r.ApplyCompaction():
                yield from self._landing(record, line)
            case r.CompactionCancel():
                yield from self._ends(record.compaction_id)
            case r.LlmRequest():
                yield from self._request(record, line)
            case r.Rewrite(action="snip" | "prune" | "image_offload" | "micro_compact") if self._open:
                yield "rewrite", f"{record.action} while {self._open.start.compaction_id} ran"
            case r.AppendMessage() if record.message.role == "assistant" and self._landed_in_step:
                yield "boundary", "landed while the model was answering a request", self._landed_in_step
                self._landed_in_step = None
            case r.StepBegin() | r.StepEnd() | r.TurnEnd():
                self._landed_in_step = None
            case r.ConfigUpdate() | r.ToolsSnapshot():
                self._requests.configured(record)
            case r.Clear():
                self._known = True

    # ------------------------------------------------------------ the bracket

    def _start(self, record: r.CompactionStart) -> _Found:
        if self._open is not None:
            yield "bracket", f"{record.compaction_id} starts while {self._open.start.compaction_id} is open"
        entries = self._state.entries[: record.message_count]
        if self._known and len(entries) < record.message_count:
            yield "bracket", f"a span of {record.message_count} messages in a context of {len(entries)}"
        policy = _policy_at(self._state, record)
        self._open = _Open(record, policy, tuple(entries), self._requests.sent(self._state))
        if record.trigger == "auto" and self._known:
            yield from _may_start(self._state, policy, record.pre_tokens)

    def _ends(self, compaction_id: str) -> _Found:
        known, running = self._known, self._open or self._left
        self._open = self._left = None
        if known and (running is None or running.start.compaction_id != compaction_id):
            yield "bracket", f"{compaction_id} ends without having started"

    def _summary(self, record: r.CompactionSummary) -> _Found:
        running = self._open
        if running is None or running.start.compaction_id != record.compaction_id:
            if self._known:
                yield "bracket", f"a summary for {record.compaction_id}, which is not open"
            return
        if running.requests == 0:
            yield "bracket", f"a summary for {record.compaction_id}, which no request asked for"
        running.summarised = True

    # ------------------------------------------------------------ requests

    def _request(self, record: r.LlmRequest, line: int) -> Iterator[tuple[str, str]]:
        if record.kind == "step":
            self._landed_in_step = None
            yield from self._requests.step(_Sent(record, line), self._state)
            return
        running = self._open
        if running is None or running.start.compaction_id != record.compaction_id:
            if self._known:
                yield "bracket", f"a summary request for {record.compaction_id}, which is not open"
            return
        running.requests += 1
        if running.requests == running.policy.compaction_max_attempts + 1:
            yield "attempts", f"more than {running.policy.compaction_max_attempts} requests for one summary"
        if record.attempt != running.requests:
            yield "attempts", f"request {running.requests} calls itself attempt {record.attempt}"
        yield from self._requests.summary(_Sent(record, line), self._state, running)

    # ------------------------------------------------------------ landings

    def _landing(self, record: r.ApplyCompaction, line: int) -> Iterator[tuple[str, str]]:
        running, known = self._open, self._known
        self._open, self._known = None, True
        if record.post_tokens >= record.pre_tokens:
            yield "gain", f"{record.pre_tokens} tokens became {record.post_tokens}"
        if record.replacement_count != len(record.replacement):
            yield "gain", f"{record.replacement_count} messages are said to stay, {len(record.replacement)} do"
        if self._state.open_step is not None:
            self._landed_in_step = line
        if running is None or running.start.compaction_id != record.compaction_id:
            if known:
                yield "bracket", f"{record.compaction_id} lands without having started"
            return
        if record.summary_kind == "model" and not running.summarised:
            yield "unpaid", f"the summary of {record.compaction_id} is not in the log"
        yield from self._against_the_span(record, running)

    def _against_the_span(self, record: r.ApplyCompaction, running: _Open) -> _Found:
        entries, count = self._state.entries, record.message_count
        if count != running.start.message_count:
            yield "stale", f"{count} messages are replaced, {running.start.message_count} were summarised"
            return
        if not landing.history_safe_to_compact(entries, running.original, running.policy.landing):
            yield "stale", "the summarised part is not what it was, or something else than user input followed it"
        if _has_open_call(entries):
            yield "boundary", "a call had no result yet"
        yield from _shape_of(record, [e.message for e in entries])


class _Requests:
    """What was sent since the last rewrite to one model, by number of messages: a list that only grows."""

    def __init__(self) -> None:
        self._epoch: tuple[int, str] | None = None
        self._counts: list[int] = []
        self._sent: list[_Sent] = []
        self._last_step: r.LlmRequest | None = None
        self._same_prefix = True

    def forget(self) -> None:
        self._epoch, self._counts, self._sent, self._last_step = None, [], [], None

    def configured(self, record: r.ConfigUpdate | r.ToolsSnapshot) -> None:
        """From here on a prefix may differ; with another model or other settings, the messages' bytes too."""
        if isinstance(record, r.ConfigUpdate) and (record.config is not None or record.model is not None):
            self.forget()
        elif isinstance(record, r.ConfigUpdate) and record.system_prompt is None and record.standing is None:
            return
        self._same_prefix = False

    def sent(self, state: State) -> int:
        """How many messages of the context as it stands the last step sent."""
        last, epoch = self._last_step, self._epoch
        return last.message_count if last is not None and epoch is not None and epoch[0] == state.rewrites else 0

    def step(self, sent: _Sent, state: State) -> _Found:
        self._enter(sent, state)
        last, request = self._last_step, sent.request
        if last is not None and request.message_count < last.message_count:
            yield "append_only", f"{request.message_count} messages after {last.message_count}"
        for problem in self._add(sent):
            yield "append_only", problem
        self._last_step, self._same_prefix = request, True

    def summary(self, sent: _Sent, state: State, running: _Open) -> _Found:
        """The first attempt shows the whole span as it is, unless it holds images or is known not to fit."""
        request, last = sent.request, state.last_request
        if request.attempt != 1 or last is None or request.model != last.model:
            return
        if _has_images(running.original) or not _fits(running):
            return
        self._enter(sent, state)
        if self._same_prefix and _prefix_of(request) != _prefix_of(last):
            yield "prefix", "system prompt or tools are not those of the last step"
        if request.message_count < running.sent:
            yield "prefix", f"{request.message_count} messages, the step before its start sent {running.sent}"
            return
        for problem in self._add(sent):
            yield "prefix", problem

    def _enter(self, sent: _Sent, state: State) -> None:
        epoch = (state.rewrites, sent.request.model)
        if epoch != self._epoch:
            self.forget()
            self._epoch = epoch

    def _add(self, sent: _Sent) -> Iterator[str]:
        """Takes a request in, or says why it cannot be the same growing list as its neighbours by length."""
        request = sent.request
        if request.messages_hash is None:
            return
        at = bisect_left(self._counts, request.message_count)
        for near in self._sent[max(0, at - 1) : at + 1]:
            problem = _unlike(sent.request, near)
            if problem:
                yield problem
                return
        if at == len(self._counts) or self._counts[at] != request.message_count:
            self._counts.insert(at, request.message_count)
            self._sent.insert(at, sent)


def _prefix_of(request: r.LlmRequest) -> tuple[str, ...]:
    return request.system_hash, request.tools_hash, request.prefix_hash


def _unlike(request: r.LlmRequest, near: _Sent) -> str | None:
    known = near.request
    if request.message_count == known.message_count:
        if (request.messages_bytes, request.messages_hash) == (known.messages_bytes, known.messages_hash):
            return None
        return f"the bytes of its {known.message_count} messages are not those sent on line {near.line}"
    if (request.messages_bytes > known.messages_bytes) == (request.message_count > known.message_count):
        return None
    return (
        f"{request.message_count} messages in {request.messages_bytes} bytes, "
        f"{known.message_count} in {known.messages_bytes} on line {near.line}"
    )


# ---------------------------------------------------------------- what the rules say


def _settings(state: State) -> s.Settings:
    """What the session configured; the usual values for what it did not, or what cannot be read."""
    return s.effective(s.known_part(state.config))


def _policy_at(state: State, start: r.CompactionStart) -> Policy:
    """The policy in force at a start: its tokens as the record tells them. Where it does not, what the session's own
    configuration says; a window that this leaves open is taken to be no larger than what was in it."""
    settings, model, limits = _settings(state), state.model or "", start.limits
    if limits is not None:
        policy = resolve_compaction_policy(model, max(1, limits.window), settings)
        policy = replace(policy, auto=True, compaction_max_attempts=limits.max_attempts)
        return replace(policy, trigger_at=limits.trigger_at, block_at=limits.block_at, margin=limits.margin)
    row = settings.models.get(model)
    known = settings.model.window or (row.window if row is not None else None) or state.window or start.pre_tokens
    window = max(1, min(known, state.learned_windows.get(model, known)))
    policy = replace(resolve_compaction_policy(model, window, settings), auto=True)
    return replace(policy, trigger_at=0, margin=0) if policy.objective == "cost" else policy


def _may_start(state: State, policy: Policy, used: int) -> _Found:
    landed = state.tokens_after_landing
    match triggers.should_start(policy, used, state.breakers, landed):
        case "below":
            yield "trigger", f"started at {used} tokens, the trigger is at {policy.trigger_at}"
        case "margin":
            yield "margin", f"started at {used} tokens, {policy.margin} had to come on top of the {landed} left before"
        case "circuit_open":
            yield "trigger", "started with a circuit open"
        case "failed_before":
            yield "trigger", f"started at {used} tokens, too soon after the attempt at {state.breakers.failed_at}"


def _fits(running: _Open) -> bool:
    """Whether the whole span and the instruction surely fit into the window."""
    window = running.policy.window if running.start.limits is not None else FALLBACK_WINDOW
    instruction = rough.text_tokens(summary_prompt.instruction(running.start.instruction))
    return running.start.pre_tokens + 2 * instruction + 1_024 <= window


def _has_images(entries: Iterable[Entry]) -> bool:
    return any(isinstance(part, ImagePart) for e in entries for part in e.message.content)


def _has_open_call(entries: list[Entry]) -> bool:
    answered: set[str | None] = set()
    for entry in reversed(entries):
        if entry.message.role != "tool":
            return any(call.id not in answered for call in entry.message.tool_calls or ())
        answered.add(entry.message.tool_call_id)
    return False


def _shape_of(record: r.ApplyCompaction, before: list[Message]) -> _Found:
    """What stands after the landing, against what stood before it."""
    span = {m.id: m for m in before[: record.message_count]}
    gone = [x.message_id for x in record.replacement if isinstance(x, r.Kept) and x.message_id not in span]
    if gone:
        yield "shape", f"{gone[0]} is kept and was not there"
    stays = [x.message if isinstance(x, r.New) else span[x.message_id] for x in record.replacement
             if isinstance(x, r.New) or x.message_id in span]  # fmt: skip
    summaries = sum(map(regions.is_summary, stays))
    if summaries != 1:
        yield "shape", f"{summaries} summaries stand in the span's place"
    if record.shape == "handoff":
        kept = [span[x.message_id] for x in record.replacement if isinstance(x, r.Kept) and x.message_id in span]
        foreign = [m for m in kept if not _may_stay(m)]
        if foreign:
            yield "shape", f"{foreign[0].id} is kept and is not the user's own"
    after = [*stays, *before[record.message_count :]]
    orphans = _orphans(after) - _orphans(before)
    if orphans:
        yield "pairing", f"the result {min(orphans)} lost its call"


def _may_stay(message: Message) -> bool:
    """Whether a handoff keeps this one: the user's own words, and what is pinned."""
    return message.role == "system" or regions.is_real_user_input(message) or regions.is_instructions_note(message)


def _orphans(messages: list[Message]) -> set[str]:
    issuers = regions.issuers(messages)
    return {m.id for m, issuer in zip(messages, issuers, strict=True) if m.role == "tool" and issuer is None}
