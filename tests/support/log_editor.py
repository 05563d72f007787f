"""What somebody does to a `wire.jsonl` with an editor, and what a log must keep to. Independent of our code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # a red dot
RECORD_TYPES = frozenset(
    (
        "metadata",
        "config.update",
        "tools.snapshot",
        "turn.begin",
        "turn.end",
        "step.begin",
        "step.end",
        "context.append_message",
        "context.rewrite",
        "compaction.start",
        "compaction.summary",
        "context.apply_compaction",
        "compaction.cancel",
        "context.undo",
        "context.clear",
        "context.host_revision",
        "llm.request",
        "llm.usage",
        "model.window_learned",
        "tool.approval",
        "todo.update",
        "skill.activate",
        "memory.write",
        "agent.spawn",
        "agent.finish",
        "store.repair",
    )
)
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')


def lines_of(path: Path) -> list[bytes]:
    """The lines without their newlines; the log must end in one."""
    data = path.read_bytes()
    assert data.endswith(b"\n"), f"the log ends in {data[-40:]!r}"
    return data[:-1].split(b"\n")


def sealed(record: dict[str, Any], seq: int) -> bytes:
    """A record as a newer version would write it."""
    body = json.dumps({"seq": seq, **record}, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return b'%b,"crc":"%08x"}' % (body, crc32(body))


def is_whole(raw: bytes) -> bool:
    found = _CRC.search(raw)
    return found is not None and int(found[1], 16) == crc32(raw[: found.start()])


def assert_log_is_sound(path: Path, *, damaged: Sequence[int] = ()) -> list[dict[str, Any]]:
    """`seq` is the number of the line, the key order and checksum are right; the records of all but damaged lines."""
    records = []
    for number, raw in enumerate(lines_of(path), 1):
        if number in damaged:
            continue
        assert is_whole(raw), f"line {number}: {raw[:200]!r}"
        record = json.loads(raw)
        keys = list(record)
        assert (keys[:3], keys[-1]) == (["seq", "type", "time"], "crc"), f"line {number}: {keys}"
        assert (record["seq"], type(record["time"])) == (number, int), f"line {number}: {raw[:80]!r}"
        assert record["type"] in RECORD_TYPES, f"line {number}: {record['type']}"
        records.append(record)
    return records


def edit(path: Path, change: Callable[[list[bytes]], Sequence[bytes] | None]) -> bytes:
    """Changes the list of lines in place, or to what `change` returns; the bytes that were written."""
    lines = lines_of(path)
    lines = list(change(lines) or lines)
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(data)
    return data


def line_with(path: Path, type: str, nth: int = 0, **fields: Any) -> int:
    """The number of the nth line (from 0, or from the end) with this type; `fields` select by top-level values or,
    as `role`, by the message's."""
    found = []
    for number, raw in enumerate(lines_of(path), 1):
        if not is_whole(raw):
            continue
        record = json.loads(raw)
        message = record.get("message") or {}
        if record["type"] == type and all(record.get(k, message.get(k)) == v for k, v in fields.items()):
            found.append(number)
    return found[nth]


def flip(raw: bytes) -> bytes:
    """One bit in the middle is another one; the line's length stays."""
    at = len(raw) // 2
    return raw[:at] + bytes([raw[at] ^ 0x01]) + raw[at + 1 :]
