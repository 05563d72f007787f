"""Reading plain objects of a log that may be damaged or newer: a value of the wrong kind is an absent one. Pure."""

from __future__ import annotations

from typing import Any

from protocol.messages import JsonObject

EXCERPT_HEAD, EXCERPT_TAIL = 420, 180
"""Characters of a message that are kept for the page."""


def number(raw: JsonObject, key: str) -> int:
    value = raw.get(key)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else 0


def text(raw: JsonObject, key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def table(raw: JsonObject, key: str) -> JsonObject:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def items(raw: JsonObject, key: str) -> list[Any]:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def words(raw: JsonObject, key: str) -> tuple[str, ...]:
    return tuple(v for v in items(raw, key) if isinstance(v, str))


def message_text(message: JsonObject) -> str:
    """The text of a message as a reader wants it: parts, then calls as `name(arguments)`."""
    pieces: list[str] = []
    for part in items(message, "content"):
        if isinstance(part, dict):
            pieces.append(
                text(part, "text") if part.get("type") == "text" else f"[{text(part, 'media_type') or 'image'}]"
            )
    for call in items(message, "tool_calls"):
        if isinstance(call, dict):
            pieces.append(f"→ {text(call, 'name')}({text(call, 'arguments')})")
    return "\n".join(p for p in pieces if p)


def shortened(value: str, head: int = EXCERPT_HEAD, tail: int = EXCERPT_TAIL) -> str:
    if len(value) <= head + tail + 20:
        return value
    return f"{value[:head]}\n… {len(value) - head - tail:,} characters …\n{value[-tail:] if tail else ''}"


def who(message: JsonObject) -> str:
    """Role, and what makes it special: the tool's name, the origin."""
    role = text(message, "role")
    origin = table(message, "origin")
    kind = text(origin, "variant") or text(origin, "kind")
    more = text(message, "name") or (kind if kind != "user" else "")
    if message.get("is_error") is True:
        more = f"{more} error".strip()
    return f"{role} · {more}" if more else role
