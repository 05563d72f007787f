"""Text from outside, made safe for requests, logs and models. Pure; standard library only."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_BAD = re.compile("[\x00\ud800-\udfff]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with lone surrogates and NULs as U+FFFD; every other character, control characters too, is kept."""
    return _BAD.sub(REPLACEMENT, text) if _BAD.search(text) is not None else text


def printable(name: str) -> str:
    """A file name on one line: control characters and undecodable bytes as `\\x..` escapes."""
    return _UNPRINTABLE.sub(_escape, name) if _UNPRINTABLE.search(name) is not None else name


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:  # how Python carries an undecodable byte of a file name
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, the last one an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "\u2026"


def around(text: str, start: int, end: int, width: int) -> str:
    """The part of one line around `text[start:end]`, at most about `width` characters, ellipses where it was cut."""
    if len(text) <= width:
        return text
    spare = max(0, width - (end - start))
    first = max(0, min(start - spare // 2, len(text) - width))
    last = min(len(text), first + width)
    return ("\u2026" if first else "") + text[first:last] + ("\u2026" if last < len(text) else "")


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 line`, `1,200 lines`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
