"""Two circuits: what opens and closes each."""

from __future__ import annotations

from msgspec.structs import replace

from record_store.records import Breakers
from sidecar.compaction.breakers import (
    after_discard,
    after_failure,
    after_landing,
    after_step,
    as_info,
    is_open,
    transitions,
)
from tests.unit.compaction.build import policy

P = policy(10_000)  # trigger 7,500


def landed(b: Breakers, post: int = 2_000, *, manual: bool = False) -> Breakers:
    return after_landing(b, post, P, manual=manual)


def steps(b: Breakers, count: int, used: int = 2_000) -> Breakers:
    for _ in range(count):
        b = after_step(b, used, P)
    return b


def test_three_ineffective_ones_in_a_row_open() -> None:
    b = Breakers()
    b = after_failure(b, 7_500, P, manual=False)
    b = landed(b, 7_500)
    assert not is_open(b)
    b = after_failure(b, 7_600, P, manual=False)
    assert b.failures_open
    assert b.failures == 3


def test_an_effective_landing_between_starts_again() -> None:
    b = after_failure(after_failure(Breakers(), 7_500, P, manual=False), 7_500, P, manual=False)
    b = landed(b, 7_499)
    assert b.failures == 0
    assert not is_open(after_failure(b, 7_500, P, manual=False))


def test_the_count_keeps_its_value_while_open() -> None:
    b = Breakers(failures=3, failures_open=True)
    assert after_failure(b, 9_000, P, manual=False).failures == 3
    assert steps(b, 5, used=9_000).failures == 3
    refilled = Breakers(refills=3, refills_open=True, steps_since_landing=1)
    assert landed(refilled).refills == 3


def test_one_step_below_the_trigger_closes_failures() -> None:
    b = Breakers(failures=3, failures_open=True)
    assert steps(b, 1, used=7_500).failures_open
    closed = steps(b, 1, used=7_499)
    assert not closed.failures_open
    assert closed.failures == 0


def test_the_fourth_quick_landing_opens_and_the_first_counts_for_none() -> None:
    b = Breakers()
    seen = []
    for _ in range(4):
        b = steps(landed(b), 3, used=8_000)
        seen.append((b.refills, b.refills_open))
    assert seen == [(0, False), (1, False), (2, False), (3, True)]


def test_a_landing_later_than_the_window_starts_the_count_again() -> None:
    b = steps(landed(steps(landed(Breakers()), 3)), 3)
    assert b.refills == 1
    assert landed(steps(b, 1)).refills == 0


def test_healthy_steps_do_not_start_the_refill_count_again() -> None:
    b = steps(landed(steps(landed(Breakers()), 2)), 3, used=100)
    assert b.refills == 1
    assert landed(b).refills == 2


def test_ten_healthy_steps_in_a_row_close_refills() -> None:
    b = Breakers(refills=3, refills_open=True, steps_since_landing=0)
    assert steps(b, 9).refills_open
    assert steps(steps(b, 9), 1, used=8_000).refills_open
    assert steps(steps(steps(b, 9), 1, used=8_000), 9).refills_open
    closed = steps(b, 10)
    assert not closed.refills_open
    assert closed.refills == 0


def test_a_manual_landing_resets_and_is_no_refill() -> None:
    b = Breakers(failures=3, failures_open=True, refills=3, refills_open=True, steps_since_landing=1, failed_at=7)
    assert landed(b, manual=True) == Breakers(steps_since_landing=0)


def test_discards_are_remembered_but_not_counted() -> None:
    b = after_discard(Breakers(), 7_500, manual=False)
    assert b == Breakers(failed_at=7_500)
    assert landed(b).failed_at is None
    assert after_discard(Breakers(), 7_500, manual=True) == Breakers()


def test_steps_are_only_counted_as_far_as_they_matter() -> None:
    b = landed(Breakers())
    assert steps(b, 4) == steps(b, 400)
    assert steps(Breakers(), 3) == Breakers()


def test_transitions_and_info() -> None:
    opened = Breakers(failures=3, failures_open=True)
    assert transitions(Breakers(), opened) == [("consecutive_failures", True)]
    assert transitions(replace(opened, refills_open=True), Breakers()) == [
        ("consecutive_failures", False),
        ("rapid_refill", False),
    ]
    assert as_info(opened)["consecutive_failures"].open
    assert as_info(opened)["consecutive_failures"].count == 3
    assert not as_info(opened)["rapid_refill"].open
