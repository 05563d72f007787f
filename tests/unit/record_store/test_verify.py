"""Verification: finds what is wrong, and nothing in what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages import Message, TextPart, ToolCall, Usage
from record_store import records as r
from record_store.conformance import message, metadata
from record_store.memory import MemoryReader
from record_store.verify import MAX_PROBLEMS, verify, verify_log
from tests.support.store import create, full_conversation, lines_of

pytestmark = pytest.mark.anyio


def problems(*lines: bytes) -> list[tuple[int, str]]:
    log = MemoryReader("one", "main", [line.removesuffix(b"\n") for line in lines])
    return [(p.line, p.kind) for p in verify_log(log).problems]


def of(*records: r.Record) -> list[tuple[int, str]]:
    return problems(*lines_of([metadata("one"), *records]))


def calls(*ids: str) -> r.AppendMessage:
    made = tuple(ToolCall(i, "t", "{}") for i in ids)
    return r.AppendMessage(1, Message(id="a", role="assistant", content=(), time=1, tool_calls=made), "t1")


def result(call_id: str, turn_id: str | None = "t1") -> r.AppendMessage:
    answer = Message(id="r", role="tool", content=(TextPart("x"),), time=1, tool_call_id=call_id)
    return r.AppendMessage(1, answer, turn_id)


BEGIN, END = r.TurnBegin(1, "t1"), r.TurnEnd(1, "t1", "end_turn", Usage())
START = r.CompactionStart(1, "c1", "auto", "background", (1, 2), 1, 100)
PAID = r.CompactionSummary(1, "c1", "s", Usage(), 1, 0)
LANDED = r.ApplyCompaction(1, "c1", "span", "model", 1, (), 100, 50, 0)
CANCELLED = r.CompactionCancel(1, "c1", "stale")


@pytest.mark.parametrize(
    "records",
    [
        full_conversation(),
        [BEGIN, calls("1", "2"), result("2"), result("1"), END],
        [BEGIN, calls("1"), END, r.TurnBegin(1, "t2"), result("1")],
        [result("never", turn_id=None)],
        [START, PAID, LANDED, START, LANDED, START, CANCELLED, START],
        [BEGIN],
    ],
)
def test_what_is_right_has_no_problems(records: list[r.Record]) -> None:
    assert of(*records) == []


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([BEGIN, BEGIN], [(3, "bracket")]),
        ([END], [(2, "bracket")]),
        ([r.TurnBegin(1, "t2"), END], [(3, "bracket")]),
        ([START, START], [(3, "bracket")]),
        ([LANDED], [(2, "bracket")]),
        ([PAID], [(2, "bracket")]),
        ([CANCELLED], [(2, "bracket")]),
        ([START, LANDED, LANDED], [(4, "bracket")]),
        ([START, r.ApplyCompaction(1, "c1", "span", "model", 1, (), 100, 100, 0)], [(3, "bracket")]),
        ([BEGIN, result("never")], [(3, "pairing")]),
        ([BEGIN, calls("1"), result("1"), result("1")], [(5, "pairing")]),
        ([metadata("one")], [(2, "metadata")]),
    ],
)
def test_structure(records: list[r.Record], expected: list[tuple[int, str]]) -> None:
    assert of(*records) == expected


LINES = lines_of([metadata("one"), *(message(n) for n in range(2, 8))])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (LINES, []),
        ([], [(1, "metadata")]),
        (LINES[1:], [(1, "seq"), (1, "metadata")]),
        ([*LINES[:2], *LINES[3:]], [(3, "seq")]),
        ([*LINES[:2], b"", *LINES[3:]], [(3, "empty")]),
        ([*LINES[:2], bytes(9), *LINES[3:]], [(3, "nul")]),
        ([*LINES[:2], b"\xff", *LINES[3:]], [(3, "utf8")]),
        ([*LINES[:2], b"{}", *LINES[3:]], [(3, "crc")]),
        ([*LINES[:2], b"no", *LINES[3:]], [(3, "json")]),
        ([*LINES[:2], LINES[2][:-1] + LINES[3], *LINES[4:]], [(3, "glued"), (3, "seq")]),
        ([*LINES[:3], LINES[2], *LINES[3:]], [(4, "seq")]),
        (lines_of([metadata("another")]), [(1, "metadata")]),
        (lines_of([metadata("one", "sub")]), [(1, "metadata")]),
    ],
)
def test_lines(lines: list[bytes], expected: list[tuple[int, str]]) -> None:
    assert problems(*lines) == expected


def test_what_depends_on_a_lost_line_is_not_held_against_the_rest() -> None:
    lines = lines_of([metadata("one"), BEGIN, calls("1"), START, result("1"), LANDED, END])
    for lost in range(len(lines)):
        damaged = [line if n != lost else b"lost" for n, line in enumerate(lines)]
        assert problems(*damaged) == [(lost + 1, "json")]


def test_a_report_is_bounded() -> None:
    log = MemoryReader("one", "main", [b"damage"] * (MAX_PROBLEMS + 7))
    report = verify_log(log)
    assert len(report.problems) == MAX_PROBLEMS + 1
    assert report.problems[-1].detail == "and 7 more problems"


async def test_every_agent_is_verified_and_a_torn_tail_is_told(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, message(2))
    sub, _ = await session.open_agent("sub")
    sub.append(metadata("one", "sub"))
    reports = await verify(session)
    assert [(report.agent_id, report.lines, report.problems) for report in reports] == [("main", 2, ()), ("sub", 1, ())]
    with Path(journal.location).open("ab") as file:
        file.write(b'{"seq":3')
    (main, _) = await verify(session)
    assert [(p.line, p.kind) for p in main.problems] == [(3, "torn_tail")]
    session.abandon()
