"""The two circuit breakers of automatic compaction: what each happening makes of them. Pure.

`consecutive_failures` opens after several compactions in a row that brought nothing; `rapid_refill` after several
landings in a row that each came within a few steps of the one before. A count keeps its value while its circuit is
open. The value travels whole in the record of the happening.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec.structs import replace

from protocol.info import BreakerInfo
from record_store.records import Breakers
from sidecar.compaction.policy import Policy

Reason = Literal["consecutive_failures", "rapid_refill"]

HEALTHY_STEPS_TO_CLOSE: Final = 10
"""So many steps in a row below the trigger close `rapid_refill`; one closes `consecutive_failures`."""


def is_open(breakers: Breakers) -> bool:
    return breakers.failures_open or breakers.refills_open


def after_step(breakers: Breakers, used: int, policy: Policy) -> Breakers:
    """A step is over with `used` tokens in the context."""
    steps = breakers.steps_since_landing
    if steps is not None:
        steps = min(steps + 1, policy.rapid_refill_window_steps + 1)
    if used >= policy.trigger_at:
        return replace(breakers, steps_since_landing=steps, healthy_steps=0)
    breakers = replace(breakers, steps_since_landing=steps, failures=0, failures_open=False)
    if not breakers.refills_open:
        return breakers
    healthy = breakers.healthy_steps + 1
    if healthy >= HEALTHY_STEPS_TO_CLOSE:
        return replace(breakers, refills=0, refills_open=False, healthy_steps=0)
    return replace(breakers, healthy_steps=healthy)


def after_landing(breakers: Breakers, post_tokens: int, policy: Policy, *, manual: bool) -> Breakers:
    """A compaction landed with `post_tokens` left. A manual one closes both circuits and is no refill."""
    if manual:
        return Breakers(steps_since_landing=0)
    breakers = replace(breakers, failed_at=None, healthy_steps=0)
    if post_tokens >= policy.trigger_at:
        breakers = _ineffective(breakers, policy)
    else:
        breakers = replace(breakers, failures=0, failures_open=False)
    if not breakers.refills_open:
        steps = breakers.steps_since_landing
        refilled = steps is not None and steps <= policy.rapid_refill_window_steps
        refills = breakers.refills + 1 if refilled else 0
        breakers = replace(breakers, refills=refills, refills_open=refills >= policy.max_rapid_refills)
    return replace(breakers, steps_since_landing=0)


def after_failure(breakers: Breakers, started_at: int, policy: Policy, *, manual: bool) -> Breakers:
    """A compaction that started with `started_at` tokens in the context failed (`no_gain` is a failure too)."""
    if manual:
        return breakers
    return replace(_ineffective(breakers, policy), failed_at=started_at)


def after_discard(breakers: Breakers, started_at: int, *, manual: bool) -> Breakers:
    """A result was not used: stale or cancelled. That says nothing about compaction, but it is not tried again at
    once."""
    return breakers if manual else replace(breakers, failed_at=started_at)


def _ineffective(breakers: Breakers, policy: Policy) -> Breakers:
    if breakers.failures_open:
        return breakers
    failures = breakers.failures + 1
    return replace(breakers, failures=failures, failures_open=failures >= policy.max_consecutive_failures)


def transitions(before: Breakers, after: Breakers) -> list[tuple[Reason, bool]]:
    """Which circuits changed, and whether each is open now."""
    changed: list[tuple[Reason, bool]] = []
    if before.failures_open != after.failures_open:
        changed.append(("consecutive_failures", after.failures_open))
    if before.refills_open != after.refills_open:
        changed.append(("rapid_refill", after.refills_open))
    return changed


def as_info(breakers: Breakers) -> dict[str, BreakerInfo]:
    return {
        "consecutive_failures": BreakerInfo(breakers.failures_open, breakers.failures),
        "rapid_refill": BreakerInfo(breakers.refills_open, breakers.refills),
    }
