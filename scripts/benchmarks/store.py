"""How fast the event log is: appending, syncing, replaying, resuming. Each figure beside a plain baseline."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import orjson

from protocol.info import SessionInfo
from protocol.messages import Message, TextPart, ToolCall, Usage
from record_store import files
from record_store import records as r
from record_store.encoder import encode
from record_store.local import LocalStore
from record_store.recovery import fold_log
from scripts.benchmarks.rows import Row, row

APPENDS = 20_000
SYNCS = 200
REPLAYED = 200_000
RESUMED = (1_000, 100_000, 1_000_000)
LISTED = 500
TAIL = 60
"""Records after the last compaction of the logs that are resumed."""


def run() -> list[Row]:
    """Every figure."""
    with tempfile.TemporaryDirectory(prefix="store-bench-") as home:
        return anyio.run(_run, Path(home))


async def _run(home: Path) -> list[Row]:
    rows = [*await _appending(home / "append"), _replaying(home / "replay")]
    rows += await _resuming(home / "resume")
    rows.append(await _listing(home / "list"))
    return rows


# ---------------------------------------------------------------- material


def conversation(count: int) -> Iterator[r.Record]:
    """Small records as a session with tools writes them."""
    for n in range(count):
        time_ms, step = 1_700_000_000_000 + n, n // 8
        match n % 8:
            case 0:
                yield r.TurnBegin(time_ms, f"turn_{step}")
            case 1:
                yield _message(n, "user", f"Please look at file number {n} and say what it does.")
            case 2:
                yield r.StepBegin(time_ms, f"turn_{step}", 1)
            case 3:
                yield r.LlmRequest(
                    time_ms, "step", "openai/a-model", "0" * 16, "1" * 16, "2" * 16, n, 1, messages_hash="3" * 16
                )
            case 4:
                call = ToolCall(f"call_{n}", "read_file", '{"path":"src/module.py"}')
                yield _message(n, "assistant", "I will read it first.", tool_calls=(call,), model="openai/a-model")
            case 5:
                yield r.LlmUsage(time_ms, "step", "openai/a-model", 12_000 + n % 999, 11_000, 60)
            case 6:
                yield _message(n, "tool", "def main():\n    return 0\n" * 2, tool_call_id=f"call_{n - 2}")
            case _:
                yield r.TurnEnd(time_ms, f"turn_{step}", "end_turn", Usage(12_000, 11_000, 60, 1))


def _message(n: int, role: Any, text: str, **more: Any) -> r.AppendMessage:
    content = Message(id=f"msg_{n:09d}", role=role, content=(TextPart(text),), time=1_700_000_000_000 + n, **more)
    return r.AppendMessage(1_700_000_000_000 + n, content)


def compacted(count: int) -> Iterator[r.Record]:
    """A conversation of `count` records with a compaction shortly before its end."""
    head = count - TAIL - 3
    yield r.Metadata(1, 1, "bench", "main", 1, "0")
    yield from conversation(head)
    yield r.CompactionStart(2, "c1", "auto", "background", (1, head), head, 90_000)
    summary = Message(id="summary", role="user", content=(TextPart("What was done so far. " * 100),), time=2)
    yield r.ApplyCompaction(2, "c1", "handoff", "model", head, (r.New(summary),), 90_000, 9_000, 1)
    yield from conversation(TAIL)


def info(session_id: str, updated_at: int = 1) -> SessionInfo:
    return SessionInfo(
        session_id=session_id, title="Bench", cwd="/", model=None, created_at=1, updated_at=updated_at, state="idle",
        turns=0, agents=("main",), tools_builtin="none", used=0, window=0,
    )  # fmt: skip


async def _session(home: Path, session_id: str, records: Iterator[r.Record]) -> LocalStore:
    """A session with these records, written without the journal, which is what is measured."""
    store = LocalStore(home)
    first = r.Metadata(1, 1, session_id, "main", 1, "0")
    await (await store.create(session_id, info(session_id), first)).close()
    with (home / "sessions" / session_id / "agents" / "main" / "wire.jsonl").open("wb") as log:
        log.writelines(encode(record, line) for line, record in enumerate(records, 1))
    return store


# ---------------------------------------------------------------- figures


async def _appending(home: Path) -> list[Row]:
    store = LocalStore(home)
    session = await store.create("bench", info("bench"), r.Metadata(1, 1, "bench", "main", 1, "0"))
    journal, _ = await session.open_agent("main")
    records = list(conversation(APPENDS))
    append_s = _timed(lambda: [journal.append(record) for record in records])
    sync_s = []
    for record in records[:SYNCS]:
        began = time.perf_counter()
        journal.append(record)
        await journal.sync()
        sync_s.append(time.perf_counter() - began)
    began = time.perf_counter()
    await journal.checkpoint()
    checkpoint_s = time.perf_counter() - began
    await session.close()
    lines = [encode(record, line) for line, record in enumerate(records, 1)]
    plain_s, plain_sync_s, checkpoint_plain_s = _plain(home / "plain", lines)
    return [
        row("append", APPENDS / append_s, "records/s", APPENDS / plain_s),
        row("append and sync", statistics.median(sync_s) * 1e6, "us", plain_sync_s * 1e6),
        row(f"checkpoint of {APPENDS // 8 * 3:,} messages", checkpoint_s * 1e3, "ms", checkpoint_plain_s * 1e3),
    ]


def _plain(path: Path, lines: list[bytes]) -> tuple[float, float, float]:
    """Seconds for the same bytes written by nothing but the system: all of them, one with its sync, all in one go."""
    fd = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        write_s = _timed(lambda: [os.write(fd, line) for line in lines])
        files.sync_data(fd)
        sync_s = []
        for line in lines[:SYNCS]:
            began = time.perf_counter()
            os.write(fd, line)
            files.sync_data(fd)
            sync_s.append(time.perf_counter() - began)
    finally:
        os.close(fd)
    whole = b"".join(lines)
    return write_s, statistics.median(sync_s), _timed(lambda: files.write_atomic(path, whole, "probe"))


def _replaying(home: Path) -> Row:
    files.make_directory(home)
    path = home / "wire.jsonl"
    lines = [encode(record, line) for line, record in enumerate(conversation(REPLAYED), 1)]
    path.write_bytes(b"".join(lines))
    fd = files.open_file(path, os.O_RDONLY)
    try:
        replay_s = min(
            _timed(lambda: fold_log(fd, home / "none", path.stat().st_size, "bench", "main")) for _ in range(3)
        )
    finally:
        os.close(fd)
    loads_s = min(_timed(lambda: _load_all(lines)) for _ in range(3))
    rate, plain = REPLAYED / replay_s, REPLAYED / loads_s
    goal = "at least 150,000/s, or 0.6 of orjson.loads"
    return row("full replay", rate, "records/s", plain, goal=goal, ok=rate >= 150_000 or rate / plain >= 0.6)


def _load_all(lines: list[bytes]) -> None:
    for line in lines:
        orjson.loads(line)


async def _resuming(home: Path) -> list[Row]:
    rows: list[Row] = []
    for count in RESUMED:
        name = f"s{count}"
        store = await _session(home, name, compacted(count))
        session = await store.open(name)
        began = time.perf_counter()
        await session.open_agent("main")
        replay_ms = (time.perf_counter() - began) * 1e3
        await session.close()
        times = [await _resume(home, name) for _ in range(15)]
        value, least = statistics.median(times) * 1e3, rows[0]["value"] if rows else None
        ok = value <= 150 and (least is None or value <= 1.5 * least)
        goal = "at most 150 ms, and 1.5 of that of 1,000 records"
        rows.append(row(f"resume of {count:,} records", value, "ms", least, goal=goal, ok=ok))
        rows.append(row(f"the same without a checkpoint, {count:,} records", replay_ms, "ms"))
    return rows


async def _resume(home: Path, name: str) -> float:
    store = LocalStore(home)
    began = time.perf_counter()
    session = await store.open(name)
    journal, recovered = await session.open_agent("main")
    took = time.perf_counter() - began
    assert not recovered
    assert journal.last_line == int(name[1:])
    await session.close()
    return took


async def _listing(home: Path) -> Row:
    store = LocalStore(home)
    for n in range(LISTED):
        await (await store.create(f"s{n}", info(f"s{n}", n), r.Metadata(1, 1, f"s{n}", "main", 1, "0"))).close()
    fresh = LocalStore(home)
    began = time.perf_counter()
    await fresh.list()
    first_s = time.perf_counter() - began
    began = time.perf_counter()
    await fresh.list()
    return row(f"list of {LISTED} sessions", (time.perf_counter() - began) * 1e3, "ms", first_s * 1e3)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write("\n".join(orjson.dumps(figure).decode() for figure in run()) + "\n")
