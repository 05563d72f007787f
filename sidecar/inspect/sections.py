"""The parts of the page, each a card. Pure; every text of the log goes through `escaped` or `isolated`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sidecar.inspect.report import AgentReport, Compaction, Excerpt, Request, Turn
from sidecar.inspect.words import duration, escaped, isolated, moment, outcome_words, percent, plural, short

MAX_ROWS = 1_000
"""Rows of one table; the newest stay."""

TEXT_BUDGET = 4_000_000
"""Characters of span text on the page, shared evenly by the compactions; what is over becomes shorter excerpts."""


def tiles(agent: AgentReport) -> str:
    total, window = agent.total, agent.window
    tried = len(agent.compactions)
    failed = f", {agent.failed_requests:,} failed" if agent.failed_requests else ""
    cells = [
        _tile(
            "Context now",
            short(agent.used),
            f"{percent(agent.used, window)} of {short(window)}" if window else "window unknown",
            agent.used / window if window else None,
        ),
        _tile("Highest", short(agent.peak), f"{percent(agent.peak, window)} of the window" if window else ""),
        _tile("Compactions", str(agent.landed), f"landed, of {tried} started" if tried else "none started"),
        _tile(
            "Cache hits",
            percent(agent.step_tokens.cached, agent.step_tokens.prompt),
            "of the prompt, summaries aside",
            agent.step_tokens.hit_ratio,
        ),
        _tile("Turns", f"{len(agent.turns):,}", plural(agent.steps, "step")),
        _tile("Prompt tokens", short(total.prompt), f"in {plural(total.requests, 'request')}{failed}"),
        _tile("Written", short(total.completion), "tokens by the model"),
        _tile("Cost", short(total.cost), f"{percent(agent.summary_tokens.cost, total.cost)} of it for summaries"),
    ]
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _tile(name: str, value: str, note: str, share: float | None = None) -> str:
    bar = "" if share is None else f'<span class="bar"><i style="width:{min(1.0, share):.1%}"></i></span>'
    return f'<div class="tile"><dt>{name}</dt><dd>{value}<small>{note}</small>{bar}</dd></div>'


_ZOOM = (
    '<button type="button" data-zoom="0.5" aria-label="Narrower">−</button>'
    '<button type="button" data-zoom="2" aria-label="Wider">+</button>'
)
_AXIS = (
    '<button type="button" data-axis="steps" aria-pressed="true">steps</button>'
    '<button type="button" data-axis="time" aria-pressed="false">time</button>'
)


def _card(title: str, hint: str, inside: str, tools: str = "") -> str:
    buttons = f'<div class="tools">{tools}</div>' if tools else ""
    note = f'<p class="hint">{hint}</p>' if hint else ""
    return f'<section class="card"><div class="head"><h2>{title}</h2>{buttons}</div>{note}{inside}</section>'


def _chart(kind: str, index: int, label: str) -> str:
    return f'<div class="chart" data-chart="{kind}" data-agent="{index}" aria-label="{label}"></div>'


def _legend(*rows: tuple[str, str, bool]) -> str:
    marks = (
        f'<li><i class="rule" style="border-color:var({colour})"></i>{name}</li>'
        if rule
        else f'<li><i style="background:var({colour})"></i>{name}</li>'
        for name, colour, rule in rows
    )
    return f'<ul class="legend">{"".join(marks)}</ul>'


def context(agent: AgentReport, index: int) -> str:
    legend = _legend(
        ("tokens in the context", "--accent", False),
        ("soft", "--soft", True),
        ("snip", "--out", True),
        ("trigger", "--warn", True),
        ("block", "--bad", True),
        ("compaction landed", "--good", False),
        ("did not land", "--bad", False),
        ("rewrite", "--out", False),
    )
    if not agent.points:
        return _card("Context use", "", '<p class="empty">Nothing was measured yet.</p>')
    chart = _chart("context", index, "Tokens in the context over the steps, with the compactions above")
    return _card("Context use", "", chart + legend, _AXIS + _ZOOM)


# ---------------------------------------------------------------- compactions


def compactions(agent: AgentReport, prefix: str) -> str:
    if not agent.compactions:
        return ""
    reasons = Counter(c.reason or c.outcome for c in agent.compactions if c.outcome != "landed")
    chips = "".join(f' <span class="chip bad">{escaped(name)} {count}</span>' for name, count in reasons.most_common(6))
    paid = agent.summary_tokens
    hint = (
        f"{agent.landed} landed, {short(paid.prompt)} prompt and {short(paid.completion)} written tokens paid for "
        f"summaries.{chips}"
    )
    kept = sum(len(c.span) for c in agent.compactions)
    limit = max(60, TEXT_BUDGET // kept) if kept else TEXT_BUDGET
    inside = "".join(_compaction(c, prefix, limit) for c in agent.compactions)
    return _card("Compactions", hint, inside)


def _compaction(c: Compaction, prefix: str, limit: int) -> str:
    chip = {"landed": "good", "cancelled": "bad", "open": "warn"}[c.outcome]
    label = c.outcome if c.outcome != "cancelled" else (c.reason or "cancelled").replace("_", " ")
    size = f'<span class="nums"><b>{short(c.pre_tokens)}</b></span>'
    if c.post_tokens is not None:
        share = c.post_tokens / c.pre_tokens if c.pre_tokens else 0.0
        size = f'<span class="nums"><b>{short(c.pre_tokens)}</b> → <b>{short(c.post_tokens)}</b></span>'
        size += f'<span class="bar"><i style="width:{min(1.0, share):.1%}"></i></span>'
    paid = f"paid {short(c.paid.prompt)} + {short(c.paid.completion)}" if c.paid.requests else "nothing paid"
    return (
        f'<details class="cmp" id="{prefix}{c.number}" data-outcome="{c.outcome}"><summary>'
        f'<span class="n">{c.number}</span><span><span class="chip {chip}">{escaped(label)}</span></span>'
        f'<span class="size">{size}</span><span class="paid">{paid}</span>'
        f'<span class="took">{duration(c.duration_ms)}</span></summary>'
        f'<div class="inside">{_facts(c)}{_texts(c, limit)}</div></details>'
    )


def _facts(c: Compaction) -> str:
    rows = [
        ("Outcome", escaped(outcome_words(c))),
        ("When", f"{moment(c.start_time)}, after step {int(c.start_x)}"),
        ("Started by", f"{escaped(c.trigger)}, {escaped(c.mode)}"),
        ("Span", f"{plural(c.message_count, 'message')}, lines {c.first_line}–{c.last_line}"),
        ("Records", f"{c.start_line}" + (f" and {c.end_line}" if c.end_line is not None else "")),
        ("Paid", _paid(c)),
    ]  # fmt: skip
    if c.shape:
        rows.append(("Shape", escaped(c.shape)))
    if c.attempts > 1 or c.dropped_messages:
        rows.append(("Attempts", f"{c.attempts}, {plural(c.dropped_messages, 'message')} dropped"))
    if c.instruction:
        rows.append(("Instruction", isolated(c.instruction[:2_000])))
    return '<dl class="facts">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in rows) + "</dl>"


def _paid(c: Compaction) -> str:
    if not c.paid.requests:
        return "nothing"
    cached = percent(c.paid.cached, c.paid.prompt)
    requests = f" in {plural(c.paid.requests, 'request')}" if c.paid.requests > 1 else ""
    return f"{c.paid.prompt:,} prompt ({cached} cached), {c.paid.completion:,} written{requests}"


def _texts(c: Compaction, limit: int) -> str:
    parts = []
    if c.summary:
        parts.append(f'<details class="sub" open><summary>Summary</summary><pre>{escaped(c.summary)}</pre></details>')
    if c.span:
        count = len(c.span) + c.left_out
        parts.append(
            f'<details class="sub"><summary>What it replaced: {plural(count, "message")}</summary>'
            f'<div class="msgs">{_messages(c.span, c.left_out, limit)}</div></details>'
        )
    elif c.outcome != "landed":
        parts.append('<p class="quiet">The span stayed in the context.</p>')
    return "".join(parts)


def _messages(span: tuple[Excerpt, ...], left_out: int, limit: int) -> str:
    rows = [_message(e, limit) for e in span]
    if left_out:
        rows.insert(min(60, len(rows)), f'<div class="gap">{plural(left_out, "message")} more in the log</div>')
    return "".join(rows)


def _message(e: Excerpt, limit: int) -> str:
    text = e.text if len(e.text) <= limit else e.text[:limit] + "…"
    role = e.who.partition(" ")[0]
    return (
        f'<div class="msg" data-role="{escaped(role)}"><div><b>{isolated(e.who)}</b>'
        f'<span class="r">{e.chars:,} chars · line {e.line}</span></div><p>{escaped(text)}</p></div>'
    )


# ---------------------------------------------------------------- cache, turns, rewrites


def cache(agent: AgentReport, index: int) -> str:
    if not agent.requests:
        return ""
    losses = [r for r in agent.requests if r.lost]
    why = Counter(reason for r in losses for reason in _reasons(r))
    chips = "".join(
        f' <span class="chip{" bad" if name == "unexplained" else ""}">{escaped(name)} {count}</span>'
        for name, count in why.most_common(10)
    )
    hint = f"{plural(len(losses), 'loss').replace('losss', 'losses')} of cached prefix.{chips}"
    legend = _legend(("from the cache", "--hit", False), ("new", "--miss", False), ("unexplained loss", "--bad", False))
    chart = _chart("cache", index, "Prompt tokens of each request, cached and not")
    return _card("Prompt cache", hint, chart + legend + _losses(losses), _ZOOM)


def _reasons(r: Request) -> tuple[str, ...]:
    return (*(f"{c} changed" for c in r.changed), *r.reasons) or ("unexplained",)


def _losses(losses: list[Request]) -> str:
    if not losses:
        return ""
    rows = (
        f'<tr><td class="num">{int(r.x)}</td><td class="opt">{moment(r.time)}</td><td class="num">{r.lost:,}</td>'
        f'<td class="num opt">{r.tokens.cached:,} of {r.tokens.prompt:,}</td><td>{_reason_chips(r)}</td>'
        f'<td class="num opt">{r.line}</td></tr>'
        for r in losses[-MAX_ROWS:]
    )
    head = _head(
        ("step", "num"), ("when", "opt"), ("lost", "num"), ("hit", "num opt"), ("reason", ""), ("line", "num opt")
    )
    return _more(f"Every loss ({len(losses)})", head, rows)


def _reason_chips(r: Request) -> str:
    kind = " bad" if r.unexplained else ""
    return " ".join(f'<span class="chip{kind}">{escaped(reason)}</span>' for reason in _reasons(r))


def turns(agent: AgentReport, index: int) -> str:
    if not agent.turns:
        return ""
    legend = _legend(("cached prompt", "--hit", False), ("new prompt", "--miss", False), ("written", "--out", False))
    chart = _chart("turns", index, "Cost of each turn")
    head = _head(
        ("turn", "num"), ("request", ""), ("began", "opt"), ("steps", "num"), ("prompt", "num opt"),
        ("cached", "num opt"), ("written", "num opt"), ("cost", "num"), ("end", ""),
    )  # fmt: skip
    table = _more(f"Every turn ({len(agent.turns):,})", head, (_turn(t) for t in agent.turns[-MAX_ROWS:]))
    mean = agent.total.cost / len(agent.turns)
    return _card("Cost by turn", f"{short(mean)} a turn on average.", chart + legend + table, _ZOOM)


def _turn(t: Turn) -> str:
    kind = {"end_turn": "quiet", "running": "chip", "error": "chip bad"}.get(t.stop_reason, "chip warn")
    end = f'<span class="{kind}">{escaped(t.stop_reason.replace("_", " "))}</span>'
    if t.error:
        end += f'<br><span class="quiet">{isolated(t.error)}</span>'
    took = f", {duration(t.end - t.begin)}" if t.end is not None else ""
    return (
        f'<tr><td class="num">{t.number}</td><td class="text"><span>{isolated(t.text)}</span></td>'
        f'<td class="opt">{moment(t.begin)}{took}</td><td class="num">{t.steps}</td>'
        f'<td class="num opt">{short(t.paid.prompt)}</td>'
        f'<td class="num opt">{percent(t.paid.cached, t.paid.prompt)}</td>'
        f'<td class="num opt">{short(t.paid.completion)}</td><td class="num">{short(t.paid.cost)}</td>'
        f"<td>{end}</td></tr>"
    )


def rewrites(agent: AgentReport) -> str:
    if not agent.rewrites:
        return ""
    saved = sum((r.pre_tokens or 0) - (r.post_tokens or 0) for r in agent.rewrites)
    rows = (
        f'<tr><td class="num">{int(r.x)}</td><td class="opt">{moment(r.time)}</td>'
        f'<td><span class="chip">{escaped(r.action)}</span></td>'
        f'<td class="num">{_sizes(r.pre_tokens, r.post_tokens)}</td><td class="num">{r.messages or ""}</td>'
        f'<td class="num opt">{r.line}</td></tr>'
        for r in agent.rewrites[-MAX_ROWS:]
    )
    head = _head(
        ("after step", "num"),
        ("when", "opt"),
        ("action", ""),
        ("tokens", "num"),
        ("messages", "num"),
        ("line", "num opt"),
    )
    hint = f"{plural(len(agent.rewrites), 'change')} of the context without a model, {short(saved)} tokens smaller."
    return _card("Rewrites", hint, _more(f"Every rewrite ({len(agent.rewrites)})", head, rows))


def _sizes(pre: int | None, post: int | None) -> str:
    return "–" if pre is None or post is None else f"{short(pre)} → {short(post)}"


def _head(*columns: tuple[str, str]) -> str:
    return "".join(f'<th class="{kind}">{name}</th>' if kind else f"<th>{name}</th>" for name, kind in columns)


def _more(title: str, head: str, rows: Iterable[str]) -> str:
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<details class="more"><summary>{title}</summary><div class="wide">{table}</div></details>'
