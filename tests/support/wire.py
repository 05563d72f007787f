"""Readers of `wire.jsonl` and of request bodies, independent of the code under test."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec


def read_records(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a log; a torn last line is left out, a damaged one raises."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1] if line]


def of_type(records: Iterable[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [r for r in records if r.get("type") in types]


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    tools: msgspec.Raw = msgspec.Raw(b"null")
    system: msgspec.Raw = msgspec.Raw(b"null")


def message_bytes(body: bytes) -> list[bytes]:
    """The bytes of every message of a request body, as they were sent."""
    return [bytes(m) for m in msgspec.json.decode(body, type=_Body).messages]


def prefix_bytes(body: bytes) -> tuple[bytes, bytes]:
    """The bytes of `system` and `tools` of a request body."""
    decoded = msgspec.json.decode(body, type=_Body)
    return bytes(decoded.system), bytes(decoded.tools)


def assert_append_only(bodies: Sequence[bytes]) -> None:
    """Each body's messages begin with the bytes of all of the one before, and its tools are the same."""
    assert len(bodies) >= 2, f"only {len(bodies)} requests"
    for n, (first, second) in enumerate(itertools.pairwise(bodies)):
        a, b = message_bytes(first), message_bytes(second)
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        assert same == len(a), f"request {n + 1} is no extension of request {n}: message {same} differs"
        assert prefix_bytes(first) == prefix_bytes(second), f"system or tools changed in request {n + 1}"


def malformed(messages: Sequence[dict[str, Any]]) -> str | None:
    """What a provider would refuse in a chat-completions message list; None if nothing."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for i, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"the result at {i} answers no open call"
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return f"calls {open_calls} are unanswered before message {i}"
        if role not in ("system", "developer", "user", "assistant"):
            return f"role {role!r} at {i}"
        calls = message.get("tool_calls") or []
        if role == "assistant" and not calls and not message.get("content"):
            return f"blank assistant message at {i}"
        for call in calls:
            if not call.get("id") or call["id"] in seen:
                return f"empty or repeated call id at {i}"
            seen.add(call["id"])
            open_calls.append(call["id"])
    return f"calls {open_calls} are unanswered at the end" if open_calls else None
