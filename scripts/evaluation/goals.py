"""What is to be reached, what the standard must be able to tell, and whether it is so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Final

from scripts.evaluation.arms import ARMS, KNOWN_BAD
from scripts.evaluation.contest import Cell, Cells
from scripts.evaluation.summaries import PERFECT
from scripts.evaluation.tasks import TASKS
from sidecar.compaction.policy import Growth, Prices, cheapest_trigger, step_cost

CACHE_GOALS: Final = {"light": 0.60, "heavy": 0.85}
TOKEN_TOLERANCE: Final = 0.01
EQUAL_RECALL: Final = 0.005
LONG_LANDINGS: Final = 20

WORSE_EVERYWHERE, WORSE_ON_AVERAGE = 0.05, 0.25
"""By how much a known-bad arm's recall lies below `default`'s: in each task, and over all of them."""

EXAMPLE: Final = Growth(per_step=1_500, after_landing=15_000, summary=1_500)
EXAMPLE_TRIGGER: Final = (38_000, 44_000)
"""Where the cheapest trigger of the example lies, whatever the window."""


@dataclass(frozen=True, slots=True)
class Check:
    """`kind` is `goal` or `standard`. `detail` says what was measured."""

    kind: str
    name: str
    met: bool
    detail: str


def checks_of(cells: Cells) -> list[Check]:
    """All checks that what was run allows: a run of some tasks or arms is held to less."""
    table = {
        (task, arm): cell
        for (task, arm, fidelity), cell in cells.items()
        if fidelity == PERFECT.name and task in TASKS and arm in ARMS
    }
    tasks = [task for task in TASKS if (task, "default") in table]
    return [*_goals(table, tasks), *_standard(table, tasks), *_cost_model()]


Table = dict[tuple[str, str], Cell]


def _goals(table: Table, tasks: list[str]) -> Iterator[Check]:
    if tasks:
        worst = {task: table[task, "default"].spread(lambda o: o.recall)[0] for task in tasks}
        least = min(worst, key=lambda task: worst[task])
        met = isclose(worst[least], 1.0)
        yield Check("goal", "recall in context 1.00 everywhere", met, f"lowest {worst[least]:.3f}, in {least}")
        deaths = sum(table[task, "default"].deaths for task in tasks)
        yield Check("goal", "no deaths", deaths == 0, f"{deaths} sessions died")
    for task, wanted in CACHE_GOALS.items():
        if task in tasks:
            hit = table[task, "default"].mean(lambda o: o.cache_hit)
            yield Check("goal", f"cache hit at least {wanted:.2f}: {task}", hit >= wanted, f"{hit:.3f}")
    if len(tasks) == len(TASKS):
        yield from _tokens(table, tasks)


def _tokens(table: Table, tasks: list[str]) -> Iterator[Check]:
    """No arm of equal recall needs 1 % less, summed over all tasks."""
    own, mine = _recall(table, "default", tasks), _total(table, "default", tasks)
    rivals = [arm for arm in ARMS if arm != "default" and all((task, arm) in table for task in tasks)]
    equal = [arm for arm in rivals if _recall(table, arm, tasks) >= own - EQUAL_RECALL]
    shares = {arm: _total(table, arm, tasks) / mine for arm in equal}
    found = ", ".join(f"{arm} needs {share:.3f} of its tokens" for arm, share in shares.items())
    met = all(share >= 1 - TOKEN_TOLERANCE for share in shares.values())
    yield Check("goal", "no arm of equal recall needs 1 % fewer tokens over all tasks", met, found or "no other arm")


def _recall(table: Table, arm: str, tasks: list[str]) -> float:
    return sum(table[task, arm].recall for task in tasks) / len(tasks)


def _total(table: Table, arm: str, tasks: list[str]) -> float:
    return sum(table[task, arm].tokens for task in tasks)


def _standard(table: Table, tasks: list[str]) -> Iterator[Check]:
    """The contest tells bad from good, and its events are real."""
    bad = [arm for arm in KNOWN_BAD if tasks and all((task, arm) in table for task in tasks)]
    if "none" in bad:
        alive = [t for t in tasks if table[t, "none"].deaths < len(table[t, "none"].outcomes)]
        yield Check("standard", "none dies everywhere", not alive, f"survives {', '.join(alive) or 'nothing'}")
    for arm in bad:
        gaps = {task: table[task, "default"].recall - table[task, arm].recall for task in tasks}
        least, average = min(gaps.values()), sum(gaps.values()) / len(gaps)
        met = least >= WORSE_EVERYWHERE and average >= WORSE_ON_AVERAGE
        yield Check("standard", f"{arm} is clearly worse", met, f"recall lower by {average:.2f}, at least {least:.2f}")
    if ("long", "default") in table:
        landed = table["long", "default"].mean(lambda o: o.landed)
        yield Check("standard", "long is long", landed >= LONG_LANDINGS, f"{landed:.0f} landings")
    if len(tasks) == len(TASKS):
        yield from _events(table, tasks)


def _events(table: Table, tasks: list[str]) -> Iterator[Check]:
    """Waiting, background landings and discards do happen."""
    cells = [table[task, "default"] for task in tasks]
    landed, stalled, discarded = (sum(c.mean(of) for c in cells) for of in _EVENTS)
    yield Check("standard", "most landings of default are in the background", stalled < landed / 2,
                f"{landed:.1f} landings, {stalled:.1f} waits")  # fmt: skip
    yield Check("standard", "turns taken back make results stale", discarded > 0, f"{discarded:.1f} discarded")
    if ("heavy", "handoff") in table:
        cell = table["heavy", "handoff"]
        waits, lands = cell.mean(lambda o: o.stalled), cell.mean(lambda o: o.landed)
        yield Check("standard", "handoff waits for each of its landings", waits >= lands, f"{waits:.1f} of {lands:.1f}")


_EVENTS = (lambda o: o.landed, lambda o: o.stalled, lambda o: o.discarded)


def _cost_model() -> Iterator[Check]:
    """The cheapest trigger is where the model's cost is least."""
    prices = Prices(cached=0.1, output=5.0)
    found = cheapest_trigger(EXAMPLE, prices) or 0
    costs = [step_cost(found * factor, EXAMPLE, prices) for factor in (0.95, 1.0, 1.05)]
    low, high = EXAMPLE_TRIGGER
    yield Check(
        "standard",
        "the cost model's example",
        low <= found <= high and costs[1] == min(costs),
        f"cheapest trigger {found:,} tokens, {costs[1]:,.0f} a step",
    )
