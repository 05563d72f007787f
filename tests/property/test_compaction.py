"""Any interleaving of turns, steers, cancels, compactions, undo and crashes keeps what compaction promises.

The log of every run is read again, record by record: nothing stale landed, nothing that came meanwhile was lost, the
user's words stayed within their budget, and a replay gives the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import msgspec
from hypothesis import HealthCheck, given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from protocol.messages import Message
from record_store import records as r
from record_store.fold import State, apply
from sidecar.compaction import regions
from sidecar.compaction.policy import Policy, resolve_compaction_policy
from sidecar.compaction.service import CompactionService
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from tests.support.compaction_agent import (
    SUMMARY,
    FakeAgent,
    Running,
    assert_paired,
    message_tokens,
    settings,
    words,
)

WINDOW = 4_000


@dataclass(frozen=True)
class Turn:
    text: int
    results: tuple[int, ...]
    steer_at: int | None = None
    cancel_after_ms: int | None = None
    overflow_at: int | None = None


@dataclass(frozen=True)
class Compact:
    cancel_after_ms: int | None = None


@dataclass(frozen=True)
class Other:
    """`queue`, `undo`, `clear`, `uncompact`, `quarantine`, `close`, or `wait` for so many ms."""

    what: str
    ms: int = 0


@dataclass(frozen=True)
class CrashAt:
    """Only this part of the log was written when the process was killed."""

    part: float


maybe_ms = st.none() | st.integers(0, 3_000)
turns = st.builds(
    Turn,
    text=st.integers(1, 600),
    results=st.lists(st.sampled_from([5, 60, 250, 300, 700, 1_500]), max_size=10).map(tuple),
    steer_at=st.none() | st.integers(1, 5),
    cancel_after_ms=st.none() | maybe_ms,
    overflow_at=st.sampled_from([None, None, None, 1, 3]),
)
others = st.one_of(
    st.builds(Other, st.sampled_from(["queue", "undo", "clear", "uncompact", "quarantine", "close"])),
    st.builds(Other, st.just("wait"), st.integers(1, 5_000)),
)
operations = st.lists(
    st.one_of(turns, turns, turns, others, st.builds(Compact, maybe_ms), st.builds(CrashAt, st.floats(0.3, 1.0))),
    min_size=1,
    max_size=9,
)
outcomes = st.lists(
    st.sampled_from(
        [
            SUMMARY,
            SUMMARY,
            "x" * 400,
            "",
            "blah " * 4_000,
            ProviderError("unavailable", "503", status=503),
            ProviderError("overflow", "too long", status=400),
            ProviderError("overflow", "max 3500", status=400, window=3_500),
            ProviderError("refused", "no"),
            ProviderError("auth", "401", status=401),
        ]
    ),
    max_size=12,
)
configurations = st.fixed_dictionaries(
    {
        "preset": st.sampled_from(["default", "handoff", "span", "ladder", "excerpt"]),
        "landing": st.sampled_from(["rebase", "rebase", "strict"]),
        "trigger": st.sampled_from([0.5, 0.7, 0.9]),
        "user_message_max_tokens": st.sampled_from([None, 300]),
        "tail_tokens": st.sampled_from([None, 200]),
        "micro_compact_interval_steps": st.sampled_from([0, 0, 3]),
    }
)


@run_settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    configuration=configurations,
    operations=operations,
    outcomes=outcomes,
    summary_ms=st.sampled_from([0, 250, 1_000]),
    tool_ms=st.sampled_from([0, 70]),
    sync_ms=st.sampled_from([0, 0, 40]),
)
def test_any_interleaving(
    configuration: dict[str, Any],
    operations: list[Any],
    outcomes: list[Any],
    summary_ms: int,
    tool_ms: int,
    sync_ms: int,
) -> None:
    agent = FakeAgent(
        settings=settings(**configuration),
        window_tokens=WINDOW,
        summary_ms=summary_ms,
        tool_ms=tool_ms,
        sync_ms=sync_ms,
        prefix=50,
    )
    agent.outcomes.extend(outcomes)
    anyio.run(partial(_run, agent, operations))


async def _run(agent: FakeAgent, operations: Sequence[Any]) -> None:
    resumed = False
    for epoch in _split_at_crashes(operations):
        async with Running(agent, resumed=resumed) as service:
            if resumed:
                agent.repair()
                await _bounded(agent, service.settle_on_resume, None)
                assert agent.state.bracket is None
            for operation in epoch.operations:
                await _perform(agent, service, operation)
                agent.assert_sound(running=True)
                assert_paired(agent.messages())
            await _bounded(agent, service.close, None)
            agent.assert_sound()
        check_log(agent)
        if epoch.crash is not None:
            agent = _killed(agent, epoch.crash)
            resumed = True


@dataclass
class Epoch:
    operations: list[Any] = field(default_factory=list)
    crash: float | None = None


def _split_at_crashes(operations: Sequence[Any]) -> list[Epoch]:
    epochs = [Epoch()]
    for operation in operations:
        if isinstance(operation, CrashAt):
            epochs[-1].crash = operation.part
            epochs.append(Epoch())
        else:
            epochs[-1].operations.append(operation)
    return epochs


def _killed(agent: FakeAgent, part: float) -> FakeAgent:
    """The next process, which finds only a part of the log."""
    found = agent.lines[: max(2, int(len(agent.lines) * part))]
    after = FakeAgent(
        settings=agent.settings,
        window_tokens=WINDOW,
        summary_ms=agent.summary_ms,
        tool_ms=agent.tool_ms,
        sync_ms=agent.sync_ms,
        prefix=50,
        lines=list(found),
    )
    after.clock = agent.clock + 1_000
    after.outcomes = agent.outcomes
    bracket = after.state.bracket
    after.foreign = {bracket.start.compaction_id} if bracket is not None else set()
    return after


# ---------------------------------------------------------------- performing


async def _perform(agent: FakeAgent, service: CompactionService, operation: Any) -> None:
    match operation:
        case Turn():
            await _bounded(agent, partial(_turn, agent, service, operation), operation.cancel_after_ms)
        case Compact():
            await _bounded(agent, service.compact_now, operation.cancel_after_ms)
        case Other("queue"):
            service.queue_next_step("more about ports")
        case Other("wait"):
            await agent.advance(operation.ms)
        case Other("uncompact"):
            await _bounded(agent, service.uncompact, None)
        case Other("close"):
            await _bounded(agent, service.close, None)
        case Other():
            _change(agent, operation.what)
            service.on_context_changed()


async def _turn(agent: FakeAgent, service: CompactionService, turn: Turn) -> None:
    steers = {} if turn.steer_at is None else {turn.steer_at: f"steer {agent.new_id('s')}"}
    overflow = ProviderError("overflow", "too long", status=400)
    errors = {} if turn.overflow_at is None else {turn.overflow_at: [overflow]}
    text = f"{agent.new_id('say')} {words(turn.text)}"
    await agent.turn(service, text, [words(n) for n in turn.results], steers=steers, errors=errors)


def _change(agent: FakeAgent, what: str) -> None:
    state = agent.state
    if what == "clear":
        agent.append(r.Clear(agent.clock))
    elif what == "undo" and state.turn_marks:
        agent.append(r.Undo(agent.clock, 1, state.turn_marks[-1].start))
    elif what == "quarantine" and state.entries:
        message = state.entries[0].message
        agent.append(r.Rewrite(agent.clock, "quarantine", 2, 1, edits=(r.Edit(message.id, message.content),)))


async def _bounded(agent: FakeAgent, work: Any, cancel_after_ms: int | None) -> None:
    """Runs something to its end or its cancel; failures with a name are allowed, others are not."""
    over = False
    failure: BaseException | None = None
    scope = anyio.CancelScope()

    async def run() -> None:
        nonlocal over, failure
        try:
            with scope:
                await work()
        except Fault as fault:
            if fault.reason not in ("context_overflow", "compaction_failed", "undo_blocked"):
                failure = fault
        except BaseException as error:
            failure = error
        finally:
            over = True

    assert agent.group is not None
    agent.group.start_soon(run)
    if cancel_after_ms is not None:
        await agent.advance(cancel_after_ms)
        scope.cancel()
    await agent.run_out(lambda: over)
    if failure is not None:
        raise failure


# ---------------------------------------------------------------- checking


def check_log(agent: FakeAgent) -> None:
    """Reads the log as an auditor: every landing against what stood when it began and when it was applied."""
    state = State()
    at_start: dict[str, list[Message]] = {}
    open_bracket: str | None = None
    windows: list[tuple[int, int]] = []
    asked = False
    for line, record in enumerate(agent.records(r.Record), 1):
        before = state.messages()
        landings = list(state.landings)
        apply(state, record, line)
        match record:
            case r.LlmRequest() | r.StepBegin() | r.StepEnd() | r.TurnEnd():
                asked = isinstance(record, r.LlmRequest)
            case r.CompactionStart():
                assert open_bracket is None, "two at once"
                open_bracket = record.compaction_id
                at_start[record.compaction_id] = before
                assert record.message_count == len(before)
                windows = [(x.first_line, x.last_line) for x in landings]
                assert all(record.span[0] > last for _, last in windows), (record.span, windows)
            case r.CompactionCancel():
                assert open_bracket == record.compaction_id
                open_bracket = None
            case r.ApplyCompaction():
                assert open_bracket == record.compaction_id
                open_bracket = None
                count = record.message_count
                assert before[:count] == at_start[record.compaction_id], "a stale result landed"
                added = len(before) - count
                assert state.messages()[len(state.entries) - added :] == before[count:], "something appended was lost"
                assert record.post_tokens < record.pre_tokens
                assert not asked, "landed inside a step"
                assert_paired(before)
                check_user_text(agent, before[:count], state.messages()[: len(record.replacement)], record)
            case r.Rewrite() if record.edits:
                assert record.post_tokens < record.pre_tokens
    assert msgspec.json.encode(state) == msgspec.json.encode(agent.state)


def check_user_text(
    agent: FakeAgent, span: Sequence[Message], kept: Sequence[Message], record: r.ApplyCompaction
) -> None:
    """What stays of the user's words is theirs, within the budget, and all of it where it is little."""
    words_before = [m for m in span if regions.is_real_user_input(m)]
    words_after = [m for m in kept if regions.is_real_user_input(m)]
    texts = [m.text for m in words_before]
    assert all(any(m.text in text for text in texts) for m in words_after), "words that nobody said"
    assert sum(regions.is_summary(m) for m in kept) == 1
    if record.shape != "handoff":
        return
    policy: Policy = resolve_compaction_policy(agent.model, WINDOW, agent.settings)
    before, after = sum(map(message_tokens, words_before)), sum(map(message_tokens, words_after))
    assert after <= policy.user_message_max_tokens
    if before <= policy.user_message_max_tokens // 10 and not agent.state.learned_windows:
        assert after == before, "words were left out that fit"
