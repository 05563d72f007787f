"""Which files a text imports: `@relative/path` between spaces, outside of code. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")
"""However far it is indented: in a list it may be far."""

_TICKS = re.compile("`+")
_IMPORT = re.compile(r"(?:(?<=\s)|(?<=[(（])|^)@([^\s`\"'<>|*?]+)", re.MULTILINE)
_AFTER = ".,;:!?)]}。，；：！？）】"


def imports_of(text: str) -> tuple[str, ...]:
    """The targets as they are written, without the `@`, each once, in order."""
    prose = "\n".join(map(_without_spans, _without_fences(text).split("\n")))
    found = (m.group(1).rstrip(_AFTER) for m in _IMPORT.finditer(prose))
    return tuple(dict.fromkeys(target for target in found if target))


def _without_fences(text: str) -> str:
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        mark, info = found.groups() if found else ("", "")
        if fence:
            if mark.startswith(fence) and not info.strip():
                fence = ""
        elif mark.startswith("~") or (mark and "`" not in info):
            fence = mark
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_spans(line: str) -> str:
    """A run of backticks opens a span where another of the same length follows. Linear in the line."""
    runs = list(_TICKS.finditer(line))
    following: list[int | None] = []
    nearest: dict[int, int] = {}
    for i in range(len(runs) - 1, -1, -1):
        length = runs[i].end() - runs[i].start()
        following.append(nearest.get(length))
        nearest[length] = i
    following.reverse()
    kept: list[str] = []
    at = i = 0
    while i < len(runs):
        closing = following[i]
        if closing is None:
            i += 1
            continue
        kept.append(line[at : runs[i].start()])
        at, i = runs[closing].end(), closing + 1
    return " ".join([*kept, line[at:]])


def names_a_file(target: str) -> bool:
    """Whether a target that leads nowhere was meant as a file: `@docs/style.md` and `@/etc/hosts` were, `@alice` and
    `@types/node` were not."""
    name = PurePosixPath(target).name
    if name and target.startswith(("/", "~/", "./", "../")):
        return True
    return bool(PurePosixPath(name).suffix) and not name.endswith(".")


def is_relative(target: str) -> bool:
    return not target.startswith(("/", "~", "\\")) and not re.match(r"[A-Za-z]:", target)
