"""Exact replacement of a passage in a text with line ends of its own. Pure; standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sidecar.tools.refusal import Refused
from sidecar.tools.text import clip
from sidecar.tools.textfile import NewLine, newline_of, with_newlines

_SHOWN_LINES = 10


@dataclass(frozen=True, slots=True)
class Edited:
    """`text` after the edit; `lines` are the numbers (from 1) of the lines where a passage was replaced."""

    text: str
    lines: tuple[int, ...]


def edit(text: str, old: str, new: str, *, replace_all: bool, name: str) -> Edited:
    """Replaces `old` by `new`. `\\n` in `old` stands for whatever line end the text has there, and each line end of
    `new` is written as those of the passage that it replaces, else as those of the text.

    Without `replace_all` the passage must occur exactly once. Everything else stays as it is, byte for byte.
    Raises `Refused`, saying how to correct the call.
    """
    old = old.replace("\r\n", "\n")
    if not old:
        raise Refused("`old_text` is empty: give the exact text to replace, or use write_file to write a whole file.")
    if old == new.replace("\r\n", "\n"):
        raise Refused("`old_text` and `new_text` are the same: there is nothing to change.")
    style = newline_of(text)
    pattern = _pattern(old, style)
    found = list(pattern.finditer(text))
    if not found:
        raise _not_found(text, old, name)
    if not replace_all:
        second = found[1] if len(found) > 1 else pattern.search(text, found[0].start() + 1)
        if second is not None:
            starts = [m.start() for m in found] if len(found) > 1 else [found[0].start(), second.start()]
            raise _ambiguous(text, starts, name)
    out: list[str] = []
    position = 0
    for match in found:
        out.append(text[position : match.start()])
        out.append(with_newlines(new, _style_of(match.group(), style)))
        position = match.end()
    out.append(text[position:])
    return Edited("".join(out), tuple(line_numbers(text, [m.start() for m in found])))


def _pattern(old: str, style: NewLine) -> re.Pattern[str]:
    end = "\r" if style == "\r" else "(?:\r\n|(?<!\r)\n)"
    return re.compile(end.join(re.escape(line) for line in old.split("\n")))


def _style_of(passage: str, otherwise: NewLine) -> NewLine:
    return newline_of(passage) if "\n" in passage or "\r" in passage else otherwise


def line_numbers(text: str, positions: list[int]) -> list[int]:
    """The numbers (from 1) of the lines that these rising positions are on."""
    numbers: list[int] = []
    line, seen = 1, 0
    mark = "\r" if newline_of(text) == "\r" else "\n"
    for position in positions:
        line += text.count(mark, seen, position)
        seen = position
        numbers.append(line)
    return numbers


def _ambiguous(text: str, starts: list[int], name: str) -> Refused:
    numbers = line_numbers(text, starts[:_SHOWN_LINES])
    more = ", ..." if len(starts) > _SHOWN_LINES else ""
    return Refused(
        f"`old_text` occurs {len(starts)} times in `{name}` (lines {', '.join(map(str, numbers))}{more})."
        " Include more of the lines around it so that it is unique, or set replace_all to true."
    )


def _not_found(text: str, old: str, name: str) -> Refused:
    plain = with_newlines(text, "\n") if newline_of(text) != "\r" else text.replace("\r", "\n")
    hint = _numbered(plain, old) or _other_space(plain, old) or _first_line(plain, old)
    return Refused(
        f"`old_text` was not found in `{name}`. " + (hint or "Read the file again and copy the text exactly.")
    )


def _numbered(text: str, old: str) -> str | None:
    bare = re.sub(r"(?m)^ *\d+(?:\t|[:|] ?)", "", old)
    if bare != old and bare.strip() and bare in text:
        return "It begins its lines with numbers that are not in the file: leave them out."
    return None


def _other_space(text: str, old: str) -> str | None:
    words = old.split()
    if not words or len(old) > 20_000:
        return None
    match = re.search(r"\s+".join(map(re.escape, words)), text)
    if match is None:
        return None
    line = line_numbers(text, [match.start()])[0]
    return f"Line {line} has the same words with different white space: copy its spaces, tabs and line ends exactly."


def _first_line(text: str, old: str) -> str | None:
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if len(first) < 4:
        return None
    at = text.find(first)
    if at < 0:
        return None
    line = line_numbers(text, [at])[0]
    return f"Its first line stands on line {line} (`{clip(first, 80)}`), but what follows differs: read it again there."
