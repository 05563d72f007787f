"""Which sessions are run, on all cores, and what they come to together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Final

from scripts.evaluation.arms import ARMS, Arm
from scripts.evaluation.readings import Outcome, outcome_of
from scripts.evaluation.summaries import PERFECT, Fidelity
from scripts.evaluation.tasks import PLANS, TASKS

SEEDS: Final = 3
MAX_WORKERS: Final = 8

Row = dict[str, Any]
"""`{task, arm, recall, recall_recovery, cache_hit, prompt_tokens, paid, discarded, stalled, deaths}`: averages over the
seeds, but `deaths`, the number of sessions that died."""


@dataclass(frozen=True, slots=True)
class Job:
    """One session to run. `arm.name` tells variants apart."""

    task: str
    arm: Arm
    seed: int
    fidelity: Fidelity = PERFECT

    def run(self) -> Outcome:
        return outcome_of(self.task, self.arm, self.seed, self.fidelity)

    @property
    def weight(self) -> int:
        """About how much work it is, to start with the longest."""
        plan = PLANS[self.task]
        return plan.turns * plan.steps[1] * plan.window


@dataclass(frozen=True, slots=True)
class Cell:
    """The sessions of one task, arm and fidelity, a seed each."""

    outcomes: tuple[Outcome, ...]

    def mean(self, of: Callable[[Outcome], float]) -> float:
        return sum(map(of, self.outcomes)) / len(self.outcomes)

    def spread(self, of: Callable[[Outcome], float]) -> tuple[float, float]:
        values = [of(o) for o in self.outcomes]
        return min(values), max(values)

    @property
    def recall(self) -> float:
        return self.mean(lambda o: o.recall)

    @property
    def tokens(self) -> float:
        return self.mean(lambda o: o.prompt_tokens)

    @property
    def cost(self) -> float:
        return self.mean(lambda o: o.cost())

    @property
    def deaths(self) -> int:
        return sum(o.died for o in self.outcomes)


Key = tuple[str, str, str]
"""Task, arm, fidelity."""

Cells = Mapping[Key, Cell]


def run_all(jobs: Sequence[Job], workers: int | None = None) -> Cells:
    """Runs the sessions, several at a time. The order of the result is that of the jobs."""
    workers = min(workers or os.cpu_count() or 1, MAX_WORKERS, max(1, len(jobs)))
    longest_first = sorted(jobs, key=lambda job: -job.weight)
    outcomes: dict[tuple[Key, int], Outcome] = {}
    for job, outcome in zip(longest_first, _run(longest_first, workers), strict=True):
        outcomes[_key(job), job.seed] = outcome
    grouped: dict[Key, list[Outcome]] = {}
    for job in jobs:
        grouped.setdefault(_key(job), []).append(outcomes[_key(job), job.seed])
    return {key: Cell(tuple(found)) for key, found in grouped.items()}


def _run(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    if workers == 1:
        yield from map(Job.run, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(Job.run, jobs)


def _key(job: Job) -> Key:
    return (job.task, job.arm.name, job.fidelity.name)


def contest(tasks: Iterable[str] = TASKS, arms: Iterable[str] = tuple(ARMS), seeds: int = SEEDS) -> list[Job]:
    """Every task with every arm, a perfect summariser."""
    return [Job(task, ARMS[arm], seed) for task in tasks for arm in arms for seed in range(1, seeds + 1)]


def rows_of(cells: Cells) -> list[Row]:
    """The table, of what was run with a perfect summariser by the arms of the contest."""
    return [
        {
            "task": task,
            "arm": arm,
            "recall": round(cell.recall, 4),
            "recall_recovery": round(cell.mean(lambda o: o.recovered), 4),
            "cache_hit": round(cell.mean(lambda o: o.cache_hit), 4),
            "prompt_tokens": round(cell.tokens),
            "paid": round(cell.mean(lambda o: o.paid), 2),
            "discarded": round(cell.mean(lambda o: o.discarded), 2),
            "stalled": round(cell.mean(lambda o: o.stalled), 2),
            "deaths": cell.deaths,
        }
        for (task, arm, fidelity), cell in cells.items()
        if fidelity == PERFECT.name and task in TASKS and arm in ARMS
    ]


def relative(
    cells: Cells, arm: str, base: str, tasks: Iterable[str], fidelity: str, of: Callable[[Cell], float]
) -> float:
    """How much an arm needs of something for one of `base`: the mean of the tasks' ratios. Each task counts alike."""
    return geometric_mean(of(cells[t, arm, fidelity]) / of(cells[t, base, fidelity]) for t in tasks)
