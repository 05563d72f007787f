"""The service in a loop, in simulated time: when it compacts, waits, lands, and what it tells."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from protocol.events import (
    CircuitClosed,
    CircuitOpened,
    CompactionBlocked,
    CompactionDiscarded,
    CompactionFailed,
    CompactionLanded,
    CompactionStarted,
    ContextRewritten,
    ContextSoftLimit,
    Notice,
    RetryScheduled,
    TodoItem,
)
from protocol.messages import Message, Origin
from record_store import records as r
from sidecar.compaction import summary_prompt
from sidecar.compaction.service import CompactionService
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from tests.support.compaction_agent import (
    SUMMARY,
    FakeAgent,
    Running,
    replay,
    run_turn,
    settings,
    settle,
    words,
)

pytestmark = pytest.mark.anyio

BUSY = ProviderError("unavailable", "503", status=503)
OVERFLOW = ProviderError("overflow", "too long", status=400)
TOO_LARGE = ProviderError("rejected", "413", status=413, too_large=True)


def agent(preset: str = "handoff", *, window: int = 20_000, **more: Any) -> FakeAgent:
    """Trigger 14,000, block 17,000 of 20,000 tokens, unless said otherwise."""
    fields = {k: more.pop(k) for k in ("summary_ms", "outcomes", "prefix", "lines") if k in more}
    return FakeAgent(settings=settings(**{"trigger": 0.7, "preset": preset, **more}), window_tokens=window, **fields)


def steps(count: int, tokens: int = 280) -> list[str]:
    return [words(tokens) for _ in range(count)]


# ---------------------------------------------------------------- background


async def test_a_background_compaction_lands_while_the_turn_goes_on() -> None:
    a = agent(summary_ms=1_000)
    async with Running(a) as service:
        await run_turn(a, service, "go " + words(50, "goal"), steps(70, 260))
        (started,) = a.of(CompactionStarted)
        (landed,) = a.ends()
        assert (started.trigger, started.mode) == ("auto", "background")
        assert 14_000 <= started.pre_tokens < 14_400
        assert isinstance(landed, CompactionLanded)
        assert landed.summary_kind == "model"
        assert landed.post_tokens < 5_000
        assert not a.of(CompactionBlocked)
        during = [m for m in a.messages() if m.role == "assistant"]
        assert len(during) >= 10, "what came meanwhile stays"
        a.assert_sound()


async def test_rebase_lands_once_per_fill_and_discards_nothing() -> None:
    a = agent(summary_ms=1_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(200))
        landed = a.of(CompactionLanded)
        assert len(a.of(CompactionStarted)) == len(landed) == len(a.ends())
        assert 3 <= len(landed) <= 5
        a.assert_sound()


async def test_what_comes_meanwhile_counts_towards_the_target() -> None:
    a = agent(summary_ms=700, target_ratio=0.25, user_message_max_tokens=4_000)
    for i in range(24):
        a.add(a.say(f"{i} " + words(290)))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(36))
        (landed,) = a.of(CompactionLanded)
        assert any(m.role == "tool" for m in a.messages()), "something came meanwhile"
        assert landed.post_tokens < 5_000
        a.assert_sound()


async def test_strict_discards_and_one_fresh_compaction_lands_at_block() -> None:
    a = agent(summary_ms=1_000, landing="strict")
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(70, 260))
        kinds = [type(e).__name__ for e in a.events if not isinstance(e, ContextSoftLimit)]
        assert kinds == [
            "CompactionStarted",
            "CompactionDiscarded",
            "CompactionStarted",
            "CompactionBlocked",
            "CompactionLanded",
        ]
        assert a.of(CompactionDiscarded)[0].reason == "stale"
        assert a.of(CompactionStarted)[1].mode == "blocking"
        assert a.records(r.TurnEnd)[-1].stop_reason == "end_turn"
        a.assert_sound()


async def test_strict_lands_when_only_the_user_spoke() -> None:
    a = agent(summary_ms=300, landing="strict")
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(43))
        await run_turn(a, service, "last push", steps(4, 500))
        await a.advance(1_000)
        a.assert_sound()
        assert a.of(CompactionStarted)


async def test_at_block_the_turn_waits() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        (blocked,) = a.of(CompactionBlocked)
        (landed,) = a.of(CompactionLanded)
        assert blocked.compaction_id == landed.compaction_id
        assert landed.pre_tokens < 17_400
        order = [type(e).__name__ for e in a.events]
        assert order.index("CompactionBlocked") < order.index("CompactionLanded")
        a.assert_sound()


async def test_equal_ratios_compact_synchronously() -> None:
    a = agent(trigger=0.85, summary_ms=500)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(70))
        (started,) = a.of(CompactionStarted)
        assert started.mode == "blocking"
        lines = [type(x).__name__ for x in a.records(r.CompactionStart, r.ApplyCompaction, r.StepBegin)]
        at = lines.index("CompactionStart")
        assert lines[at + 1] == "ApplyCompaction"
        a.assert_sound()


async def test_a_finished_background_compaction_lands_in_an_idle_agent() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        assert service.context_info(None).compaction is not None
        a.assert_sound(running=True)
        await a.advance(60_000)
        assert isinstance(a.ends()[0], CompactionLanded)
        assert service.context_info(None).compaction is None
        a.assert_sound()


async def test_the_bracket_is_in_the_log_in_order() -> None:
    a = agent(summary_ms=100)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        start, summary, applied = a.records(r.CompactionStart, r.CompactionSummary, r.ApplyCompaction)
        assert start.compaction_id == summary.compaction_id == applied.compaction_id
        assert summary.summary == SUMMARY.strip()
        assert (summary.attempts, summary.dropped_messages, summary.usage.requests) == (1, 0, 1)
        assert applied.replacement_count == len(applied.replacement)
        assert applied.message_count == start.message_count
        assert applied.post_tokens < applied.pre_tokens
        assert a.checkpoints == 1


async def test_the_summary_request_is_the_context_and_one_message() -> None:
    a = agent(summary_ms=100)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        (request,) = a.summary_requests
        assert request.exact
        assert request.model is None
        start = a.records(r.CompactionStart)[0]
        assert len(request.entries) == start.message_count
        assert request.instruction.text == summary_prompt.INSTRUCTION
        assert request.max_output_tokens <= 20_000 - start.pre_tokens - 1_024


# ---------------------------------------------------------------- recovery, todos, tools


async def test_thirty_compactions_in_one_session() -> None:
    a = agent(summary_ms=300, window=8_000)
    async with Running(a) as service:
        for i in range(38):
            await run_turn(a, service, f"needle-{i:03d}", steps(19, 250))
        landed = a.of(CompactionLanded)
        assert len(landed) >= 30
        assert not a.of(CompactionDiscarded, CompactionFailed)
        starts = a.records(r.CompactionStart)
        applied = a.records(r.ApplyCompaction)
        for before, start in zip(applied, starts[1:], strict=False):
            assert start.pre_tokens >= before.post_tokens + 800
        assert all(s.pre_tokens < 0.85 * 8_000 for s in starts)
        last = "\n".join(m.decode() for m in a.step_requests[-1])
        assert all(f"needle-{i:03d}" in last for i in range(38))
        assert sum(t.startswith(summary_prompt.SUMMARY_PREFIX) for t in a.texts()) == 1
        a.assert_sound()


async def test_recovery_names_the_true_lines_of_every_window() -> None:
    a = agent(summary_ms=300, window=8_000)
    async with Running(a) as service:
        for i in range(4):
            await run_turn(a, service, f"part {i}", steps(24, 250))
        spans = [s.span for s in a.records(r.CompactionStart)]
        assert len(spans) >= 3
        assert spans[0][0] == 3
        for (_, last), (first, _) in pairwise(spans):
            assert first > last
        text = next(t for t in a.texts() if t.startswith(summary_prompt.SUMMARY_PREFIX))
        for first, last in spans:
            assert f"{first}-{last}" in text
        assert a.wire_path in text
        for start, (first, last) in zip(a.records(r.CompactionStart), spans, strict=True):
            lines = [
                n for n in range(first, last + 1) if isinstance(_decoded(a, n), (r.AppendMessage, r.ApplyCompaction))
            ]
            assert lines[0] == first
            assert lines[-1] == last, start


def _decoded(a: FakeAgent, line: int) -> r.Record:
    return a.records(r.Record)[line - 1]


async def test_record_tools_join_at_the_first_landing_only() -> None:
    a = agent(summary_ms=100, window=8_000)
    async with Running(a) as service:
        for _ in range(4):
            await run_turn(a, service, "go", steps(24, 250))
        assert len(a.of(CompactionLanded)) >= 3
        (line,) = a.record_access_lines
        assert line == a.of(CompactionLanded)[0].line + 1


async def test_record_tools_stay_away_if_they_are_off() -> None:
    a = agent(summary_ms=100, record_access=False)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        assert not a.record_access_lines
        text = next(t for t in a.texts() if t.startswith(summary_prompt.SUMMARY_PREFIX))
        assert "record_search" not in text


async def test_todos_and_skills_in_use_come_through() -> None:
    a = agent(summary_ms=100)
    a.append(r.TodoUpdate(a.clock, (TodoItem("ship it", "pending"),)))
    a.append(r.SkillActivate(a.clock, "review", "inline", "model", body="Read twice."))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        text = next(t for t in a.texts() if t.startswith(summary_prompt.SUMMARY_PREFIX))
        assert "- [ ] ship it" in text
        assert sum("Read twice." in t for t in a.texts()) == 1


# ---------------------------------------------------------------- failure


@pytest.mark.parametrize(
    ("outcomes", "reason", "attempts"),
    [
        ([BUSY] * 5, "provider_unavailable", 5),
        ([TOO_LARGE] * 4, "overflow", 4),
        ([""] * 5, "empty_summary", 5),
        (["ok"] * 5, "empty_summary", 5),
        ([ProviderError("refused", "no")], "content_filter", 1),
        ([ProviderError("auth", "401", status=401)], "provider_auth", 1),
        ([ProviderError("rejected", "400", status=400)], "provider_rejected", 1),
        ([Fault("no_provider", "no key")], "no_provider", 0),
    ],
)
async def test_after_the_last_failure_the_history_is_untouched(outcomes: list[Any], reason: str, attempts: int) -> None:
    a = agent(summary_ms=10)
    a.outcomes.extend(outcomes)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        before = a.messages()
        await a.advance(60_000)
        failed = a.ends()[0]
        assert isinstance(failed, CompactionFailed)
        assert (failed.reason, failed.attempts) == (reason, attempts)
        assert a.records(r.CompactionCancel)[0].reason == reason
        assert a.messages() == before
        if not a.state.learned_windows:
            await run_turn(a, service, "next", [])
            assert a.step_requests[-1][: len(a.step_requests[-2])] == a.step_requests[-2]
        a.assert_sound()


async def test_an_overflow_of_the_summary_shortens_it_and_teaches_the_window() -> None:
    a = agent(summary_ms=10)
    a.outcomes.append(OVERFLOW)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        first, second = a.summary_requests[:2]
        sent = [sum(map(a.message_tokens, (e.message for e in x.entries))) for x in (first, second)]
        assert 0.6 * sent[0] < sent[1] <= 0.7 * sent[0]
        assert second.entries == first.entries[-len(second.entries) :]
        (learned,) = a.records(r.WindowLearned)
        assert learned.source == "estimate"
        assert learned.window < 14_000
        assert a.records(r.CompactionSummary)[0].dropped_messages == len(first.entries) - len(second.entries)
        assert isinstance(a.ends()[0], CompactionLanded)
        a.assert_sound()


async def test_a_truncated_answer_is_retried_without_the_oldest_message() -> None:
    from protocol.messages import Usage
    from sidecar.compaction.ports import SummaryReply

    a = agent(summary_ms=10)
    a.outcomes.append(SummaryReply("half a", "length", Usage(10, 0, 5, 1), "fake/model"))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(1_000)
        first, second = a.summary_requests
        assert first.exact
        assert not second.exact
        assert second.attempt == 2
        assert second.entries == first.entries[1:]
        (summary,) = a.records(r.CompactionSummary)
        assert (summary.attempts, summary.dropped_messages, summary.usage.requests) == (2, 1, 2)
        assert isinstance(a.ends()[0], CompactionLanded)


async def test_retries_are_told_and_wait() -> None:
    a = agent()
    a.outcomes.extend([ProviderError("rate_limited", "429", status=429, retry_after_s=7.0), SUMMARY])
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(20_000)
        (retry,) = a.of(RetryScheduled)
        assert (retry.attempt, retry.delay_ms, retry.reason, retry.status) == (2, 7_000, "provider_rate_limited", 429)
        assert a.of(CompactionLanded)[0].duration_ms >= 7_000


async def test_a_turn_that_waits_at_block_gets_an_excerpt_instead() -> None:
    a = agent(summary_ms=2_000)
    a.outcomes.extend([BUSY] * 5)
    async with Running(a) as service:
        await run_turn(a, service, "needle-7", steps(60))
        (landed,) = a.ends()
        assert isinstance(landed, CompactionLanded)
        assert landed.summary_kind == "excerpt"
        assert a.of(CompactionStarted)[0].compaction_id == landed.compaction_id
        assert not a.records(r.CompactionSummary, r.CompactionCancel)
        assert a.records(r.TurnEnd)[-1].stop_reason == "end_turn"
        text = next(t for t in a.texts() if t.startswith(summary_prompt.SUMMARY_PREFIX))
        assert "- tool read_file" in text
        assert a.text_tokens(text) < 0.05 * 20_000 + 400
        a.assert_sound()


async def test_no_gain_at_block_gets_an_excerpt_too() -> None:
    a = agent(summary_ms=3_000)
    a.outcomes.append("blah " * 16_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        (landed,) = a.ends()
        assert landed.summary_kind == "excerpt"
        a.assert_sound()


async def test_no_gain_is_a_failure() -> None:
    a = agent()
    a.outcomes.append("blah " * 16_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(1_000)
        (failed,) = a.ends()
        assert failed.reason == "no_gain"
        assert a.records(r.CompactionCancel)[0].reason == "no_gain"


async def test_after_a_failure_it_waits_for_the_margin_or_for_block() -> None:
    a = agent(summary_ms=10)
    a.outcomes.append(ProviderError("auth", "401"))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        first, second = a.records(r.CompactionStart)[:2]
        assert second.pre_tokens >= first.pre_tokens + 2_000
        assert a.state.breakers.failed_at is None


async def test_a_full_disk_ends_it_as_failed() -> None:
    a = agent(summary_ms=1_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        a.fail_appends = True
        await a.advance(5_000)
        (failed,) = a.ends()
        assert failed.reason == "store_write_failed"
        a.fail_appends = False
        await run_turn(a, service, "more", steps(20))
        await a.advance(5_000)
        assert isinstance(a.ends()[-1], CompactionLanded)
        assert a.records(r.CompactionCancel)[0].reason == "restart"


async def test_a_mistake_of_ours_ends_it_as_failed_and_is_reported() -> None:
    a = agent()
    a.outcomes.append(ZeroDivisionError())
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(1_000)
        assert a.ends()[0].reason == "internal"
        assert len(a.reports) == 1


# ---------------------------------------------------------------- breakers


async def test_three_failures_open_the_circuit_and_a_step_below_the_trigger_closes_it() -> None:
    a = agent(trigger=0.5)
    a.outcomes.extend([ProviderError("auth", "401")] * 3)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60, 240))
        (opened,) = a.of(CircuitOpened)
        assert opened.reason == "consecutive_failures"
        assert len(a.of(CompactionStarted)) == 3
        info = service.context_info(None).breakers["consecutive_failures"]
        assert (info.open, info.count) == (True, 3)
        a.append(r.Undo(a.clock, 1, 1))
        service.on_context_changed()
        assert a.of(CircuitClosed)[0].reason == "consecutive_failures"


async def test_quick_refills_open_the_other_and_the_model_is_told() -> None:
    a = agent(window=8_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(14, 5_000))
        assert [e.reason for e in a.of(CircuitOpened)] == ["rapid_refill"]
        assert len(a.of(CompactionLanded)) == 4
        reminders = [m for m in a.messages() if m.origin and m.origin.variant == "compaction_thrashing"]
        assert [m.text for m in reminders] == [summary_prompt.THRASHING]
        a.assert_sound()


async def test_a_manual_compaction_closes_both() -> None:
    a = agent()
    a.append(r.ConfigUpdate(a.clock, breakers=r.Breakers(failures=3, failures_open=True, refills=3, refills_open=True)))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        a.append(r.ConfigUpdate(a.clock, breakers=r.Breakers(failures=3, failures_open=True)))
        service.on_context_changed()
        a.events.clear()
        assert (await service.compact_now()).outcome == "landed"
        assert [e.reason for e in a.of(CircuitClosed)] == ["consecutive_failures"]
        assert a.state.breakers == r.Breakers(steps_since_landing=0)


async def test_a_larger_window_closes_them() -> None:
    a = agent()
    async with Running(a) as service:
        a.append(r.ConfigUpdate(a.clock, breakers=r.Breakers(failures=3, failures_open=True)))
        service.on_context_changed()
        assert a.of(CircuitOpened)
        a.window_tokens = 40_000
        await service.on_will_begin_step("t")
        assert a.of(CircuitClosed)
        assert not a.state.breakers.failures_open


# ---------------------------------------------------------------- overflow


async def test_an_overflow_compacts_and_the_step_goes_again() -> None:
    a = agent()
    named = ProviderError("overflow", "max is 9000", status=400, window=9_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(20), errors={20: [named]})
        (started,) = a.of(CompactionStarted)
        assert (started.trigger, started.mode) == ("overflow", "blocking")
        assert isinstance(a.ends()[0], CompactionLanded)
        info = service.context_info(None)
        assert (info.window, info.window_source) == (9_000, "learned")
        assert [e.kind for e in a.of(Notice)] == ["window_learned"]
        a.assert_sound()


async def test_the_fourth_overflow_in_a_row_fails() -> None:
    a = agent()
    async with Running(a) as service:
        with pytest.raises(Fault) as caught:
            await run_turn(a, service, words(400), steps(20), errors={20: [OVERFLOW] * 9})
        assert caught.value.reason == "context_overflow"
        assert caught.value.hint
        assert len(a.records(r.WindowLearned)) == 1
        assert len(a.of(CompactionStarted)) <= 3
        a.assert_sound()


async def test_with_nothing_left_an_overflow_fails_at_once() -> None:
    a = agent()
    async with Running(a) as service:
        with pytest.raises(Fault) as caught:
            await run_turn(a, service, "hi", [], errors={1: [OVERFLOW]})
        assert caught.value.reason == "context_overflow"
        assert not a.of(CompactionStarted)


async def test_the_run_ends_with_a_step_that_works() -> None:
    a = agent()
    errors = {n: [ProviderError("overflow", "413", status=413, too_large=True)] for n in range(10, 20)}
    a.settings = settings(trigger=0.7, preset="handoff", target_ratio=0.5)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(30, 1_100), errors={k: errors[k] for k in (10, 20) if k in errors})
        assert not a.records(r.WindowLearned)
        a.assert_sound()


async def test_other_errors_are_not_ours() -> None:
    a = agent()
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(3))
        assert not await service.on_request_error("t", ProviderError("rejected", "bad", status=400))
        assert not await service.on_request_error("t", ProviderError("rejected", "413", status=413, too_large=True))
        assert not await service.on_request_error("t", BUSY)


async def test_an_overflow_works_with_open_circuits() -> None:
    a = agent()
    async with Running(a) as service:
        a.append(r.ConfigUpdate(a.clock, breakers=r.Breakers(failures=3, failures_open=True, refills_open=True)))
        await run_turn(a, service, "go", steps(5))
        assert await service.on_request_error("t", OVERFLOW)


async def test_automatic_compaction_off_means_off() -> None:
    a = agent("default", auto=False, micro_compact_interval_steps=2)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(65))
        assert a.used() > 17_000
        assert [type(e) for e in a.events] == [ContextSoftLimit]
        with pytest.raises(Fault) as caught:
            await service.on_request_error("t", OVERFLOW)
        assert caught.value.reason == "context_overflow"
        assert "compact" in (caught.value.hint or "")
        assert (await service.compact_now()).outcome == "landed"


async def test_an_overflow_waits_for_the_running_one() -> None:
    a = agent(summary_ms=5_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48), errors={48: [OVERFLOW]})
        assert len(a.of(CompactionStarted)) == 1
        assert isinstance(a.ends()[0], CompactionLanded)
        a.assert_sound()


# ---------------------------------------------------------------- manual


async def test_compact_now_lands_with_its_instruction() -> None:
    a = agent()
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        outcome = await service.compact_now("keep the ports")
        assert outcome.outcome == "landed"
        assert outcome.tokens_before is not None
        assert outcome.tokens_after == a.used()
        assert outcome.tokens_after < outcome.tokens_before
        assert a.summary_requests[0].instruction.text.endswith("keep the ports")
        assert a.records(r.CompactionStart)[0].instruction == "keep the ports"
        assert a.of(CompactionStarted)[0].trigger == "manual"
        a.assert_sound()


async def test_nothing_to_compact() -> None:
    a = agent()
    async with Running(a) as service:
        assert (await service.compact_now()).outcome == "nothing_to_compact"
        await run_turn(a, service, "go", steps(5))
        assert (await service.compact_now()).outcome == "landed"
        assert (await service.compact_now()).outcome == "nothing_to_compact"
        assert len(a.of(CompactionStarted)) == 1


async def test_a_manual_failure_is_an_error_with_its_cause() -> None:
    a = agent()
    a.outcomes.append("long " * 16_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        with pytest.raises(Fault) as caught:
            await service.compact_now()
        assert caught.value.reason == "compaction_failed"
        assert caught.value.data["cause"] == "no_gain"
        assert a.state.breakers.failures == 0


async def test_cancelling_the_call_cancels_the_compaction() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        before = list(a.state.entries)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(service.compact_now)
                await settle()
                scope.cancel()
        (end,) = a.ends()
        assert (type(end), end.reason) == (CompactionDiscarded, "cancelled")
        assert a.records(r.CompactionCancel)[0].reason == "cancelled"
        assert a.state.entries == before
        assert (await _later(a, service)).outcome == "landed"


class Unhurried(FakeAgent):
    """What is being written is written to its end."""

    async def sync(self) -> None:
        with anyio.CancelScope(shield=True):
            await super().sync()


async def test_nothing_is_asked_of_a_compaction_that_ended_while_its_start_was_written() -> None:
    a = Unhurried(settings=settings(), window_tokens=20_000, sync_ms=100)
    async with Running(a) as service, anyio.create_task_group() as tasks:
        a.add_exchange(words(3_000), answer="done")

        async def compact() -> None:
            with pytest.raises(Fault):
                await service.compact_now()

        tasks.start_soon(compact)
        await settle()
        assert a.of(CompactionStarted)
        assert service.cancel_manual()
        await a.advance(1_000)
        assert not a.summary_requests
        assert len(a.ends()) == 1


async def test_cancel_manual() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        assert not service.cancel_manual()
        caught: list[Fault] = []

        async def call() -> None:
            try:
                await service.compact_now()
            except Fault as fault:
                caught.append(fault)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await settle()
            assert service.cancel_manual()
        assert caught[0].data["cause"] == "cancelled"
        a.assert_sound()


async def _later(a: FakeAgent, service: CompactionService) -> Any:
    """A manual compaction while time passes."""
    found: list[Any] = []

    async def call() -> None:
        found.append(await service.compact_now())

    assert a.group is not None
    a.group.start_soon(call)
    await a.run_out(lambda: bool(found))
    return found[0]


async def test_manual_waits_for_the_running_one_instead_of_a_second() -> None:
    a = agent(summary_ms=30_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        outcome = await _later(a, service)
        assert outcome.compaction_id == a.of(CompactionStarted)[0].compaction_id
        assert len(a.of(CompactionStarted)) == 1


async def test_next_step_runs_at_the_boundary_whatever_the_size() -> None:
    a = agent(summary_ms=300)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        service.queue_next_step("short please")
        service.queue_next_step(None)
        await run_turn(a, service, "on", steps(3))
        (started,) = a.of(CompactionStarted)
        assert (started.trigger, started.mode) == ("manual", "blocking")
        assert a.summary_requests[0].instruction.text.endswith("short please")
        assert isinstance(a.ends()[0], CompactionLanded)
        assert "on" in a.texts()
        a.assert_sound()


async def test_a_queued_request_that_fails_does_not_end_the_turn() -> None:
    a = agent()
    a.outcomes.append(ProviderError("auth", "401"))
    async with Running(a) as service:
        service.queue_next_step(None)
        await run_turn(a, service, "go", steps(3))
        assert a.ends() == [] or isinstance(a.ends()[0], CompactionFailed)
        assert a.records(r.TurnEnd)[-1].stop_reason == "end_turn"


# ---------------------------------------------------------------- cancel


async def _cancel_turn(a: FakeAgent, service: CompactionService, results: list[str], when: Any) -> None:
    """Runs a turn and cancels it once `when()` holds."""
    scope = anyio.CancelScope()
    over = False

    async def work() -> None:
        nonlocal over
        with scope:
            await a.turn(service, "go", results)
        over = True

    assert a.group is not None
    a.group.start_soon(work)
    await a.run_out(when)
    scope.cancel()
    await a.run_out(lambda: over)


async def test_cancelling_a_turn_leaves_a_compaction_that_it_does_not_wait_for() -> None:
    a = agent(summary_ms=3_000)
    async with Running(a) as service:
        await _cancel_turn(a, service, steps(60), lambda: bool(a.of(CompactionStarted)))
        assert not a.ends()
        a.checks = False
        await a.advance(5_000)
        assert isinstance(a.ends()[0], CompactionLanded)


async def test_cancelling_a_turn_that_waits_cancels_the_compaction() -> None:
    a = agent(summary_ms=600_000)
    async with Running(a) as service:
        await _cancel_turn(a, service, steps(80), lambda: bool(a.of(CompactionBlocked)))
        (end,) = a.ends()
        assert (type(end), end.reason) == (CompactionDiscarded, "cancelled")
        assert a.state.bracket is None
        a.assert_sound()


async def test_cancelling_a_turn_while_its_hook_lands_does_not_undo_the_landing() -> None:
    a = agent(summary_ms=60)
    async with Running(a) as service:
        a.landing_sync_ms = 5_000
        a.settings = settings(trigger=0.7, preset="handoff", record_access=False)
        await run_turn(a, service, "go", steps(47))
        await _cancel_turn(a, service, steps(20), lambda: bool(a.records(r.ApplyCompaction)))
        await a.advance(20_000)
        (end,) = a.ends()
        assert isinstance(end, CompactionLanded)
        assert service.context_info(None).compaction is None
        a.assert_sound()


async def test_undo_of_the_span_stops_it_at_once() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "first", steps(5))
        await run_turn(a, service, "second", steps(43))
        assert a.of(CompactionStarted)
        a.append(r.Undo(a.clock, 1, a.state.turn_marks[-1].start))
        service.on_context_changed()
        (end,) = a.ends()
        assert (type(end), end.reason) == (CompactionDiscarded, "stale")
        await a.advance(100_000)
        a.assert_sound()


async def test_undo_behind_the_span_lets_it_land() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "first", steps(48))
        await run_turn(a, service, "second", steps(2))
        a.append(r.Undo(a.clock, 1, a.state.turn_marks[-1].start))
        service.on_context_changed()
        assert not a.ends()
        await a.advance(100_000)
        assert isinstance(a.ends()[0], CompactionLanded)
        assert "second" not in a.texts()
        a.assert_sound()


async def test_close_cancels_what_runs() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await service.close()
        (end,) = a.ends()
        assert (type(end), end.reason) == (CompactionDiscarded, "cancelled")
        a.assert_sound()
        await service.close()


# ---------------------------------------------------------------- resume


async def _crashed(line_type: type, **more: Any) -> list[bytes]:
    """A log that ends right after the first record of that type."""
    a = agent(summary_ms=100, **more)
    async with Running(a) as service:
        await run_turn(a, service, "needle-1", steps(50))
        at = next(n for n, x in enumerate(a.records(r.Record), 1) if isinstance(x, line_type))
        return a.lines[:at]


async def test_killed_after_start_the_span_is_intact() -> None:
    lines = await _crashed(r.CompactionStart)
    before = replay(lines)
    a = agent(lines=list(lines))
    async with Running(a, resumed=True) as service:
        recovered = await service.settle_on_resume()
        assert recovered is not None
        assert recovered.kind == "open_compaction"
        assert a.state.entries == before.entries
        assert a.records(r.CompactionCancel)[0].reason == "restart"
        assert not a.summary_requests
        assert await service.settle_on_resume() is None


async def test_killed_after_summary_the_paid_summary_lands_without_a_request() -> None:
    lines = await _crashed(r.CompactionSummary)
    a = agent(lines=list(lines))
    async with Running(a, resumed=True) as service:
        recovered = await service.settle_on_resume()
        assert recovered is not None
        (landed,) = a.of(CompactionLanded)
        assert landed.summary_kind == "model"
        assert not a.summary_requests
        assert any(SUMMARY.strip() in t for t in a.texts())
        assert a.synced_lines >= landed.line
        assert a.state.bracket is None


async def test_a_session_that_is_cancelled_keeps_the_paid_summary_for_the_next() -> None:
    a = agent(summary_ms=100)

    def slow_disk(_: Any) -> str:
        a.sync_ms = 5_000
        return SUMMARY

    a.outcomes.append(slow_disk)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(300)
        assert isinstance(a.records(r.Record)[-1], (r.TurnEnd, r.StepEnd, r.CompactionSummary))
        assert not a.ends()
        assert a.group is not None
        a.group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await a.advance(10_000)
    assert not a.records(r.CompactionCancel)
    b = agent(lines=list(a.lines))
    async with Running(b, resumed=True) as service:
        await service.settle_on_resume()
        assert b.state.landings
        assert not b.summary_requests


async def test_a_paid_summary_of_a_changed_span_is_stale() -> None:
    lines = await _crashed(r.CompactionSummary)
    a = agent(lines=list(lines))
    a.append(r.Rewrite(a.clock, "quarantine", 10, 9, edits=(r.Edit(a.state.entries[0].message.id, ()),)))
    async with Running(a, resumed=True) as service:
        await service.settle_on_resume()
        assert a.of(CompactionDiscarded)[0].reason == "stale"
        assert not a.state.landings


async def test_replaying_a_crashed_log_gives_the_bytes_of_the_uncrashed_run() -> None:
    a = agent(summary_ms=100)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
    seen: list[Any] = []
    state = replay([])
    for n in range(1, len(a.lines) + 1):
        state = replay(a.lines[:n])
        seen.append(state)
    assert state == a.state


# ---------------------------------------------------------------- uncompact


async def test_uncompact_brings_the_span_back() -> None:
    a = agent(window=40_000)
    async with Running(a) as service:
        await run_turn(a, service, "go " + words(50), steps(20))
        before, turns = list(a.state.entries), list(a.state.turn_marks)
        landed = await service.compact_now()
        await run_turn(a, service, "more", steps(2))
        later = a.messages()[-6:]
        tokens = await service.uncompact(landed.compaction_id)
        assert a.state.turn_marks[:-1] == turns
        assert a.state.turn_marks[-1].start == len(before)
        assert a.messages() == [e.message for e in before] + later
        assert [e.line for e in a.state.entries[: len(before)]] == [e.line for e in before]
        assert tokens == a.used()
        assert not a.state.landings
        assert a.of(ContextRewritten)[-1].action == "uncompact"
        a.assert_sound()


async def test_uncompact_twice_goes_back_two_landings() -> None:
    a = agent(window=40_000)
    async with Running(a) as service:
        await run_turn(a, service, "one", steps(10))
        first = a.messages()
        await service.compact_now()
        await run_turn(a, service, "two", steps(10))
        await service.compact_now()
        await service.uncompact()
        await service.uncompact()
        assert a.messages()[: len(first)] == first
        with pytest.raises(Fault) as caught:
            await service.uncompact()
        assert caught.value.data["cause"] == "nothing_to_bring_back"


async def test_what_was_brought_back_is_not_shortened_at_once() -> None:
    a = agent(trigger=0.85)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(41))
        await service.compact_now()
        a.settings = settings(trigger=0.5, preset="default")
        await service.uncompact()
        assert a.used() >= 12_000
        before = a.messages()
        await run_turn(a, service, "on", steps(3))
        assert a.messages()[: len(before)] == before


async def test_uncompact_refuses_what_does_not_fit() -> None:
    a = agent(window=40_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(20))
        await service.compact_now()
        a.window_tokens = 6_000
        before = a.messages()
        with pytest.raises(Fault) as caught:
            await service.uncompact()
        assert (caught.value.reason, caught.value.data["cause"]) == ("undo_blocked", "does_not_fit")
        assert a.messages() == before


async def test_uncompact_of_another_one_is_refused() -> None:
    a = agent()
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        await service.compact_now()
        with pytest.raises(Fault):
            await service.uncompact("cmp_other")
        a.append(r.HostRevision(a.clock, 1, 1, ()))
        with pytest.raises(Fault) as caught:
            await service.uncompact()
        assert caught.value.data["cause"] == "nothing_to_bring_back"


async def test_uncompact_restores_the_count_of_what_was_left_out() -> None:
    a = agent(user_message_max_tokens=300, user_message_head_tokens=30)
    async with Running(a) as service:
        await run_turn(a, service, words(600), steps(3))
        await service.compact_now()
        assert a.state.elided_tokens > 0
        await service.uncompact()
        assert a.state.elided_tokens == 0


# ---------------------------------------------------------------- the free half


async def test_pruning_at_the_trigger_saves_the_summary() -> None:
    a = agent("span")
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(46, 290))
        (rewritten,) = a.of(ContextRewritten)
        assert rewritten.action == "prune"
        assert rewritten.post_tokens <= 12_000
        assert not a.of(CompactionStarted)
        record = a.records(r.Rewrite)[0]
        assert (record.pre_tokens, record.post_tokens) == (rewritten.pre_tokens, rewritten.post_tokens)
        a.assert_sound()


async def test_a_plan_that_falls_short_does_not_land_and_the_summary_sees_the_raw_context() -> None:
    a = agent("span", summary_ms=100, keep_last_messages=90)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        assert a.of(CompactionStarted)
        assert a.summary_requests[0].exact
        assert not any("elided" in e.message.text for e in a.summary_requests[0].entries)
        before = [type(e).__name__ for e in a.events]
        assert before.index("CompactionStarted") == 1


async def test_handoff_never_prunes() -> None:
    a = agent("handoff")
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        assert not a.records(r.Rewrite)


async def test_ladder_snips_a_warm_context_and_default_does_not() -> None:
    big = "\n".join(f"line {i}" for i in range(600))
    for preset, snips in (("ladder", True), ("default", False)):
        a = agent(preset, trigger=0.8)
        async with Running(a) as service:
            await run_turn(a, service, "go", [big] * 11)
            a.settings = settings(trigger=0.8, preset=preset, tail_tokens=2_000)
            await run_turn(a, service, "go", [words(20)])
            assert bool(a.of(ContextRewritten)) is snips, preset
            if snips:
                assert a.of(ContextRewritten)[0].action == "snip"
                assert any("[snipped tool result — read_file" in t for t in a.texts())


@pytest.mark.parametrize("why", ["idle", "prefix", "resumed"])
async def test_a_cold_cache_is_used_to_snip(why: str) -> None:
    big = "\n".join(f"line {i}" for i in range(600))
    a = agent("default", trigger=0.8, tail_tokens=2_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", [big] * 11)
        assert not a.of(ContextRewritten)
    if why == "idle":
        a.clock += 301_000
    if why == "prefix":
        a.changed_prefix = True
    async with Running(a, resumed=why == "resumed") as service:
        await run_turn(a, service, "on", [])
        assert [e.action for e in a.of(ContextRewritten)] == ["snip"]
        a.assert_sound()


async def test_below_the_snip_ratio_a_cold_cache_changes_nothing() -> None:
    big = "\n".join(f"line {i}" for i in range(600))
    a = agent("default", trigger=0.8, tail_tokens=2_000)
    async with Running(a, resumed=True) as service:
        await run_turn(a, service, "go", [big] * 3)
        a.clock += 301_000
        await run_turn(a, service, "on", [])
        assert not a.of(ContextRewritten)


async def test_micro_compaction_every_n_steps() -> None:
    a = agent("handoff", micro_compact_interval_steps=4)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(9))
        actions = [e.action for e in a.of(ContextRewritten)]
        assert actions == ["micro_compact", "micro_compact"]
        assert sum(t.startswith("[elided tool result") for t in a.texts()) == 6
        assert not a.texts()[-2].startswith("[elided")


async def test_no_rewrite_while_a_compaction_runs() -> None:
    a = agent("span", summary_ms=2_000, micro_compact_interval_steps=1, keep_last_tool_results=200)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        order = [type(e).__name__ for e in a.events]
        start, landed = order.index("CompactionStarted"), order.index("CompactionLanded")
        assert "ContextRewritten" not in order[start:landed]


async def test_a_tail_that_is_the_pressure_is_shortened_at_last() -> None:
    a = agent("span", window=10_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", [words(7_000)])
        (rewritten,) = a.of(ContextRewritten)
        assert rewritten.action == "prune"
        assert a.used() < 6_000
        assert not a.of(CompactionStarted)
        a.assert_sound()


async def test_old_images_are_offloaded_first() -> None:
    from tests.unit.compaction.build import IMAGE

    a = agent("span", window=10_000)
    for i in range(6):
        a.add(a.say(f"look {i}", None, IMAGE))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(14))
        rewritten = a.of(ContextRewritten)
        assert rewritten[0].action == "image_offload"
        assert sum("[image offloaded: " in t for t in a.texts()) >= 1


async def test_a_warm_cache_is_not_given_up_for_little() -> None:
    a = agent("ladder", trigger=0.8, tail_tokens=2_000)
    little = "\n".join(f"line {i} {'x' * 100}" for i in range(95))
    async with Running(a) as service:
        await run_turn(a, service, "go", [little, *steps(40)])
        assert a.used() > 12_000
        assert not a.of(ContextRewritten)
        a.clock += 301_000
        await run_turn(a, service, "on", [])
        assert [e.action for e in a.of(ContextRewritten)] == ["snip"]


async def test_a_landing_that_leaves_too_much_is_followed_by_the_last_pass() -> None:
    a = agent("span", window=10_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", [*steps(6, 250), words(7_000), words(5)])
        order = [type(e).__name__ for e in a.events if not isinstance(e, ContextSoftLimit)]
        landed = order.index("CompactionLanded")
        assert a.of(CompactionLanded)[0].post_tokens >= 7_000
        assert order[landed + 1] == "ContextRewritten"
        assert a.used() < 7_000
        a.assert_sound()


async def test_no_request_goes_out_above_block_after_a_landing_that_leaves_too_much() -> None:
    a = agent("span", window=10_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", [*steps(6, 250), words(9_000)])
        assert a.of(CompactionLanded)[0].post_tokens >= 8_500
        largest = max(sum(map(len, request)) for request in a.step_requests)
        assert largest < 4 * 8_500
        a.assert_sound()


async def test_a_note_that_the_next_turn_tells_again_is_no_reason_to_pay_for_a_summary() -> None:
    a = agent("span", window=10_000)
    a.add(a.say("<current-date>", Origin("injection", variant="date")))
    async with Running(a) as service:
        await run_turn(a, service, "go", [words(7_000)])
        assert [e.action for e in a.of(ContextRewritten)] == ["prune"]
        assert not a.of(CompactionStarted)
        a.assert_sound()


async def test_at_the_force_ratio_a_plan_that_falls_short_lands_all_the_same() -> None:
    a = agent("span", trigger=0.5, window=10_000, keep_last_messages=30)
    for _ in range(31):
        a.add_exchange(words(280))
    a.append(r.ConfigUpdate(a.clock, breakers=r.Breakers(failures=3, failures_open=True)))
    async with Running(a) as service:
        assert a.used() > 9_000
        await service.on_will_begin_step("t")
        (rewritten,) = a.of(ContextRewritten)
        assert rewritten.action == "prune"
        assert rewritten.post_tokens > 4_000, "short of the goal"
        assert not a.of(CompactionStarted)


async def test_at_block_with_no_gain_at_all_results_go_as_a_last_resort() -> None:
    a = agent(window=10_000, prefix=8_300)
    async with Running(a) as service:
        await run_turn(a, service, "go", [words(300)])
        assert a.ends()[0].reason == "no_gain"
        assert [e.action for e in a.of(ContextRewritten)] == ["prune"]
        a.assert_sound()


# ---------------------------------------------------------------- other settings


async def test_the_excerpt_preset_asks_no_model() -> None:
    a = agent("excerpt", keep_last_tool_results=100)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60))
        assert not a.summary_requests
        landed = a.of(CompactionLanded)
        assert landed
        assert {e.summary_kind for e in landed} == {"excerpt"}
        assert not a.of(CompactionBlocked)
        a.assert_sound()


async def test_another_model_makes_the_summary() -> None:
    a = agent(model="fake/small")
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(50))
        assert a.summary_requests[0].model == "fake/small"
        assert a.records(r.CompactionSummary)[0].model == "fake/small"


async def test_images_reach_the_summary_as_text() -> None:
    from protocol.messages import ImagePart
    from tests.unit.compaction.build import IMAGE

    a = agent()
    a.add(a.say("look", None, IMAGE))
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        await a.advance(1_000)
        (request,) = a.summary_requests
        assert not request.exact
        assert not any(isinstance(p, ImagePart) for e in request.entries for p in e.message.content)
        assert any(isinstance(p, ImagePart) for m in a.messages() for p in m.content)


async def test_one_soft_notice_per_ascent() -> None:
    a = agent(window=8_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(40, 250))
        landed = len(a.of(CompactionLanded))
        assert landed >= 1
        assert landed <= len(a.of(ContextSoftLimit)) <= landed + 1
        assert all(e.used >= 4_000 for e in a.of(ContextSoftLimit))


async def test_an_impossible_reserve_is_told_once() -> None:
    a = agent(reserve=20_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        assert [e.kind for e in a.of(Notice)] == ["reserve_ignored"]


async def test_the_cheapest_trigger_is_found_from_what_the_session_measures() -> None:
    a = agent("handoff", window=1_000_000, objective="cost")
    async with Running(a) as service:
        await run_turn(a, service, "go " + words(100), steps(80, 1_400))
        info = service.context_info(None)
        assert info.trigger_at < 60_000
        assert info.policy["objective"] == "cost"
        landed = a.of(CompactionLanded)
        assert landed
        starts = [s.pre_tokens for s in a.records(r.CompactionStart)]
        assert max(starts) < 60_000
        assert not a.of(CircuitOpened)
        a.assert_sound()


async def test_context_info() -> None:
    a = agent(summary_ms=60_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(48))
        info = service.context_info(None)
        assert (info.window, info.window_source, info.stage) == (20_000, "config", "trigger")
        assert (info.soft_at, info.trigger_at, info.block_at) == (10_000, 14_000, 17_000)
        assert info.compaction is not None
        assert (info.compaction.mode, info.compaction.trigger) == ("background", "auto")
        assert info.last_landing is None
        await a.advance(60_000)
        info = service.context_info(None)
        landed = a.of(CompactionLanded)[0]
        assert info.last_landing is not None
        assert (info.last_landing.compaction_id, info.last_landing.line) == (landed.compaction_id, landed.line)
        assert info.used == landed.post_tokens


async def test_steers_during_a_compaction_stay_behind_it() -> None:
    a = agent(summary_ms=1_000)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(60), steers={n: f"steer-{n}" for n in (5, 47, 49, 55)})
        texts = a.texts()
        assert all(f"steer-{n}" in texts for n in (5, 47, 49, 55))
        continuation = texts.index(summary_prompt.CONTINUATION)
        assert texts.index("steer-5") < continuation < texts.index("steer-49")
        a.assert_sound()


async def test_kept_user_messages_keep_their_origin_and_bytes() -> None:
    a = agent()
    slash = Origin("skill_activation", trigger="user_slash")
    original: Message = a.say("/review please", slash)
    a.add(original)
    async with Running(a) as service:
        await run_turn(a, service, "go", steps(5))
        await service.compact_now()
        assert a.messages()[0] is original
