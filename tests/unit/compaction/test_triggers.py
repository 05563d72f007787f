"""When to start, when to wait, what an overflow teaches."""

from __future__ import annotations

import pytest

from record_store.records import Breakers
from sidecar.compaction import triggers
from sidecar.compaction.triggers import Lesson, OverflowRun, is_overflow, lesson_of, should_start, soft_notice_due
from sidecar.providers.errors import ProviderError
from tests.unit.compaction.build import policy

P = policy(10_000)  # trigger 7,500, block 8,500, margin 1,000


@pytest.mark.parametrize(
    ("used", "stage"),
    [(0, "normal"), (4_999, "normal"), (5_000, "soft"), (7_500, "trigger"), (8_499, "trigger"), (8_500, "block")],
)
def test_stages(used: int, stage: str) -> None:
    assert triggers.stage(P, used) == stage


def test_it_starts_at_the_trigger() -> None:
    assert should_start(P, 7_499, Breakers(), None) == "below"
    assert should_start(P, 7_500, Breakers(), None) == "start"


def test_the_reserve_starts_it_too() -> None:
    p = policy(10_000, reserve=4_000)
    assert should_start(p, 5_999, Breakers(), None) == "below"
    assert should_start(p, 6_000, Breakers(), None) == "start"
    assert triggers.must_wait(p, 6_000)


def test_the_margin_counts_from_where_the_last_one_landed() -> None:
    assert should_start(P, 7_500, Breakers(), 3_000) == "start"
    assert should_start(P, 7_900, Breakers(), 7_000) == "margin"
    assert should_start(P, 8_000, Breakers(), 7_000) == "start"


def test_the_margin_is_kept_even_at_block() -> None:
    assert should_start(P, 9_000, Breakers(), 8_200) == "margin"


@pytest.mark.parametrize("breakers", [Breakers(failures_open=True), Breakers(refills_open=True)])
def test_an_open_circuit_starts_nothing(breakers: Breakers) -> None:
    assert should_start(P, 9_900, breakers, None) == "circuit_open"


def test_after_a_failure_it_waits_for_the_margin_or_for_block() -> None:
    failed = Breakers(failed_at=7_500)
    assert should_start(P, 7_600, failed, None) == "failed_before"
    assert should_start(P, 8_500, failed, None) == "start"
    failed_low = Breakers(failed_at=6_400)
    assert should_start(P, 7_500, failed_low, None) == "start"


def test_automatic_compaction_can_be_off() -> None:
    off = policy(10_000, auto=False)
    assert should_start(off, 9_999, Breakers(), None) == "disabled"
    assert not triggers.must_wait(off, 9_999)


def test_one_soft_notice_per_ascent() -> None:
    told = False
    seen = []
    for used in (4_000, 5_000, 6_000, 4_000, 5_500, 5_600):
        due, told = soft_notice_due(P, used, told)
        seen.append(due)
    assert seen == [False, True, False, False, True, False]


# ---------------------------------------------------------------- overflow


def overflow(window: int | None = None) -> ProviderError:
    return ProviderError("overflow", "too long", status=400, window=window)


def test_what_counts_as_an_overflow() -> None:
    plain = ProviderError("rejected", "413", status=413, too_large=True)
    assert is_overflow(overflow(), 10, 10_000)
    assert is_overflow(plain, 5_001, 10_000)
    assert not is_overflow(plain, 5_000, 10_000)
    assert not is_overflow(ProviderError("rejected", "bad", status=400), 9_999, 10_000)
    assert not is_overflow(ProviderError("unavailable", "503"), 9_999, 10_000)


def test_a_named_maximum_is_learned_exactly() -> None:
    assert lesson_of(overflow(8_192), 9_000, 10_000, OverflowRun()) == Lesson(8_192, "named")


def test_a_named_maximum_never_raises_the_window() -> None:
    assert lesson_of(overflow(10_000), 9_000, 10_000, OverflowRun()) is None
    assert lesson_of(overflow(20_000), 9_000, 10_000, OverflowRun()) is None


def test_an_unnamed_one_teaches_a_part_of_the_estimate_once_per_run() -> None:
    run = OverflowRun().next("t1", 10_000)
    assert lesson_of(overflow(), 9_000, 10_000, run) == Lesson(7_650, "estimate")
    run = run.taught().next("t1", 7_650)
    assert run.count == 2
    assert lesson_of(overflow(), 6_000, 7_650, run) is None
    assert lesson_of(overflow(5_000), 6_000, 7_650, run) == Lesson(5_000, "named")


def test_an_estimate_is_never_under_a_quarter_of_what_was_known() -> None:
    run = OverflowRun().next("t1", 100_000)
    assert lesson_of(overflow(), 1_000, 100_000, run) == Lesson(25_000, "estimate")


def test_an_estimate_above_the_window_teaches_nothing() -> None:
    assert lesson_of(overflow(), 20_000, 10_000, OverflowRun()) is None


def test_a_plain_413_teaches_nothing() -> None:
    plain = ProviderError("overflow", "413", status=413, too_large=True)
    assert lesson_of(plain, 9_000, 10_000, OverflowRun()) is None


def test_another_turn_starts_a_new_run() -> None:
    run = OverflowRun().next("t1", 10_000).next("t1", 9_000)
    assert (run.count, run.window) == (2, 10_000)
    assert run.next("t2", 9_000) == OverflowRun("t2", 1, 9_000)
