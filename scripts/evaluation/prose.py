"""What the figures say, in words: why the default is what it is, what was tried, how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.evaluation.contest import Cell, Cells, relative
from scripts.evaluation.readings import Outcome
from scripts.evaluation.studies import IMAGES_ARM, SPAN_SHAPE, Point
from scripts.evaluation.summaries import CARELESS, PERFECT, Fidelity
from scripts.evaluation.tables import amount, table
from scripts.evaluation.tasks import PLANS, TASKS
from sidecar.compaction.policy import PRESETS, Growth, Prices, cheapest_trigger, step_cost

Of = Callable[[Outcome], float]


def in_short(cells: Cells) -> str:
    """The page in five lines."""
    handoff, own = _total(cells, "handoff"), _total(cells, "default")
    each = relative(cells, "handoff", "default", TASKS, PERFECT.name, lambda c: c.tokens)
    cheap = cells["huge", "objective cost", PERFECT.name].cost / cells["huge", "default", PERFECT.name].cost
    hits = [mean(cells, task, "default", lambda o: o.cache_hit) for task in ("light", "heavy")]
    return "\n".join(
        [
            f"- {_preset_row()}",
            "- With a summariser that carries over what it reads, it forgets nothing and dies nowhere. Cache hits: "
            f"{hits[0]:.2f} in `light`, {hits[1]:.2f} in `heavy`.",
            f"- Only `handoff` does so too. It stands still {_waited(cells, 'handoff'):,.0f} s where `default` does "
            f"{_waited(cells, 'default'):,.0f} s, and needs {handoff / own:.2f} of its tokens in all ({each:.2f} when "
            "every task counts alike).",
            "- What prunes old results instead of summarising (`span`, `ladder`, `fold_only`) loses recall, cache hits "
            "and tokens.",
            f'- In a million-token window `compaction.objective = "cost"` pays {cheap:.0%} of what `default` does. It '
            "is not the default: with a summariser that is not perfect it forgets most.",
        ]
    )


def why(cells: Cells, points: Sequence[Point]) -> str:
    """One paragraph a decision, each with the figures that decided it."""
    by_name = {p.name: p for p in points}
    return "\n\n".join(
        [
            "## Why the default is what it is",
            _pruning(cells, by_name["prune at the trigger"], by_name["default"]),
            _background(cells, by_name["landing strict"]),
            _shape(cells),
            _when(cells),
            _cold(cells),
            _tried(cells, by_name),
        ]
    )


def _preset_row() -> str:
    row = PRESETS["default"]
    prunes = "old results pruned at the trigger" if row.prune_at_trigger else "nothing pruned at the trigger"
    return (
        f"`default`: shape `{row.shape}`, started at {row.trigger} of the window in the background, snip "
        f"`{row.snip_when}`, {prunes}."
    )


def _pruning(cells: Cells, pruned: Point, plain: Point) -> str:
    recalls = [mean(cells, "heavy", arm, lambda o: o.recall) for arm in ("span", "fold_only", "default")]
    hits = [mean(cells, "heavy", arm, lambda o: o.cache_hit) for arm in ("span", "default")]
    return (
        "**No pruning at the trigger.** It saves summaries and nothing else. What is pruned before a summary was "
        "written is gone from the context, and the context stays near the trigger, where every step pays for it and "
        f"every pass breaks the cache: in `heavy`, recall is {recalls[0]:.2f} (`span`) and {recalls[1]:.2f} "
        f"(`fold_only`) against {recalls[2]:.2f}, cache hits {hits[0]:.2f} against {hits[1]:.2f}. `default` with "
        f"pruning takes {pruned.tokens:.2f} of the tokens and {pruned.cost:.2f} of the cost, and recall falls from "
        f"{plain.recall:.2f} to {pruned.recall:.2f} in the sweep."
    )


def _background(cells: Cells, strict: Point) -> str:
    bulky = [mean(cells, "bulky", arm, lambda o: o.recall) for arm in ("default", "handoff")]
    return (
        "**0.75, in the background, `rebase`.** What is added while the summary is written stays verbatim, and costs "
        "about what the lower trigger saves; where a step is a large part of the window (`light`, `heavy`, `long`) a "
        "little more. That is the price of not waiting. 0.75 also leaves room for the summary itself: with results of "
        f"a tenth of the window and more (`bulky`) recall is {bulky[0]:.2f}, with `handoff`'s 0.85 {bulky[1]:.2f}, "
        "because a request that does not fit shows only part of the span. Strict landing waits "
        f"{strict.waited_s:.0f} s a landing and throws most background summaries away."
    )


def _shape(cells: Cells) -> str:
    bound = [mean(cells, task, "default", lambda o: o.constraints, CARELESS) for task in ("light", "heavy", "chatty")]
    spans = [mean(cells, task, SPAN_SHAPE.name, lambda o: o.constraints, CARELESS) for task in ("light", "heavy")]
    chatty = cells["chatty", SPAN_SHAPE.name, PERFECT.name].tokens / cells["chatty", "default", PERFECT.name].tokens
    heavy = cells["heavy", SPAN_SHAPE.name, PERFECT.name].tokens / cells["heavy", "default", PERFECT.name].tokens
    return (
        "**Shape `handoff`.** It keeps the user's words instead of the latest results. With a summariser that keeps "
        f"half of what it reads, the user's constraints are all there in `light` and `heavy` ({bound[0]:.2f}, "
        f"{bound[1]:.2f}; span shape {spans[0]:.2f}, {spans[1]:.2f}); in `chatty`, where the user says ten times more "
        f"than is kept, {bound[2]:.2f}. A kept tail makes landings smaller, hence more frequent, and each is one more "
        f"chance to lose something: the span shape takes {heavy:.2f} of the tokens in `heavy`, though {chatty:.2f} in "
        "`chatty`. What speaks against it: a kept request looks open when the summary forgets that it is done "
        "(`unheeded` below). The continuation reminder says which requests are over (`revived`)."
    )


def _when(cells: Cells) -> str:
    """Where the cost model would start, from what each task measured."""
    lines, above = [], []
    for task in TASKS:
        cell, window = cells[task, "default", PERFECT.name], PLANS[task].window
        growth = growth_of(cell)
        cheapest = cheapest_trigger(growth, Prices()) or 0
        here = step_cost(cell.mean(lambda o: o.trigger), growth, Prices())
        lines.append(
            [
                task,
                amount(growth.per_step),
                amount(growth.after_landing),
                amount(growth.summary),
                f"{cell.mean(lambda o: o.trigger) / window:.2f}",
                f"{min(cheapest, window) / window:.2f}",
                f"{here / step_cost(cheapest, growth, Prices()):.2f}",
            ]
        )
        above.append(here / step_cost(cheapest, growth, Prices()))
    head = ["task", "a step adds", "a landing leaves", "a summary has", "landed at", "cheapest at", "cost against it"]
    return (
        "**When to rewrite.** A landing costs one cache miss of what it leaves, a late one costs tokens in every step. "
        "By the cost model, from what was measured (parts of the window):\n\n"
        + table(head, lines)
        + f"\n\nBut for `huge`, 0.75 costs at most {max(above[:-1]) - 1:.0%} more than the cheapest point, and every "
        "landing that is not made is one chance less to lose something."
    )


def _cold(cells: Cells) -> str:
    arms = ("default", "snip never", "snip always")
    recalls = [mean(cells, "pauses", arm, lambda o: o.recall) for arm in arms]
    costs = [mean(cells, "pauses", arm, lambda o: o.cost()) for arm in arms]
    found = mean(cells, "pauses", "default", lambda o: o.recovered)
    return (
        "**Snip when cold.** In the table's tasks results are below the limits of a snip. In `pauses` (larger results, "
        f"pauses over the life of the cache) recall in context is {recalls[0]:.2f} against {recalls[1]:.2f} without it "
        f"({found:.2f} with `record_search`), at {costs[0] / costs[1]:.2f} of the cost: it is no gain here, and little "
        f"harm. Warm snipping (`always`): recall {recalls[2]:.2f}, {costs[2] / costs[1]:.2f} of the cost."
    )


def _tried(cells: Cells, points: dict[str, Point]) -> str:
    halved, tail, early = points["kept user text halved"], points["shape ladder, tail 4k"], points["trigger 0.6"]
    images = cells["images", IMAGES_ARM.name, PERFECT.name].cost / cells["images", "default", PERFECT.name].cost
    return (
        "**Tried and not taken.** Trigger, kept user text, snip and landing are documented defaults; what they would "
        f"do otherwise, in the sweep: a trigger of 0.6 takes {early.tokens:.2f} of the tokens, recall "
        f"{early.recall:.2f} against {points['default'].recall:.2f}; half the kept user text {halved.tokens:.2f}, "
        f"recall {halved.recall:.2f}. A tail of 4k in the ladder shape: {tail.tokens:.2f}, recall {tail.recall:.2f}. "
        f"Pruning images alone at the trigger costs {images:.2f} of default's in `images`.\n\n"
        "**Changed because of what was seen here.** A summary request that must be shortened always shows the earlier "
        "summary: without that, everything before it was lost. The continuation reminder says which of the kept "
        "requests are over."
    )


def how_far(cells: Cells) -> str:
    """What the simulation assumes and leaves out."""
    light, heavy = (mean(cells, task, "span", lambda o: o.cache_hit) for task in ("light", "heavy"))
    return (
        "## How far to trust this\n\n"
        "- Policy, triggers, regions, shapes, landing, free half, breakers and the service itself are the daemon's "
        "own code, on its own records and fold. Time, provider, tools, user and summariser are simulated. A request "
        "hits for the longest byte prefix of an earlier one, for 300 s: no blocks, no eviction.\n"
        "- The summariser reads the text that it is shown and nothing else. The reader follows stated rules (the "
        "user's words first, later over earlier, void is void) and believes the continuation reminder; a real model "
        "does so less reliably.\n"
        "- A step takes some 3 to 8 s, a summary of 1,500 tokens some 20 s. Slower summaries make background "
        "compaction dearer, slower tools cheaper.\n"
        "- The total over all tasks is mostly `huge`; that is why the page counts task by task too.\n"
        "- The peer's tasks are not published. Its arrangement is the arm `span`; it reads "
        f"{light:.2f} and {heavy:.2f} cache hits here, 0.52 and 0.77 in its own tasks. Compare arms within a table, "
        "not tables."
    )


# ---------------------------------------------------------------- figures


def mean(cells: Cells, task: str, arm: str, of: Of, fidelity: Fidelity = PERFECT) -> float:
    return cells[task, arm, fidelity.name].mean(of)


def growth_of(cell: Cell) -> Growth:
    """What a task's sessions measured."""
    return Growth(
        cell.mean(lambda o: o.growth), cell.mean(lambda o: o.after_landing), cell.mean(lambda o: o.summary_tokens)
    )


def _total(cells: Cells, arm: str) -> float:
    return sum(cells[task, arm, PERFECT.name].tokens for task in TASKS)


def _waited(cells: Cells, arm: str) -> float:
    return sum(mean(cells, task, arm, lambda o: o.stalled_s) for task in TASKS)
