"""The agent's own log as a model reads it, and the todo list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import pytest

from protocol.events import TodoItem
from protocol.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
from record_store import records as r
from sidecar.tools.records import RecordReader, Stored, stored
from sidecar.tools.refusal import Refused
from sidecar.tools.spill import spill
from tests.support.tools import bad, context_in, good

BLOBS: dict[str, bytes] = {}


def message(role: str, *parts: Part, **more: object) -> r.AppendMessage:
    return r.AppendMessage(time=1_700_000_000_000, message=Message(id="m", role=role, content=parts, time=0, **more))  # type: ignore[arg-type]


class Log:
    """Records in memory, line 1 first; None is a damaged line."""

    def __init__(self, *records: r.Record | None) -> None:
        self._records = records

    @property
    def last_line(self) -> int:
        return len(self._records)

    def _stored(self, line: int) -> Stored | None:
        record = self._records[line - 1]
        return None if record is None else stored(record, line, BLOBS.get)

    async def newest_first(self) -> AsyncIterator[Sequence[Stored]]:
        lines = list(range(self.last_line, 0, -1))
        for start in range(0, len(lines), 3):
            yield [s for line in lines[start : start + 3] if (s := self._stored(line)) is not None]

    async def at(self, line: int) -> Stored | None:
        return self._stored(line)


def long_result() -> r.AppendMessage:
    text = "".join(f"row {i}\n" for i in range(10_000)) + "the needle at the end"
    middle = text.replace("row 5000\n", "row 5000 hidden-needle\n")
    spilled = spill((TextPart(middle),), tool="run_command", line=4, spill_bytes=50_000)
    assert spilled is not None
    BLOBS[spilled.blob] = spilled.stored
    return message("tool", *spilled.content, tool_call_id="c", name="run_command")


@pytest.fixture
def log() -> Log:
    return Log(
        r.Metadata(time=0, version=1, session_id="s", agent_id="main", created_at=0, server_version="1"),
        message("user", TextPart("Where is the Needle?"), ImagePart("image/png", blob="ab" * 32)),
        message("assistant", TextPart("Looking."), tool_calls=(ToolCall("c", "run_command", '{"command": "ls"}'),)),
        long_result(),
        None,
        message("assistant", tool_calls=(ToolCall("d", "record_search", '{"query": "needle"}'),)),
        message("tool", TextPart("line 2: the needle"), tool_call_id="d", name="record_search"),
        r.CompactionSummary(0, "k", "The needle is in row 5000.", Usage(), attempts=1, dropped_messages=0),
        r.LlmRequest(0, "step", "needle/model", "", "", "", message_count=1, attempt=1),
    )  # fmt: skip


def reader(log: Log, max_bytes: int = 50_000) -> RecordReader:
    return RecordReader(log, max_bytes)


async def test_search_lists_line_type_role_time_and_an_excerpt(log: Log) -> None:
    lines = (await reader(log).search("needle", regex=False, limit=20)).splitlines()
    assert lines[0] == "line 8, compaction.summary, 1970-01-01 00:00:00Z: The needle is in row 5000."
    assert lines[1].startswith("line 4, context.append_message, tool, 2023-11-14 22:13:20Z: …")
    assert lines[2] == (
        "line 2, context.append_message, user, 2023-11-14 22:13:20Z:"
        " Where is the Needle?[image, image/png, abababababab]"
    )
    assert lines[3:] == ["[3 hits]"]


async def test_search_looks_into_what_was_moved_out_of_the_context(log: Log) -> None:
    text = await reader(log).search("HIDDEN-NEEDLE", regex=False, limit=20)
    assert text.startswith("line 4, context.append_message, tool, ")
    assert "row 4999 row 5000 hidden-needle row 5001" in text
    assert text.endswith("[1 hit]")


async def test_search_by_expression_and_limit(log: Log) -> None:
    assert "row 5000" in await reader(log).search(r"row \d{4} hidden", regex=True, limit=5)
    assert (
        await reader(log).search("no such thing", regex=False, limit=5) == "Nothing in the log matches `no such thing`."
    )
    text = await reader(log).search("needle", regex=False, limit=1)
    assert text.splitlines()[1] == "[1 hit, older ones may follow; raise limit to see them]"
    with pytest.raises(Refused, match="not a valid regular expression"):
        await reader(log).search("(", regex=True, limit=5)


async def test_an_endless_expression_is_given_up() -> None:
    log = Log(message("user", TextPart("a" * 60 + "b")))
    with pytest.raises(Refused, match="takes too long"):
        await reader(log).search("(a|aa)+$", regex=True, limit=5)


async def test_read_by_characters(log: Log) -> None:
    assert await reader(log).read(2, offset=0, limit=9) == (
        "[line 2, context.append_message, user, 2023-11-14 22:13:20Z: characters 0 to 9 of 52; go on with offset 9]\n"
        "Where is "
    )
    whole = await reader(log).read(3, offset=0, limit=1000)
    assert whole.endswith('characters 0 to 39 of 39]\nLooking.\nrun_command({"command": "ls"})')
    text = BLOBS[next(iter(BLOBS))].decode()
    out, offset = "", 0
    while offset < len(text):
        head, _, piece = (await reader(log).read(4, offset=offset, limit=100_000)).partition("\n")
        assert len(piece.encode()) <= 50_000
        out += piece
        offset += len(piece)
    assert out == text
    assert "go on" not in head


async def test_other_records_are_their_json(log: Log) -> None:
    assert '"model":"needle/model"' in await reader(log).read(9, offset=0, limit=1000)
    assert '"session_id":"s"' in await reader(log).read(1, offset=0, limit=1000)


async def test_lines_that_are_not_there(log: Log) -> None:
    for line, offset, word in ((10, 0, "has lines 1 to 9"), (5, 0, "damaged"), (2, 52, "past its end")):
        with pytest.raises(Refused, match=word):
            await reader(log).read(line, offset=offset, limit=10)


async def test_a_lost_blob_leaves_the_ends(log: Log) -> None:
    lost = long_result()
    saved = dict(BLOBS)
    BLOBS.clear()
    try:
        text = await reader(Log(lost)).read(1, offset=0, limit=20_000)
        assert "spilled tool result" in text
    finally:
        BLOBS.update(saved)


async def test_the_tools_hand_it_on(tmp_path: Path, log: Log) -> None:
    context = context_in(tmp_path, records=reader(log))
    assert "row 5000" in await good(context, "record_search", query="hidden-needle")
    assert "Looking." in await good(context, "record_read", line=3)
    assert "lines 1 to 9" in await bad(context, "record_read", line=99)
    assert "`line`: is required" in await bad(context, "record_read")
    assert "empty" in await bad(context, "record_search", query="  ")
    nothing = context_in(tmp_path)
    assert "cannot be read" in await bad(nothing, "record_search", query="x")
    assert "cannot be read" in await bad(nothing, "record_read", line=1)


async def test_todos_are_replaced_whole(tmp_path: Path) -> None:
    kept: list[tuple[TodoItem, ...]] = []

    class List:
        async def replace(self, todos: tuple[TodoItem, ...]) -> None:
            await anyio.lowlevel.checkpoint()
            kept.append(todos)

    context = context_in(tmp_path, todos=List())
    items = [
        {"content": "read", "status": "done"},
        {"content": "write\0", "status": "in_progress"},
        {"content": "c", "status": "pending"},
    ]
    assert await good(context, "todo_write", todos=items) == "3 items, 1 done:\n[x] read\n[>] write\ufffd\n[ ] c"
    assert kept == [(TodoItem("read", "done"), TodoItem("write\ufffd", "in_progress"), TodoItem("c", "pending"))]
    assert await good(context, "todo_write", todos=[]) == "The todo list is empty now."
    text = await bad(context, "todo_write", todos=[{"content": "a", "status": "doing"}])
    assert '`todos[0].status`: must be one of "pending", "in_progress", "done"' in text
    assert "Item 1 of the list is empty" in await bad(context, "todo_write", todos=[{"content": " ", "status": "done"}])
    assert len(kept) == 2
    assert "no todo list" in await bad(context_in(tmp_path), "todo_write", todos=[])
