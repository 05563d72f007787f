"""Markdown tables and figures in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The first column reads from the left, figures from the right."""
    numeric = [all(_is_figure(line[i]) for line in lines) for i in range(len(head))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _is_figure(text: str) -> bool:
    return not text or text.lstrip("*-").removesuffix(" s")[:1].isdigit()


def share(value: float) -> str:
    return f"{value:.2f}"


def amount(value: float) -> str:
    """Three digits that matter: 5,830 is 5.83k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 1_000 * size else f"{value / size:,.0f}{unit}"
    return f"{value:.0f}"
