"""What a session came to: recall from the context and from the log, tokens, waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio

from protocol.events import CompactionDiscarded, CompactionFailed, CompactionLanded, ContextRewritten
from record_store.records import AppendMessage
from scripts.evaluation.agent import RECORD_TOOLS
from scripts.evaluation.arms import Arm
from scripts.evaluation.facts import Fact, Reading, read, stated_in
from scripts.evaluation.session import Played, play
from scripts.evaluation.summaries import PERFECT, Fidelity
from scripts.evaluation.tasks import make
from sidecar.compaction import summary_prompt
from sidecar.tools.records import RecordReader, Stored, stored

MAX_LOOKED_UP = 5
"""Of the facts that the context lacks, so many are looked up; the others are taken to do as well on average."""

SEARCH_LIMIT, SEARCH_BYTES = 10, 16_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The readings of one session. Tokens are the provider's; shares are from 0 to 1.

    recall        facts that a reader of the final context gets right; none when the session died
    recovered     the same, with what `record_search` brings back
    wrong         facts of which another value is believed
    constraints   like `recall`, of the user's constraints alone
    corrections   like `recall`, of what the user corrected; `stale`: of these, the old value is believed
    revived       finished jobs that the context shows as waiting; `unheeded`: to one who ignores its reminder
    forgotten     jobs put off until later that it does not show as waiting
    growth, after_landing, trigger, summary_tokens    averages: what a step adds, what a landing leaves and starts
                                                      from, what a summary has
    """

    task: str
    arm: str
    seed: int
    died: bool
    recall: float
    recovered: float
    wrong: float
    constraints: float
    corrections: float
    stale: float
    revived: float
    unheeded: float
    forgotten: float
    steps: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    paid: int
    landed: int
    discarded: int
    failed: int
    excerpts: int
    rewrites: int
    stalled: int
    stalled_s: float
    growth: float
    after_landing: float
    trigger: float
    summary_tokens: float

    @property
    def cache_hit(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def cost(self, cached: float = 0.1, output: float = 5.0) -> float:
        """Of all prompts and of the summaries' output, in uncached prompt tokens."""
        return self.prompt_tokens - (1 - cached) * self.cached_tokens + output * self.output_tokens


def outcome_of(task: str, arm: Arm, seed: int, fidelity: Fidelity = PERFECT) -> Outcome:
    """Plays and reads one session."""
    return outcome(play(make(task, seed), arm, fidelity))


def outcome(played: Played) -> Outcome:
    """Reads a session that was played."""
    agent, course, script = played.agent, played.course, played.script
    events = agent.events
    landed = [e for e in events if isinstance(e, CompactionLanded)]
    marks = _Marks() if course.died else _marks(played)
    return Outcome(
        task=script.task,
        arm=played.arm,
        seed=script.seed,
        died=course.died,
        recall=marks.recall,
        recovered=marks.recovered,
        wrong=marks.wrong,
        constraints=marks.constraints,
        corrections=marks.corrections,
        stale=marks.stale,
        revived=marks.revived,
        unheeded=marks.unheeded,
        forgotten=marks.forgotten,
        steps=course.steps,
        prompt_tokens=agent.spent.prompt,
        cached_tokens=agent.spent.cached,
        output_tokens=agent.spent.output,
        paid=agent.summaries_paid,
        landed=len(landed),
        discarded=sum(isinstance(e, CompactionDiscarded) for e in events),
        failed=sum(isinstance(e, CompactionFailed) for e in events),
        excerpts=sum(e.summary_kind == "excerpt" for e in landed),
        rewrites=sum(isinstance(e, ContextRewritten) for e in events),
        stalled=course.stalled,
        stalled_s=course.stalled_s,
        growth=course.added / max(1, course.steps),
        after_landing=_mean([e.post_tokens for e in landed]),
        trigger=_mean([e.pre_tokens for e in landed]),
        summary_tokens=agent.spent.output / max(1, agent.summaries_paid),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class _Marks:
    recall: float = 0.0
    recovered: float = 0.0
    wrong: float = 0.0
    constraints: float = 0.0
    corrections: float = 0.0
    stale: float = 0.0
    revived: float = 0.0
    unheeded: float = 0.0
    forgotten: float = 0.0


def _marks(played: Played) -> _Marks:
    expected = played.script.facts
    reading = read(played.agent.state.messages(), played.parse)
    missed = [f for f in expected if not _right(reading, f)]
    wrong = [f for f in missed if f.key in reading.beliefs]
    bound = [f for f in expected if f.constraint]
    corrected = [f for f in expected if f.void is not None]
    jobs, later = set(played.script.jobs_done), set(played.script.jobs_put_off)
    found = _recovered_share(played, missed) if missed else 0.0
    recall = 1 - len(missed) / len(expected)
    return _Marks(
        recall=recall,
        recovered=recall + (1 - recall) * found,
        wrong=len(wrong) / len(expected),
        constraints=_recall(reading, bound),
        corrections=_recall(reading, corrected),
        stale=sum(_believed(reading, f) == f.void for f in corrected) / max(1, len(corrected)),
        revived=len(jobs.intersection(reading.open_jobs)) / max(1, len(jobs)),
        unheeded=len(jobs.intersection(reading.seemingly_open)) / max(1, len(jobs)),
        forgotten=len(later.difference(reading.open_jobs)) / max(1, len(later)),
    )


def _recall(reading: Reading, facts: Sequence[Fact]) -> float:
    return sum(_right(reading, f) for f in facts) / len(facts) if facts else 1.0


def _right(reading: Reading, fact: Fact) -> bool:
    return _believed(reading, fact) == fact.value


def _believed(reading: Reading, fact: Fact) -> str | None:
    belief = reading.beliefs.get(fact.key)
    return None if belief is None else belief.value


# ---------------------------------------------------------------- recovery


def _recovered_share(played: Played, missed: Sequence[Fact]) -> float:
    """Of the facts that the context does not give: how many `record_search` gives to one who looks them up.

    Looked up is what the context lacks, by one whose context says that there is a log and whose tools can read it. A
    wrong value is not looked up: whoever believes it has no reason to.
    """
    messages = played.agent.state.messages()
    texts = [m.text for m in messages]
    told = any(summary_prompt.RECOVERY_HEADING in t or "original: record " in t for t in texts)
    if not told or not set(RECORD_TOOLS) <= set(played.agent.state.builtin):
        return 0.0
    reading = read(messages, played.parse)
    lacking = [f for f in missed if f.key not in reading.beliefs]
    if not lacking:
        return 0.0
    step = max(1, len(lacking) // MAX_LOOKED_UP)
    tried = lacking[::step][:MAX_LOOKED_UP]
    found = anyio.run(_look_up, played, tried)
    return found / len(tried) * len(lacking) / len(missed)


async def _look_up(played: Played, facts: Sequence[Fact]) -> int:
    """How many of them a search by their key gives, the newest hit first; a user's words before anyone else's."""
    reader = RecordReader(_Source(played), SEARCH_BYTES)
    right = 0
    for fact in facts:
        listing = await reader.search(fact.key, regex=False, limit=SEARCH_LIMIT)
        right += stated_in(listing, fact.key, played.parse) == fact.value
    return right


class _Source:
    """The stored records of a session that was played."""

    def __init__(self, played: Played) -> None:
        records = played.agent.log.records
        self.last_line = len(records)
        lines = range(len(records), 0, -1)
        self._stored = [
            stored(records[line - 1], line, lambda name: None)
            for line in lines
            if isinstance(records[line - 1], AppendMessage)
        ]

    async def newest_first(self) -> AsyncIterator[Sequence[Stored]]:
        for at in range(0, len(self._stored), 500):
            yield self._stored[at : at + 500]

    async def at(self, line: int) -> Stored | None:
        return next((s for s in self._stored if s.line == line), None)
