"""When to compact, when to wait, and what an overflow teaches. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_
from typing import Literal

from protocol.info import Stage
from record_store.records import Breakers
from sidecar.compaction import breakers as circuits
from sidecar.compaction.policy import Policy
from sidecar.providers.errors import ProviderError

Verdict = Literal["start", "below", "disabled", "circuit_open", "margin", "failed_before"]
"""Whether an automatic compaction starts now, and if not, why."""


def stage(policy: Policy, used: int) -> Stage:
    if used >= policy.block_at:
        return "block"
    if used >= policy.trigger_at:
        return "trigger"
    return "soft" if used >= policy.soft_at else "normal"


def should_start(policy: Policy, used: int, breakers: Breakers, tokens_after_landing: int | None) -> Verdict:
    """Whether an automatic compaction starts now.

    The margin counts from where the last compaction *landed*, never from where it began: the other way round each one
    would start higher than the one before. After an attempt that did not land, the next one waits until block is
    reached or the context has grown by the margin.
    """
    if not policy.auto:
        return "disabled"
    if used < policy.trigger_at:
        return "below"
    if circuits.is_open(breakers):
        return "circuit_open"
    if tokens_after_landing is not None and used < tokens_after_landing + policy.margin:
        return "margin"
    failed_at = breakers.failed_at
    if failed_at is not None and used < policy.block_at and used < failed_at + policy.margin:
        return "failed_before"
    return "start"


def must_wait(policy: Policy, used: int) -> bool:
    """Whether a turn goes no further while a compaction runs."""
    return policy.auto and used >= policy.block_at


def soft_notice_due(policy: Policy, used: int, announced: bool) -> tuple[bool, bool]:
    """Whether to tell now, and whether this ascent is told: once per ascent over the soft limit."""
    if used < policy.soft_at:
        return False, False
    return not announced, True


# ---------------------------------------------------------------- overflow


@dataclass(frozen=True, slots=True)
class OverflowRun:
    """Consecutive overflows of one turn's step. `window` is what was known before the first of them."""

    turn_id: str | None = None
    count: int = 0
    window: int = 0
    taught_estimate: bool = False

    def next(self, turn_id: str | None, window: int) -> OverflowRun:
        """One more; another turn's run starts anew."""
        if self.count and self.turn_id == turn_id:
            return with_(self, count=self.count + 1)
        return OverflowRun(turn_id, 1, window)

    def taught(self) -> OverflowRun:
        """An estimate was learned from it: that is done once."""
        return with_(self, taught_estimate=True)


def is_overflow(error: ProviderError, used: int, window: int) -> bool:
    """Whether a refused request was too large: the provider says so, or a plain 413 with much in the context."""
    return error.kind == "overflow" or (error.too_large and used > window / 2)


@dataclass(frozen=True, slots=True)
class Lesson:
    """An upper bound of the window in tokens, named by the provider or estimated."""

    window: int
    source: Literal["named", "estimate"]


def lesson_of(error: ProviderError, estimate: int, known: int, run: OverflowRun) -> Lesson | None:
    """What an overflow teaches about the window; None if nothing new.

    `estimate` is the size of the refused request, `known` the window in force. A number that the provider names is
    taken as it is; without one, 0.85 of the estimate, once per run and never under a quarter of the window known
    before the run. A plain 413 may come from a proxy's byte limit and teaches nothing.
    """
    if error.window is not None and error.window > 0:
        return Lesson(error.window, "named") if error.window < known else None
    if error.kind != "overflow" or error.too_large or run.taught_estimate:
        return None
    guess = max(int(0.85 * estimate), (run.window or known) // 4, 1)
    return Lesson(guess, "estimate") if guess < known else None
