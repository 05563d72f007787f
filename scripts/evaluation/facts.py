"""How a fact is stated in a text, and what a reader of some messages believes. Pure.

    `key` = `VALUE`                        a fact
    `key` = `VALUE` (not `OLD`)            a correction: OLD is void
    carry out `job-x`                      a request
    later, carry out `job-x`               one that is put off
    `job-x` is done                        its end

Whoever reads, the model at the end of a task or a summariser in the middle, reads by the same rules: the user's own
words count more than anyone else's, what comes later more than what came before, and what is said to be void not at
all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from protocol.messages import Message
from sidecar.compaction import regions

Place = Literal["user", "assistant", "tool"]

_STATED = re.compile(
    r"`(?P<key>[a-z][a-z0-9.]*)` = `(?P<value>[A-Z0-9]+)`(?: \(not `(?P<void>[A-Z0-9]+)`\))?"
    r"|(?P<later>later, )?carry out `(?P<asked>job-[a-z0-9]+)`"
    r"|`(?P<done>job-[a-z0-9]+)` is done"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """What a task plants: `value` is what holds at its end. `void` is the value that a correction took back."""

    key: str
    value: str
    place: Place
    void: str | None = None
    constraint: bool = False


def stated(key: str, value: str, void: str | None = None) -> str:
    return f"`{key}` = `{value}`" + (f" (not `{void}`)" if void else "")


def asked(job: str, *, later: bool = False) -> str:
    return f"{'later, ' if later else ''}carry out `{job}`"


def done(job: str) -> str:
    return f"`{job}` is done"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text. A job's `value` is `asked`, `later` or `done`."""

    key: str
    value: str
    void: str | None = None
    is_job: bool = False


class Parser:
    """Finds the statements of texts; each text is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Statement, ...]] = {}

    def __call__(self, text: str) -> tuple[Statement, ...]:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = tuple(map(_statement, _STATED.finditer(text))) if "`" in text else ()
        return found


def _statement(match: re.Match[str]) -> Statement:
    if match["asked"]:
        return Statement(match["asked"], "later" if match["later"] else "asked", is_job=True)
    if match["done"]:
        return Statement(match["done"], "done", is_job=True)
    return Statement(match["key"], match["value"], match["void"])


@dataclass(slots=True)
class Belief:
    """What a reader holds of one key. `first_hand`: not only a summary says it; `void`: what it took the place of."""

    value: str
    weight: int
    first_hand: bool
    void: str | None = None


@dataclass(slots=True)
class Reading:
    """What some messages say: beliefs by key in the order of their first mention, jobs asked for and jobs done.

    The flag of a job says whether it is known first hand. `pending` are the jobs that were put off, or that a summary
    says are waiting; `settled` those of earlier messages, of which a reminder says that they were dealt with.
    """

    beliefs: dict[str, Belief] = field(default_factory=dict)
    asked: dict[str, bool] = field(default_factory=dict)
    done: dict[str, bool] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)

    @property
    def open_jobs(self) -> list[str]:
        """Jobs that a reader takes to be waiting."""
        return [job for job in self.seemingly_open if job in self.pending or job not in self.settled]

    @property
    def seemingly_open(self) -> list[str]:
        """The same for a reader who does not believe the reminder."""
        return [job for job in self.asked if job not in self.done]


def read(messages: Iterable[Message], parse: Parser) -> Reading:
    """What a reader of these messages believes."""
    reading = Reading()
    voided: dict[str, set[str]] = {}
    newest: set[str] = set()
    for message in messages:
        if message.origin is not None and message.origin.variant == regions.CONTINUATION_VARIANT:
            reading.settled |= reading.asked.keys() - newest
        is_summary, is_user = regions.is_summary(message), regions.is_real_user_input(message)
        statements = parse(message.text)
        if is_user:
            newest = {s.key for s in statements if s.is_job}
        for s in statements:
            if s.is_job:
                _take_job(reading, s, is_summary)
                continue
            if s.void is not None:
                voided.setdefault(s.key, set()).add(s.void)
            _take(reading.beliefs, s, 2 if is_user else 1, not is_summary, voided.get(s.key, set()))
    return reading


def _take_job(reading: Reading, s: Statement, in_summary: bool) -> None:
    jobs = reading.done if s.value == "done" else reading.asked
    jobs[s.key] = jobs.get(s.key, False) or not in_summary
    if s.value == "later" or (in_summary and s.value == "asked"):
        reading.pending.add(s.key)


def _take(beliefs: dict[str, Belief], s: Statement, weight: int, first_hand: bool, voided: set[str]) -> None:
    if s.value in voided:
        return
    known = beliefs.get(s.key)
    if known is None or known.value in voided:
        beliefs[s.key] = Belief(s.value, weight, first_hand, s.void)
    elif known.value == s.value:
        known.weight, known.first_hand = max(weight, known.weight), known.first_hand or first_hand
        known.void = s.void or known.void
    elif weight >= known.weight:
        beliefs[s.key] = Belief(s.value, weight, first_hand, s.void)


def stated_in(listing: str, key: str, parse: Parser) -> str | None:
    """What the hits of a search say of a key: each on a line that names the role, the newest first."""
    hits = [(", user, " in line.split(": ", 1)[0], s) for line in listing.splitlines() for s in parse(line)]
    hits = [(is_user, s) for is_user, s in hits if s.key == key]
    voided = {s.void for _, s in hits}
    live = [(is_user, s.value) for is_user, s in hits if s.value not in voided]
    return next((value for is_user, value in live if is_user), live[0][1] if live else None)
