"""Rows of the benchmark's table, and how figures are taken on a machine that others use too."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
"""`{name, value, unit, baseline, ratio, goal, ok}`. `baseline` is a plain program's figure from the same run, `ratio`
value / baseline; both None where there is none. `goal` is in words; `ok` None where no goal is set."""


def row(
    name: str,
    value: float,
    unit: str,
    baseline: float | None = None,
    *,
    goal: str | None = None,
    ok: bool | None = None,
) -> Row:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "baseline": None if baseline is None else round(baseline, 3),
        "ratio": round(value / baseline, 3) if baseline else None,
        "goal": goal,
        "ok": ok,
    }


def interleaved(repeats: int, *takes: Callable[[], float]) -> list[list[float]]:
    """Figures of each take, taken in turns, so that a slow moment of the machine meets all of them."""
    figures: list[list[float]] = [[] for _ in takes]
    for n in range(repeats):
        order = range(len(takes)) if n % 2 == 0 else reversed(range(len(takes)))
        for i in order:
            figures[i].append(takes[i]())
    return figures


def median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def quantile(figures: Sequence[float], share: float) -> float:
    """The figure that `share` of all do not exceed."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
