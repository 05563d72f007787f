"""JSON and text as they cross to a provider and back. Pure: no I/O.

Outgoing JSON is always valid UTF-8; incoming JSON is read by the letter first and forgivingly second.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

REPLACEMENT = "\ufffd"

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_SURROGATES = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")


def clean(text: str) -> str:
    """The text with surrogate pairs joined, and lone surrogates and NULs replaced by U+FFFD."""
    if _UNSENDABLE.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", REPLACEMENT)


class TextJoiner:
    """Cleans text that comes in pieces: a surrogate pair may be split between two of them."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be told now; the first half of a pair waits for the second."""
        if not self._held and _UNSENDABLE.search(piece) is None:
            return piece
        text = self._held + piece
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return clean(text)

    def flush(self) -> str:
        """What was held back and never got its other half."""
        held, self._held = self._held, ""
        return clean(held)


def dumps(value: Any) -> bytes:
    """Compact JSON, always valid: what orjson refuses (lone surrogates, huge integers, deep nesting) is written
    by the standard library, with lone surrogates as U+FFFD and NaN as null."""
    try:
        return orjson.dumps(value)
    except TypeError:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError:
            finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
            text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
        return clean(text).encode()


def loads(data: bytes) -> tuple[Any, bool]:
    """The value, and whether bytes that are no UTF-8 had to be replaced in it.

    Raises ValueError when it is not JSON. Escaped lone surrogates stay in the strings (see `clean`).
    """
    try:
        return orjson.loads(data), False
    except orjson.JSONDecodeError:
        pass
    try:
        text, damaged = data.decode(), False
    except UnicodeDecodeError:
        text, damaged = data.decode(errors="replace"), True
    try:
        return json.loads(text), damaged
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_object(text: str) -> bytes | None:
    """The text as it is, in bytes, if it is one JSON object that every parser reads; one with escaped lone surrogates
    is written anew with U+FFFD in their place; else None."""
    try:
        raw = text.encode()
        return raw if isinstance(orjson.loads(raw), dict) else None
    except (UnicodeEncodeError, orjson.JSONDecodeError):
        value = _with_surrogates(text)
        return None if value is None else dumps(value)


def parsed_object(text: str) -> dict[str, Any] | None:
    """The object that a text stands for, its strings clean of lone surrogates; None if it is no JSON object."""
    try:
        value = orjson.loads(text)
    except (UnicodeEncodeError, orjson.JSONDecodeError):
        value = _with_surrogates(text)
        return None if value is None else orjson.loads(dumps(value))
    return value if isinstance(value, dict) else None


def _with_surrogates(text: str) -> dict[str, Any] | None:
    """An object that only its lone surrogates keep a strict parser from reading; by the grammar it is JSON."""
    if _SURROGATES.search(text) is None:
        return None
    try:
        value = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
