"""The rows that the page's charts draw, thinned to what a screen can show. Pure."""

from __future__ import annotations

from typing import Any

from sidecar.inspect.report import AgentReport, Compaction, Point, Request, Rewrite
from sidecar.inspect.words import duration, outcome_words, short

MAX_POINTS = 4_000
"""Points of the context's curve; of more, the lowest and the highest of each stretch are drawn."""

MAX_REQUESTS = 6_000
"""Requests and turns that get a bar of their own; of more, the newest do."""


def rows(agent: AgentReport, prefix: str) -> dict[str, Any]:
    """One agent's rows. `prefix` begins the anchors of its compactions."""
    return {
        "steps": agent.steps,
        "begin": agent.begin,
        "end": agent.end,
        "points": [[p.x, p.time, p.used] for p in thinned(agent.points)],
        "limits": [[x.x, _time_at(agent, x.x), x.window, x.soft, x.snip, x.trigger, x.block] for x in agent.limits],
        "compactions": [_compaction(c, prefix) for c in agent.compactions],
        "rewrites": [[r.x, r.time, r.line, _rewrite_words(r)] for r in agent.rewrites],
        "requests": [_request(r) for r in agent.requests[-MAX_REQUESTS:]],
        "turns": [
            [
                t.number,
                t.begin,
                t.paid.prompt - t.paid.cached,
                round(t.paid.cost_of_cached),
                round(t.paid.cost_of_output),
                t.paid.prompt,
                t.paid.completion,
                t.stop_reason,
                t.text[:120],
            ]
            for t in agent.turns[-MAX_REQUESTS:]
        ],
    }


def thinned(points: tuple[Point, ...], most: int = MAX_POINTS) -> list[Point]:
    """At most `most` points: first, lowest, highest and last of every stretch, in order."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) * 4 // most)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        low = min(stretch, key=lambda i: points[i].used)
        high = max(stretch, key=lambda i: points[i].used)
        kept += (points[i] for i in sorted({stretch[0], low, high, stretch[-1]}))
    return kept


def _time_at(agent: AgentReport, x: float) -> int:
    return next((p.time for p in agent.points if p.x >= x), agent.begin)


def _request(r: Request) -> list[Any]:
    why = ", ".join((*(f"{c} changed" for c in r.changed), *r.reasons)) or "no known reason"
    words = f"{short(r.lost)} lost: {why}" if r.lost else ""
    return [int(r.x), r.time, r.tokens.prompt, r.tokens.cached, r.tokens.completion, r.lost, words, int(r.unexplained)]


def _compaction(c: Compaction, prefix: str) -> dict[str, Any]:
    size = short(c.pre_tokens) + (f" → {short(c.post_tokens)}" if c.post_tokens is not None else "")
    paid = f"paid {short(c.paid.prompt)} in, {short(c.paid.completion)} out" if c.paid.requests else "no request paid"
    took = duration(c.duration_ms)
    return {
        "n": c.number,
        "anchor": f"{prefix}{c.number}",
        "x0": c.start_x,
        "x1": c.end_x,
        "t0": c.start_time,
        "t1": c.end_time,
        "outcome": c.outcome,
        "words": f"Compaction {c.number}: {outcome_words(c)}\n{size} tokens, {took}, {c.mode}\n{paid}",
    }


def _rewrite_words(r: Rewrite) -> str:
    if r.pre_tokens is None or r.post_tokens is None:
        return f"{r.action}, line {r.line}"
    return f"{r.action}: {short(r.pre_tokens)} → {short(r.post_tokens)} tokens, line {r.line}"
