"""Sessions on disk for tests: records of every type, logs as bytes, short ways to open and to damage them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from protocol.events import TodoItem
from protocol.messages import (
    ErrorInfo,
    ImagePart,
    Message,
    Origin,
    ReasoningBlock,
    TextPart,
    ToolCall,
    ToolSpec,
    Usage,
)
from record_store import records as r
from record_store.backend import MAIN_AGENT
from record_store.conformance import config, info, message, metadata
from record_store.encoder import encode
from record_store.fold import State
from record_store.local import LocalOpenSession, LocalStore
from record_store.log import FileJournal
from record_store.names import SessionPaths

SESSION = "one"


def full_conversation() -> list[r.Record]:
    """At least one record of every type, in an order that makes sense. Belongs after `metadata`."""
    image = ImagePart("image/png", blob="a" * 64)
    text = TextPart('Hi \u2028 "x" \\ \n \x7f 你好 🎉')
    said = Message(id="m1", role="user", time=1, content=(text, image))
    call = ToolCall("call_1", "read_file", '{"path": "a.txt"}')
    answer = Message(
        id="m2", role="assistant", time=2, content=(TextPart("Reading."),), tool_calls=(call,), reasoning="Hm.",
        reasoning_blocks=(ReasoningBlock(3, "sig"),), model="scripted/echo",
    )  # fmt: skip
    result = Message(id="m3", role="tool", time=3, content=(TextPart("text"),), tool_call_id="call_1", name="read_file")
    summary = Message(
        id="m4", role="user", time=4, content=(TextPart("Summary."),), origin=Origin("compaction_summary")
    )
    late = Message(id="m5", role="user", time=5, content=(TextPart("later"),))
    spec = ToolSpec(
        name="t", description="d", parameters={"type": "object", "properties": {"x": {"enum": [1, 2.5, None]}}}
    )
    breakers = r.Breakers(failures=1, steps_since_landing=4)
    return [
        config(),
        r.ToolsSnapshot(2, (spec,), ("read_file",)),
        r.AppendMessage(3, said, "t1", "turn", "client-1"),
        r.TurnBegin(4, "t1", ("m1",), "client-1"),
        r.StepBegin(5, "t1", 1),
        r.LlmRequest(6, "step", "scripted/echo", "a" * 8, "b" * 8, "c" * 8, 1, 1),
        r.WindowLearned(7, "scripted/echo", 8_192, "named"),
        r.AppendMessage(8, answer, "t1"),
        r.ToolApproval(9, "call_1", "read_file", "allow_session", "host"),
        r.AppendMessage(10, result, "t1"),
        r.LlmUsage(11, "step", "scripted/echo", 100, 50, 10),
        r.StepEnd(12, "t1", 1, 110, breakers),
        r.TodoUpdate(13, (TodoItem("a", "pending"),)),
        r.SkillActivate(14, "skill", "inline", "model", "Body."),
        r.MemoryWrite(15, "fact", 1, "project", "create", "auto"),
        r.AgentSpawn(16, "sub", "t1", "call_1", "look", "scripted/echo"),
        r.AgentFinish(17, "sub", "end_turn", Usage(1, 0, 1, 1)),
        r.TurnEnd(18, "t1", "error", Usage(100, 50, 10, 1), ErrorInfo(code=-32000, reason="internal", message="x")),
        r.Rewrite(19, "snip", 110, 90, (r.Edit("m3", (TextPart("cut"),)),)),
        r.CompactionStart(20, "c1", "manual", "blocking", (4, 11), 3, 90, "be short", breakers),
        r.CompactionSummary(21, "c1", "Summary.", Usage(90, 80, 5, 1), 1, 0),
        r.ApplyCompaction(22, "c1", "handoff", "model", 3, (r.Kept("m1"), r.New(summary)), 90, 40, 2),
        r.CompactionStart(23, "c2", "auto", "background", (4, 23), 2, 40),
        r.CompactionCancel(24, "c2", "no_gain"),
        r.HostRevision(25, 1, 2, (late,)),
        r.Undo(26, 0, 3),
        r.StoreRepair(27, "torn_tail", 3, "wire.jsonl.torn-1"),
        r.Clear(28),
        message(7),
    ]  # fmt: skip


def lines_of(records: Iterable[r.Record]) -> list[bytes]:
    """Their lines, numbered from 1, newlines included."""
    return [encode(record, line) for line, record in enumerate(records, 1)]


def write_log(home: Path, data: bytes, session_id: str = SESSION) -> Path:
    """Puts the bytes where the main log of a session is; the rest of the session is made around them."""
    paths = SessionPaths(home / "sessions" / session_id)
    paths.agent(MAIN_AGENT).mkdir(parents=True, exist_ok=True)
    paths.log(MAIN_AGENT).write_bytes(data)
    return paths.log(MAIN_AGENT)


def canonical(state: State) -> bytes:
    return msgspec.json.encode(state)


async def create(home: Path, *records: r.Record, session_id: str = SESSION) -> tuple[LocalOpenSession, FileJournal]:
    session = await LocalStore(home).create(session_id, info(session_id), metadata(session_id), *records)
    journal, recovered = await session.open_agent(MAIN_AGENT)
    assert recovered == []
    return session, journal


@asynccontextmanager
async def opened(home: Path, session_id: str = SESSION) -> AsyncIterator[tuple[FileJournal, list[str]]]:
    """The main log, opened, and the kinds of what was recovered; closed at the end."""
    session = await LocalStore(home).open(session_id)
    try:
        journal, recovered = await session.open_agent(MAIN_AGENT)
        yield journal, [x.kind for x in recovered]
    finally:
        await session.close()


def texts(state: State) -> list[str]:
    return [entry.message.text for entry in state.entries]
