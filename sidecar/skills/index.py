"""The list of skills that stands in the prefix. Pure; the same skills give the same bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.skills.definition import Skill

MAX_LINE_CHARS: Final = 130
MAX_INDEX_CHARS: Final = 4_000

_OPEN: Final = "<skills>\nPlaybooks for certain tasks. Call run_skill with a name when its description fits the task:"
_OPEN_LISTED: Final = "<skills>\nPlaybooks for certain tasks, which the user can activate by name:"
_CLOSE: Final = "</skills>"


def skills_index(skills: Sequence[Skill], *, runnable: bool = True) -> str:
    """The index, at most `MAX_INDEX_CHARS` long with all around it; empty without skills. `runnable`: the model has
    `run_skill`.

    Where it is too long descriptions go first, from the end of the list; names go last, from the end too. What was
    left out is counted.
    """
    if not skills:
        return ""
    count = len(skills)
    described = _largest(count, lambda n: len(_render(skills, count, n, runnable)))
    if described is not None:
        return _render(skills, count, described, runnable)
    return _render(skills, _largest(count, lambda n: len(_render(skills, n, 0, runnable))) or 0, 0, runnable)


def _largest(upper: int, length: Callable[[int], int]) -> int | None:
    """The largest number up to `upper` whose text fits; None if none does. All of them are tried first: leaving
    something out costs a line that says so."""
    if length(upper) <= MAX_INDEX_CHARS:
        return upper
    fitting = bisect_right(range(upper), MAX_INDEX_CHARS, key=length)
    return fitting - 1 if fitting else None


def _render(skills: Sequence[Skill], named: int, described: int, runnable: bool) -> str:
    """The index with the first `named` skills, the first `described` of them with their descriptions."""
    lines = [_line(skill, index < described) for index, skill in enumerate(skills[:named])]
    missing = []
    if named < len(skills):
        missing.append(f"{len(skills) - named} more skills are not listed")
    if described < named:
        missing.append(f"{named - described} descriptions are left out: read_skill shows them")
    if missing:
        lines.append(f"({'; '.join(missing)})")
    return "\n".join([_OPEN if runnable else _OPEN_LISTED, *lines, _CLOSE])


def _line(skill: Skill, described: bool) -> str:
    text = f"- {skill.name}: {_escaped(skill.description)}" if described else f"- {skill.name}"
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")
