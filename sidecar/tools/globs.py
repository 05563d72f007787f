"""Glob patterns over paths with `/`. Pure; standard library only.

`*` and `?` stay inside one name, `**` as a whole name stands for any number of directories, `[abc]`, `[!a-z]` for one
character, `{a,b}` for alternatives. Names that begin with a dot are matched like others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_LENGTH = 1000
MAX_ALTERNATIVES = 100
MAX_STARSTARS = 8
"""More `**` in one pattern than anybody needs; each one multiplies the ways to match a deep path."""


class BadGlob(Exception):
    """A pattern that cannot be used; the text says why."""


def matcher(pattern: str, *, fold_case: bool = False) -> re.Pattern[str]:
    """What `fullmatch`es the relative paths (no leading `/`) that the pattern stands for. Raises `BadGlob`."""
    return _compiled(pattern, fold_case)


@lru_cache(maxsize=512)
def _compiled(pattern: str, fold_case: bool) -> re.Pattern[str]:
    if len(pattern) > MAX_LENGTH:
        raise BadGlob(f"the pattern is over {MAX_LENGTH} characters long")
    forms = list(alternatives(pattern))
    return re.compile("|".join(translate(form) for form in forms), re.DOTALL | (re.IGNORECASE if fold_case else 0))


def alternatives(pattern: str) -> Iterator[str]:
    """The patterns that `{a,b}` stands for, at most `MAX_ALTERNATIVES`; braces that do not pair are plain text."""
    waiting = [pattern]
    made = 0
    while waiting:
        form = waiting.pop()
        span = _first_braces(form)
        if span is None:
            made += 1
            if made > MAX_ALTERNATIVES:
                raise BadGlob(f"the braces give more than {MAX_ALTERNATIVES} alternatives")
            yield form
            continue
        start, end, options = span
        if len(waiting) + len(options) > MAX_ALTERNATIVES:
            raise BadGlob(f"the braces give more than {MAX_ALTERNATIVES} alternatives")
        waiting.extend(form[:start] + option + form[end:] for option in reversed(options))


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """Start, end and options of the first brace group that holds a comma."""
    start = pattern.find("{")
    while start >= 0:
        depth, begin = 0, start + 1
        options: list[str] = []
        for i in range(start, len(pattern)):
            c = pattern[i]
            if c == "{":
                depth += 1
            elif c == "}":
                depth -= 1
                if depth == 0:
                    if not options:
                        break
                    options.append(pattern[begin:i])
                    return start, i + 1, options
            elif c == "," and depth == 1:
                options.append(pattern[begin:i])
                begin = i + 1
        start = pattern.find("{", start + 1)
    return None


def translate(pattern: str) -> str:
    """A regular expression for a pattern without braces; it takes linear time within a name."""
    parts: list[str] = []
    for i, name in enumerate(pattern.split("/")):
        if name != "." and (name or i == 0) and not (name == "**" and parts[-1:] == ["**"]):
            parts.append(name)
    if parts.count("**") > MAX_STARSTARS:
        raise BadGlob(f"the pattern has more than {MAX_STARSTARS} `**`")
    out: list[str] = []
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            out.append(_ANYTHING if last else _DIRECTORIES)
        else:
            out.append(_name(part) + ("" if last else "/"))
    return "".join(out)


_DIRECTORIES = "(?:[^/]+/)*"
_ANYTHING = ".+"


def _name(part: str) -> str:
    """One name. A star takes as little as lets the next fixed piece match, and never gives back: only the last star
    of a name may be followed by a piece that is bound to the end."""
    pieces: list[str] = [""]
    i = 0
    while i < len(part):
        c = part[i]
        i += 1
        if c == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif c == "?":
            pieces[-1] += "[^/]"
        elif c == "[":
            expression, i = _set(part, i)
            pieces[-1] += expression
        elif c == "\\" and i < len(part):
            pieces[-1] += re.escape(part[i])
            i += 1
        else:
            pieces[-1] += re.escape(c)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _set(part: str, i: int) -> tuple[str, int]:
    """The character set that begins after the `[` before `i`, and where the pattern goes on."""
    j = i + 1 if part[i : i + 1] in ("!", "^") else i
    end = part.find("]", j + 1)
    if end < 0:
        return r"\[", i
    negated = j > i
    body = "".join(_ranges(part[j:end]))
    if not body:
        return ("[^/]" if negated else "(?!)"), end + 1
    return (f"[^/{body}]" if negated else f"(?!/)[{body}]"), end + 1


def _ranges(body: str) -> Iterator[str]:
    i = 0
    while i < len(body):
        if i + 2 < len(body) and body[i + 1] == "-":
            if body[i] <= body[i + 2]:
                yield f"{_member(body[i])}-{_member(body[i + 2])}"
            i += 3
        else:
            yield _member(body[i])
            i += 1


def _member(c: str) -> str:
    return "\\" + c if c in "\\]^[-&~|" else c


def literal_prefix(pattern: str) -> tuple[str, str]:
    """The leading directories of a pattern that are plain names, and the rest: `src/app/*.py` -> `src/app`, `*.py`."""
    parts = pattern.split("/")
    n = 0
    while n < len(parts) - 1 and not any(c in parts[n] for c in "*?[{\\"):
        n += 1
    return "/".join(parts[:n]) or ("/" if n and pattern.startswith("/") else ""), "/".join(parts[n:])
