"""The page that tells what was found: `scripts/results/evaluation.md`. Everything in it is computed from the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.evaluation import studies
from scripts.evaluation.arms import ARMS
from scripts.evaluation.contest import Cell, Cells, relative
from scripts.evaluation.goals import Check
from scripts.evaluation.prose import growth_of, how_far, in_short, why
from scripts.evaluation.readings import Outcome
from scripts.evaluation.studies import Point
from scripts.evaluation.summaries import CAREFUL, CARELESS, FIDELITIES, PERFECT
from scripts.evaluation.tables import amount, share, table
from scripts.evaluation.tasks import PLANS, TASKS
from sidecar.compaction.policy import Prices, step_cost

Of = Callable[[Outcome], float]


def page(cells: Cells, checks: Sequence[Check], points: Sequence[Point], seeds: int) -> str:
    """Markdown. `cells` are those of the contest and of all studies."""
    met = sum(c.met for c in checks if c.kind == "goal")
    goals = sum(c.kind == "goal" for c in checks)
    sections = [
        "# Is the default the best?",
        f"Written by `python -m scripts.eval_compaction`, {seeds} seeds, the same figures every time. "
        f"**{met} of {goals} goals met.**",
        in_short(cells),
        _contest(cells),
        _checks(checks),
        why(cells, points),
        _fidelities(cells),
        _huge(cells),
        _sweep(points),
        how_far(cells),
        _rows(cells),
    ]
    return "\n\n".join(sections) + "\n"


# ---------------------------------------------------------------- the contest


def _contest(cells: Cells) -> str:
    """An arm a line: recall by task, and what it costs."""
    head = ["arm", *(f"recall {task}" for task in TASKS), "tokens in all", "task by task", "waited", "deaths"]
    mine = sum(cells[task, "default", PERFECT.name].tokens for task in TASKS)
    lines = []
    for arm in ARMS:
        row = [cells[task, arm, PERFECT.name] for task in TASKS]
        ratio = relative(cells, arm, "default", TASKS, PERFECT.name, lambda c: c.tokens)
        dead = sum(c.deaths for c in row)
        lines.append(
            [
                f"**{arm}**" if arm == "default" else arm,
                *(f"{c.recall:.2f}" for c in row),
                "" if dead else f"{sum(c.tokens for c in row) / mine:.2f}",
                "" if dead else f"{ratio:.2f}",
                f"{sum(c.mean(lambda o: o.stalled_s) for c in row):,.0f} s",
                str(dead or ""),
            ]
        )
    return (
        "## The contest\n\n"
        + table(head, lines)
        + "\n\n`recall`: the share of planted facts that a reader of the final context gets right (`recovery` further "
        "down: with `record_search`); a session that died of overflow has none. Tokens: prompt tokens for one of "
        "`default`'s, summed over the tasks, and as the mean of the tasks' ratios. `waited`: what one session of each "
        "task stood still for compaction."
    )


def _checks(checks: Sequence[Check]) -> str:
    goals = [[c.name, "yes" if c.met else "**no**", c.detail] for c in checks if c.kind == "goal"]
    standard = [[c.name, "yes" if c.met else "**no**", c.detail] for c in checks if c.kind == "standard"]
    return (
        "## Goals\n\n"
        + table(["goal for `default`", "met", "measured"], goals)
        + "\n\nThe standard checks itself; if one of these fails, the figures mean nothing:\n\n"
        + table(["check", "met", "measured"], standard)
    )


# ---------------------------------------------------------------- the studies


def _fidelities(cells: Cells) -> str:
    columns: list[tuple[str, Of]] = [
        ("recall", lambda o: o.recall),
        ("recovery", lambda o: o.recovered),
        ("constraints", lambda o: o.constraints),
        ("corrections", lambda o: o.corrections),
        ("stale", lambda o: o.stale),
        ("wrong", lambda o: o.wrong),
        ("revived", lambda o: o.revived),
        ("unheeded", lambda o: o.unheeded),
        ("forgotten", lambda o: o.forgotten),
    ]
    lines = []
    for fidelity in FIDELITIES:
        for arm in studies.FIDELITY_ARMS:
            row = [cells[task, arm.name, fidelity.name] for task in studies.FIDELITY_TASKS]
            values = [sum(c.mean(of) for c in row) / len(row) for _, of in columns]
            lines.append([fidelity.name, arm.name, *map(share, values)])
    return (
        f"## Summarisers that are not perfect\n\nMeans over {', '.join(studies.FIDELITY_TASKS)}.\n\n"
        + table(["summariser", "arm", *(name for name, _ in columns)], lines)
        + "\n\n`keeps 0.8` carries over a fact that it reads first hand with that chance, and loses one that only an "
        "earlier summary says a quarter as often. `constraints`: recall of what the user forbade or demanded. "
        "`corrections`: of what the user corrected; `stale`: the value that was taken back is believed instead. "
        "`wrong`: of all facts, another value is believed. `revived`: finished jobs that look open; `unheeded`: so "
        "to a reader who ignores the continuation reminder. `forgotten`: jobs put off until later that no longer look "
        "open."
    )


def _huge(cells: Cells) -> str:
    lines = []
    for arm in ("default", "objective cost"):
        cell = cells["huge", arm, PERFECT.name]
        recalls = [cells["huge", arm, f.name].recall for f in (PERFECT, CAREFUL, CARELESS)]
        lines.append(
            [
                arm,
                amount(cell.mean(lambda o: o.trigger)),
                amount(cell.tokens),
                amount(cell.cost),
                amount(cell.cost / cell.mean(lambda o: o.steps)),
                amount(modelled(cell)),
                f"{cell.mean(lambda o: o.paid):.1f}",
                *map(share, recalls),
            ]
        )
    head = ["", "landed at", "tokens", "cost", "a step", "by the model", "paid"]
    head += [f"recall, {f.name}" for f in (PERFECT, CAREFUL, CARELESS)]
    usual, cheap = (cells["huge", arm, PERFECT.name].cost for arm in ("default", "objective cost"))
    return (
        "## A million-token window\n\n"
        + table(head, lines)
        + f"\n\nCost counts an uncached prompt token as 1, a cached one as 0.1, a summary's output token as 5. "
        f'`compaction.objective = "cost"` pays {cheap / usual:.0%} of what the ratios pay, with '
        f"{cells['huge', 'objective cost', PERFECT.name].mean(lambda o: o.landed):.0f} landings instead of "
        f"{cells['huge', 'default', PERFECT.name].mean(lambda o: o.landed):.1f}. Each of them is one more chance to "
        "lose something: with a summariser that is not perfect most of the context's memory goes, though "
        "`record_search` still finds it. That is the session's owner to decide, so `window` stays the default."
    )


def modelled(cell: Cell) -> float:
    """A step's cost by the formula, from what was measured of growth, landings and summaries; 0 without landings."""
    trigger, left = cell.mean(lambda o: o.trigger), cell.mean(lambda o: o.after_landing)
    if trigger <= left:
        return 0.0
    return step_cost(trigger, growth_of(cell), Prices())


def _sweep(points: Sequence[Point]) -> str:
    lines = [
        [
            f"**{p.name}**" if p.on_front else p.name,
            share(p.recall),
            f"{p.tokens:.2f}",
            f"{p.cost:.2f}",
            f"{p.waited_s:.1f} s",
        ]
        for p in sorted(points, key=lambda p: (-p.recall, p.tokens))
    ]
    return (
        "## The sweep\n\n`default` with one thing changed, over "
        f"{', '.join(studies.SWEEP_TASKS)}, with a summariser that keeps 0.8 (with a perfect one all that do not prune "
        "have recall 1.00). Bold: nothing else is as good in recall, tokens and waiting and better in one.\n\n"
        + table(["policy", "recall", "tokens", "cost", "waited a landing"], lines)
    )


# ---------------------------------------------------------------- everything


def _rows(cells: Cells) -> str:
    head = ["task", "arm", "recall", "recovery", "cache hit", "prompt tokens", "cost", "a step", "by the model"]
    head += ["paid", "discarded", "stalled", "deaths"]
    lines = []
    for task in TASKS:
        for arm in ARMS:
            cell = cells[task, arm, PERFECT.name]
            model = modelled(cell)
            lines.append(
                [
                    task,
                    arm,
                    _with_spread(cell, lambda o: o.recall),
                    share(cell.mean(lambda o: o.recovered)),
                    _with_spread(cell, lambda o: o.cache_hit),
                    amount(cell.tokens),
                    amount(cell.cost),
                    amount(cell.cost / max(1.0, cell.mean(lambda o: o.steps))),
                    amount(model) if model else "",
                    *(f"{cell.mean(of):.1f}" for of in _COUNTS),
                    str(cell.deaths or ""),
                ]
            )
    windows = ", ".join(f"{task} {PLANS[task].window:,}" for task in TASKS)
    return f"## All rows\n\nMeans over the seeds, lowest and highest in brackets. Windows: {windows}.\n\n" + table(
        head, lines
    )


_COUNTS: tuple[Of, ...] = (lambda o: o.paid, lambda o: o.discarded, lambda o: o.stalled)


def _with_spread(cell: Cell, of: Of) -> str:
    low, high = cell.spread(of)
    mean = share(cell.mean(of))
    return mean if high - low < 0.005 else f"{mean} ({low:.2f}–{high:.2f})"
