"""A report as one HTML file: no network, nothing of the log unescaped. Pure but for reading its own three assets."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import msgspec

from sidecar.inspect import charts, sections
from sidecar.inspect.report import AgentReport, Report
from sidecar.inspect.words import duration, escaped, isolated, moment, plural

_ASSETS = Path(__file__).with_name("assets")

_SCRIPT_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""What could end or bend a script element, as JSON writes it instead."""


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def render(report: Report) -> str:
    """The page. Its size is bounded by the number of compactions and turns, not by that of the log."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = [charts.rows(agent, _anchor(i)) for i, agent in enumerate(report.agents)]
    values = {
        "title": escaped(f"{report.title or report.session_id or 'Session'} · inspector"),
        "script_hash": f"sha256-{digest}",
        "style": _asset("page.css"),
        "body": _body(report),
        "data": msgspec.json.encode(data).decode().translate(_SCRIPT_SAFE),
        "script": script,
    }
    page = _asset("page.html")
    pieces = page.split("{")
    return pieces[0] + "".join(values[name] + rest for name, rest in (p.split("}", 1) for p in pieces[1:]))


def _anchor(index: int) -> str:
    return f"c{index}-"


def _body(report: Report) -> str:
    parts = [_header(report)]
    if len(report.agents) > 1:
        links = "".join(f'<li><a href="#a{i}">{isolated(a.agent_id)}</a></li>' for i, a in enumerate(report.agents))
        parts.append(f'<ul class="agents" aria-label="Agents">{links}</ul>')
    parts += (_agent(i, agent, alone=len(report.agents) == 1) for i, agent in enumerate(report.agents))
    parts.append(
        "<footer>Cost is in uncached prompt tokens: the model's prices say what a cached and a written one "
        "count, or else a tenth and five. Times are UTC.</footer>"
    )
    return "\n".join(parts)


def _header(report: Report) -> str:
    main = report.agents[0]
    span = main.end - main.begin
    facts = [
        f"<span>{isolated(report.session_id)}</span>",
        f"<span>{isolated(main.model or 'no model')}</span>",
        f"<span>{isolated(report.cwd)}</span>" if report.cwd else "",
        f"<span>{moment(report.created_at or main.begin)}, {duration(max(0, span))}</span>",
        f"<span>forked from {isolated(report.forked_from)}, line {report.fork_line}</span>"
        if report.forked_from
        else "",
        f"<span>{plural(sum(a.lines for a in report.agents), 'record')}, {plural(len(main.turns), 'turn')}</span>",
    ]
    return (
        '<header class="top"><div><div class="brand">Session inspector</div>'
        f"<h1>{isolated(report.title or 'Untitled session')}</h1>"
        f'<p class="meta">{"".join(facts)}</p></div>'
        '<button id="theme" type="button" aria-label="Light or dark">◐</button></header>'
    )


def _agent(index: int, agent: AgentReport, *, alone: bool) -> str:
    heading = ""
    if not alone:
        purpose = f"<p>{isolated(agent.purpose)}</p>" if agent.purpose else ""
        heading = f"<header><h2>Agent {isolated(agent.agent_id)}</h2>{purpose}</header>"
    damaged = (
        f'<p class="card">{plural(agent.damaged, "line")} of this log cannot be read and '
        f"{'is' if agent.damaged == 1 else 'are'} left out here.</p>"
        if agent.damaged
        else ""
    )
    return "\n".join(
        (
            f'<section class="agent" id="a{index}">',
            heading,
            damaged,
            sections.tiles(agent),
            sections.context(agent, index),
            sections.cache(agent, index),
            sections.turns(agent, index),
            sections.compactions(agent, _anchor(index)),
            sections.rewrites(agent),
            "</section>",
        )
    )
