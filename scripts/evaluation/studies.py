"""What is run beside the contest: summarisers that lose things, pauses, the objective `cost`, other policy values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from scripts.evaluation.arms import ARMS, Arm, preset
from scripts.evaluation.contest import Cells, Job, relative
from scripts.evaluation.summaries import CAREFUL, CARELESS, FIDELITIES, PERFECT
from sidecar.compaction.policy import PRESETS, Preset

FIDELITY_TASKS: Final = ("light", "heavy", "chatty")
SWEEP_TASKS: Final = ("light", "heavy", "chatty")
SWEEP_FIDELITY: Final = CAREFUL
SWEEP_SEEDS: Final = 2


def variant(name: str, *, config: dict[str, Any] | None = None, **changes: Any) -> Arm:
    """`default` with another preset row or with configuration over it."""
    base = PRESETS["default"]
    fields = {
        "shape": base.shape,
        "trigger": base.trigger,
        "snip_when": base.snip_when,
        "prune_at_trigger": base.prune_at_trigger,
    }
    row = Preset(**{**fields, **changes})
    return Arm(name, {"compaction": {"preset": "default", **(config or {})}}, {**PRESETS, "default": row})


COST_ARM: Final = Arm("objective cost", preset("default", compaction={"objective": "cost"}).config)
SPAN_SHAPE: Final = variant("default, span shape", shape="span")
IMAGES_ARM: Final = variant(
    "prune images only", prune_at_trigger=True, config={"keep_last_tool_results": 1_000_000_000}
)

FIDELITY_ARMS: Final = (ARMS["default"], SPAN_SHAPE, ARMS["handoff"], ARMS["span"], ARMS["ladder"])
PAUSE_ARMS: Final = (
    ARMS["default"],
    variant("snip never", snip_when="never"),
    variant("snip always", snip_when="always"),
)
BULKY_ARMS: Final = (ARMS["default"], ARMS["handoff"])


def study_jobs(seeds: int) -> list[Job]:
    """All but the sweep. Dear ones get fewer seeds, those that depend on rare events more."""
    few = min(2, seeds)
    return [*_fidelity_jobs(few), *_cost_jobs(few), *_other_jobs(seeds)]


def _fidelity_jobs(seeds: int) -> list[Job]:
    """What the better arms make of summarisers that lose, invent or ramble."""
    contested = {arm.name for arm in ARMS.values()}
    return [
        Job(task, arm, seed, fidelity)
        for task, fidelity, arm, seed in product(FIDELITY_TASKS, FIDELITIES, FIDELITY_ARMS, range(1, seeds + 1))
        if fidelity != PERFECT or arm.name not in contested
    ]


def _cost_jobs(seeds: int) -> list[Job]:
    """The million-token window with the cheapest trigger, and what that does to recall."""
    arms, fidelities = (ARMS["default"], COST_ARM), (PERFECT, CAREFUL, CARELESS)
    return [
        Job("huge", arm, seed, fidelity)
        for arm, fidelity, seed in product(arms, fidelities, range(1, seeds + 1))
        if (arm.name, fidelity) != ("default", PERFECT)
    ]


def _other_jobs(seeds: int) -> list[Job]:
    """Pauses that outlast the cache, images pruned at the trigger, results that leave no room for a summary."""
    tried = [("pauses", arm, seeds) for arm in PAUSE_ARMS] + [("images", IMAGES_ARM, seeds)]
    tried += [("bulky", arm, 6 * seeds) for arm in BULKY_ARMS]
    return [Job(task, arm, seed) for task, arm, count in tried for seed in range(1, count + 1)]


# ---------------------------------------------------------------- the sweep

TRIGGERS: Final = (0.5, 0.6, 0.7, 0.85)
GRID: Final = (0.5, 0.6, 0.7, 0.8)


def sweep_arms(*, whole: bool) -> list[Arm]:
    """One value at a time; `whole`: those that change little too, and other shapes at other triggers. `default` is the
    first."""
    arms = [ARMS["default"]]
    arms += [variant(f"trigger {t}", trigger=t) for t in TRIGGERS]
    arms += [variant(f"shape {shape}", shape=shape) for shape in ("span", "ladder")]
    arms += [
        variant("prune at the trigger", prune_at_trigger=True),
        variant("snip never", snip_when="never"),
        variant("snip always", snip_when="always"),
        variant("landing strict", config={"landing": "strict"}),
        variant("kept user text halved", config={"user_message_max_tokens": 6_500}),
        variant("shape ladder, tail 4k", shape="ladder", config={"tail_tokens": 4_096}),
        variant("objective cost", config={"objective": "cost"}),
    ]
    if whole:
        arms += [
            variant("trigger 0.8", trigger=0.8),
            variant("trigger 0.9", trigger=0.9),
            variant("block 0.95", config={"block_ratio": 0.95}),
            variant("target 0.3", config={"target_ratio": 0.3}),
            variant("margin 0.2", config={"recompact_margin_ratio": 0.2}),
        ]
        arms += [
            variant(f"{shape} at {t}{', prune' if prune else ''}", shape=shape, trigger=t, prune_at_trigger=prune)
            for shape, t, prune in product(("handoff", "span", "ladder"), GRID, (False, True))
            if (shape, prune) != ("handoff", False)
        ]
    return arms


def sweep_jobs(arms: Iterable[Arm]) -> list[Job]:
    """At the fidelity where arms differ in recall."""
    seen = range(1, SWEEP_SEEDS + 1)
    return [Job(task, arm, seed, SWEEP_FIDELITY) for task, arm, seed in product(SWEEP_TASKS, arms, seen)]


@dataclass(frozen=True, slots=True)
class Point:
    """A variant: recall over the tasks, tokens and cost for one of `default`'s, seconds waited per landing."""

    name: str
    recall: float
    tokens: float
    cost: float
    waited_s: float
    deaths: int
    on_front: bool = False


def points(cells: Cells, arms: Sequence[Arm]) -> list[Point]:
    """The variants in the order given; `on_front` marks those that no other beats in recall, tokens and waiting."""
    return _with_front([_point(cells, arm.name) for arm in arms])


def of_page(found: Sequence[Point]) -> list[Point]:
    """Those of the shorter sweep with their own front: the page is the same whatever else was tried."""
    names = {arm.name for arm in sweep_arms(whole=False)}
    return _with_front([p for p in found if p.name in names])


def _with_front(found: Sequence[Point]) -> list[Point]:
    return [replace(p, on_front=not any(beats(q, p) for q in found)) for p in found]


def _point(cells: Cells, arm: str) -> Point:
    fidelity = SWEEP_FIDELITY.name
    mine = [cells[task, arm, fidelity] for task in SWEEP_TASKS]
    landed = sum(c.mean(lambda o: o.landed) for c in mine)
    return Point(
        arm,
        sum(c.recall for c in mine) / len(mine),
        relative(cells, arm, "default", SWEEP_TASKS, fidelity, lambda c: c.tokens),
        relative(cells, arm, "default", SWEEP_TASKS, fidelity, lambda c: c.cost),
        sum(c.mean(lambda o: o.stalled_s) for c in mine) / max(1.0, landed),
        sum(c.deaths for c in mine),
    )


def beats(q: Point, p: Point) -> bool:
    """In none of the three worse, in one of them better by more than noise."""
    if q.deaths > p.deaths or q.recall < p.recall or q.tokens > p.tokens or q.waited_s > p.waited_s:
        return False
    return q.recall > p.recall + 0.005 or q.tokens < p.tokens - 0.005 or q.waited_s < p.waited_s - 0.5
