"""Which files a text imports: `@relative/path` between spaces, outside of code. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_IMPORT = re.compile(r"(?:(?<=\s)|(?<=[(（])|^)@([^\s`\"'<>|*?]+)", re.MULTILINE)
_AFTER = ".,;:!?)]}。，；：！？）】"


def imports_of(text: str) -> tuple[str, ...]:
    """The targets as they are written, without the `@`, each once, in order."""
    prose = _CODE_SPAN.sub(" ", _without_fences(text))
    found = (m.group(1).rstrip(_AFTER) for m in _IMPORT.finditer(prose))
    return tuple(dict.fromkeys(target for target in found if target))


def _without_fences(text: str) -> str:
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1)[0] == fence[0] and len(mark.group(1)) >= len(fence):
                fence = ""
            continue
        if mark:
            fence = mark.group(1)
            continue
        kept.append(line)
    return "\n".join(kept)


def names_a_file(target: str) -> bool:
    """Whether a target that leads nowhere was meant as a file: `@docs/style.md` and `@/etc/hosts` were, `@alice` and
    `@types/node` were not."""
    name = PurePosixPath(target).name
    if name and target.startswith(("/", "~/", "./", "../")):
        return True
    return bool(PurePosixPath(name).suffix) and not name.endswith(".")


def is_relative(target: str) -> bool:
    return not target.startswith(("/", "~", "\\")) and not re.match(r"[A-Za-z]:", target)
