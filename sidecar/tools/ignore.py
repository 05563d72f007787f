"""Which files a `.gitignore` leaves out. Pure; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sidecar.tools.globs import BadGlob, translate

FILE_NAME = ".gitignore"
MAX_BYTES = 1 << 20
NEVER = frozenset((".git", ".hg", ".svn", ".jj"))
"""Directories of version control: never walked into."""


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: re.Pattern[str]
    keeps: bool
    directories_only: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one file. `base` is its directory relative to the walk's start, with a final `/`, empty for the
    start itself; a file further up has `above`, the way from its directory down to the start."""

    base: str
    above: str
    rules: tuple[_Rule, ...]

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """True: ignored, False: kept on purpose, None: these rules say nothing. The last rule that matches decides."""
        inner = self.above + path[len(self.base) :]
        for rule in reversed(self.rules):
            if (is_directory or not rule.directories_only) and rule.expression.fullmatch(inner) is not None:
                return not rule.keeps
        return None


def parse(text: str, base: str = "", above: str = "") -> Rules | None:
    """The rules that a `.gitignore` holds; None if it has none. `base` and `above` as in `Rules`."""
    rules = [rule for line in text.split("\n") if (rule := _parse_line(line)) is not None]
    return Rules(base, above, tuple(rules)) if rules else None


def _parse_line(line: str) -> _Rule | None:
    line = line.removesuffix("\r")
    stripped = line.rstrip(" ")
    if stripped != line and stripped.endswith("\\"):
        stripped += " "
    if not stripped or stripped.startswith("#"):
        return None
    keeps = stripped.startswith("!")
    pattern = stripped[1:] if keeps else stripped
    directories_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    pattern = pattern.lstrip("/")
    if not pattern:
        return None
    try:
        expression = translate(pattern if anchored else "**/" + pattern)
        return _Rule(re.compile(expression, re.DOTALL), keeps, directories_only)
    except (BadGlob, re.error):
        return None


def is_ignored(stack: list[Rules], path: str, is_directory: bool) -> bool:
    """Whether the rules, the outermost directory's first, leave this path out; the innermost that says something
    decides."""
    for rules in reversed(stack):
        verdict = rules.verdict(path, is_directory)
        if verdict is not None:
            return verdict
    return False
