"""JSON at the border: what comes in is checked and cleaned here, what goes out is serialised here. Pure; no I/O.

Clean means: no lone surrogate and no NUL in any string (both become U+FFFD), no NaN, no infinity, nesting at most
`MAX_DEPTH`. Everything above this module may rely on it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

import orjson

from sidecar.errors import Fault
from sidecar.rpc.framing import Oversized, Raw

MAX_DEPTH = 200
"""Containers within containers; orjson serialises at most 254, and ours wraps a message a few times."""

_DIRTY = re.compile("[\x00\ud800-\udfff]")
_LONG_NUMBER = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_OWN_ID = re.compile(rb'"id"\s*:\s*"(s-[0-9]{1,18})"')
_METHOD = re.compile(rb'"method"\s*:')


def parse(raw: Raw) -> Any:
    """The clean value of one frame. Raises `Fault("parse_error")` for anything that is no acceptable JSON text."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _parse_slowly(raw)
    else:
        if isinstance(value, dict) and isinstance(value.get("id"), float) and abs(value["id"]) >= 2**53:
            value = _loads(raw)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_deep(value):
        raise Fault("parse_error", f"The message is nested deeper than {MAX_DEPTH} levels")
    if b"\\u0000" in raw or b"\\ud" in raw or b"\\uD" in raw:
        value = clean(value)
    return value


def _parse_slowly(raw: Raw) -> Any:
    """For what orjson refuses and JSON allows: lone surrogates, and integers that no double holds."""
    if b"\\ud" in raw or b"\\uD" in raw or _LONG_NUMBER.search(raw):
        return _loads(raw)
    raise Fault("parse_error", "The message is not valid JSON in UTF-8")


def _loads(raw: Raw) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise Fault("parse_error", "The message is not valid JSON in UTF-8") from None


def _refuse(word: str) -> float:
    raise ValueError(word)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def clean_text(text: str) -> str:
    """The text with U+FFFD for each NUL and each lone surrogate."""
    return _DIRTY.sub("\ufffd", text)


def clean(value: Any) -> Any:
    """The same JSON value with clean strings, keys included, and null for what is no finite number."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def refused_own_id(frame: Raw | Oversized) -> str | None:
    """The id of our own call that a refused frame seems to answer, else None."""
    pieces = (frame.head, frame.tail) if isinstance(frame, Oversized) else (frame,)
    if any(_METHOD.search(piece[:4096]) for piece in pieces):
        return None
    for piece in pieces:
        found = _OWN_ID.search(piece)
        if found is not None:
            return found.group(1).decode("ascii")
    return None


# ---------------------------------------------------------------- outgoing


def encode(value: Any) -> bytes:
    """JSON of plain values, dataclasses and msgspec Structs. Raises `TypeError` for anything else.

    Lone surrogates become U+FFFD and integers may have any size, but both cost a copy.
    """
    try:
        return orjson.dumps(value, default=_foreign)
    except (TypeError, UnicodeError):
        try:
            return json.dumps(clean(_plain(value)), ensure_ascii=False, separators=(",", ":")).encode()
        except (ValueError, RecursionError) as error:
            raise TypeError(type(error).__name__) from None


def _foreign(value: Any) -> Any:
    """A Struct exists only where msgspec is loaded, so the fast start does not pay for it."""
    if "msgspec" in sys.modules:
        import msgspec

        if isinstance(value, msgspec.Struct):
            return orjson.Fragment(msgspec.json.encode(value))
        return msgspec.to_builtins(value)
    raise TypeError(type(value).__name__)


def _plain(value: Any) -> Any:
    if "msgspec" not in sys.modules:
        return value
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def notification(method: str, params: Any) -> bytes:
    """A whole notification, unframed."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request(request_id: str, method: str, params: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def success(request_id: Any, result: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def failure(request_id: Any, error: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})
