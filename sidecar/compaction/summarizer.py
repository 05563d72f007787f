"""The summary request's way through failure: which attempt comes next, and what of the span it shows. Pure.

    whole span -> overflow:             the newest messages within 70, 50, 35 % of the tokens; then give up
               -> truncated, empty:     without its oldest message
               -> retryable:            the same again, after a wait
               -> refused, rejected:    give up
All causes together get at most `max_attempts` requests. An earlier summary is shown whatever else is left out: nothing
in the context but itself holds what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sidecar.compaction.ports import SummaryReply
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import RetryPolicy

SHRINK_RATIOS: Final = (0.7, 0.5, 0.35)
"""Parts of the first request's message tokens that the retries after an overflow stay within."""

TRIVIAL_TOKENS: Final = 20
TRIVIAL_FOR_SPAN: Final = 2_000
"""A summary under 20 tokens says nothing about a span of over 2,000."""

LONGEST_WAIT_S: Final = 120.0
"""A provider that asks for more than this is not there in time: the attempt is given up instead."""

MIN_SUMMARY_ROOM: Final = 256
"""Tokens of output that a request must leave room for; without them it is shortened before it is sent. Little, since
shortening gives up the warm prefix and part of the span, and the estimate may be wrong: the provider is asked first."""

OUTPUT_SAFETY: Final = 1_024
"""Kept free beside input and output, for what the estimate missed."""

QUALITY = frozenset({"truncated_summary", "empty_summary"})


@dataclass(frozen=True, slots=True)
class Material:
    """The span as the ladder sees it: tokens per message, and where a well-paired rest may begin.

    `starts[i]` says that the messages from `i` on lead with no tool result. `max_attempts` is at least 1. `earlier` is
    the position of an earlier summary.
    """

    tokens: Sequence[int]
    starts: Sequence[bool]
    max_attempts: int
    earlier: int | None = None

    @property
    def last_start(self) -> int:
        """Where the smallest request begins: the newest message, with the call that it answers."""
        return max((i for i, start in enumerate(self.starts) if start), default=0)

    def within(self, budget: int) -> int:
        """The first start of a rest of at most `budget` tokens, else the last start."""
        left = sum(self.tokens)
        for i, tokens in enumerate(self.tokens):
            if left + self.carried(i) <= budget and self.starts[i]:
                return i
            left -= tokens
        return self.last_start

    def carried(self, first: int) -> int:
        """Tokens of an earlier summary that is shown before the messages from `first` on."""
        return self.tokens[self.earlier] if self.earlier is not None and self.earlier < first else 0

    def shown(self, first: int) -> int:
        """Tokens of a request that leaves out what stands before `first`."""
        return sum(self.tokens[first:]) + self.carried(first)

    def dropped(self, first: int) -> int:
        """How many messages it leaves out."""
        return first - (self.earlier is not None and self.earlier < first)

    def after(self, first: int) -> int:
        """The next start after `first`, or `first` itself when nothing may be dropped any more."""
        following = (i for i in range(first + 1, len(self.starts)) if self.starts[i])
        return next(following, first)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the ladder stands. `first` is the first message shown; `cut` bounds the tokens of what is shown when the
    smallest request is still too large; `base` are the tokens that the shrink ratios count from."""

    first: int
    base: int
    cut: int | None = None
    attempts: int = 0
    shrinks: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Send the messages from `first` on, cut to `cut` tokens if that is not None, after `wait_s` seconds."""

    first: int
    cut: int | None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Accept:
    """This is the summary."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """There is none; `reason` is the word for event, error and record."""

    reason: str


Action = Ask | Accept | GiveUp


def first_attempt(material: Material, room: int) -> tuple[Progress, Ask]:
    """Starts the ladder. `room` are the tokens that window, prefix and output leave for messages: a span that is
    known not to fit is shortened before it is sent."""
    whole = sum(material.tokens)
    if whole <= room:
        return Progress(0, whole), Ask(0, None)
    ratio = next((r for r in SHRINK_RATIOS if r * whole <= room), None)
    budget = max(1, room if ratio is None else int(ratio * whole))
    return _shrunk(Progress(0, budget), material, budget)


def next_attempt(
    progress: Progress,
    outcome: SummaryReply | ProviderError,
    material: Material,
    *,
    reply_tokens: int,
    overflow: bool,
    retry: RetryPolicy,
    jitter: float,
) -> tuple[Progress, Action]:
    """What follows an attempt.

    `reply_tokens` is the size of the reply's text, `overflow` whether an error means that the request was too large,
    `jitter` a number from 0 to 1. The caller has made `progress.attempts + 1` requests so far.
    """
    progress = replace(progress, attempts=progress.attempts + 1)
    if isinstance(outcome, SummaryReply):
        reason = fault_of(outcome, reply_tokens, sum(material.tokens))
        if reason is None:
            return progress, Accept(outcome.text.strip())
    else:
        reason = "overflow" if overflow else reason_of(outcome)
    if progress.attempts >= material.max_attempts:
        return progress, GiveUp(reason)
    if reason == "overflow":
        return _smaller(progress, material)
    if reason in QUALITY:
        progress = replace(progress, first=material.after(progress.first))
        return progress, Ask(progress.first, progress.cut)
    if isinstance(outcome, ProviderError) and outcome.retryable:
        wait = backoff(outcome, progress.attempts, retry, jitter)
        return progress, GiveUp(reason) if wait is None else Ask(progress.first, progress.cut, wait)
    return progress, GiveUp(reason)


def _smaller(progress: Progress, material: Material) -> tuple[Progress, Action]:
    """The next part of the span; where whole messages give no smaller one than was refused, that is cut inside: the
    same bytes are never sent twice."""
    if progress.shrinks >= len(SHRINK_RATIOS):
        return progress, GiveUp("overflow")
    refused = _asked_tokens(progress, material)
    budget = max(1, int(SHRINK_RATIOS[progress.shrinks] * progress.base))
    progress, ask = _shrunk(replace(progress, shrinks=progress.shrinks + 1), material, budget)
    if _asked_tokens(progress, material) < refused:
        return progress, ask
    cut = max(1, int(SHRINK_RATIOS[0] * refused))
    return replace(progress, cut=cut), Ask(ask.first, cut)


def _asked_tokens(progress: Progress, material: Material) -> int:
    shown = material.shown(progress.first)
    return shown if progress.cut is None else min(shown, progress.cut)


def _shrunk(progress: Progress, material: Material, budget: int) -> tuple[Progress, Ask]:
    first = max(progress.first, material.within(budget))
    cut = budget if material.shown(first) > budget else None
    progress = replace(progress, first=first, cut=cut)
    return progress, Ask(first, cut)


def fault_of(reply: SummaryReply, reply_tokens: int, span_tokens: int) -> str | None:
    """What is wrong with an answer; None if it is a summary."""
    if reply.finish == "content_filter":
        return "content_filter"
    if reply.finish == "length":
        return "truncated_summary"
    if not reply.text.strip():
        return "empty_summary"
    if reply_tokens < TRIVIAL_TOKENS and span_tokens > TRIVIAL_FOR_SPAN:
        return "empty_summary"
    return None


def reason_of(error: ProviderError) -> str:
    """The one word for a provider's failure."""
    kinds: dict[str, Literal["content_filter", "overflow"]] = {"refused": "content_filter", "overflow": "overflow"}
    return kinds.get(error.kind, error.reason)


def backoff(error: ProviderError, attempt: int, retry: RetryPolicy, jitter: float) -> float | None:
    """Seconds to wait before the next attempt; None if the provider asks for more than anyone should wait."""
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= LONGEST_WAIT_S else None
    return min(retry.max_wait_s, retry.base_s * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * jitter)


def output_limit(configured: int, window: int, input_tokens: int, model_limit: int | None) -> int:
    """Tokens that a summary may have: as configured, within what window and model leave. At least `MIN_SUMMARY_ROOM`:
    a request that asks for less cannot succeed, and the provider's own verdict is worth more than our estimate."""
    limits = [configured, window - input_tokens - OUTPUT_SAFETY]
    if model_limit is not None:
        limits.append(model_limit)
    return max(MIN_SUMMARY_ROOM, min(limits))
