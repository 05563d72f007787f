"""Queries: what they find, in which order, and what bounds them."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from protocol.messages import JsonObject
from record_store import query
from record_store import records as r
from record_store.conformance import config, message, metadata
from record_store.errors import InvalidQuery
from record_store.memory import MemoryReader
from record_store.query import Budget, Page, Query, search_now
from record_store.reader import LogFile
from tests.support.store import create, full_conversation, lines_of

pytestmark = pytest.mark.anyio


def log_of(*lines: bytes) -> MemoryReader:
    return MemoryReader("one", "main", [line.rstrip(b"\n") for line in lines])


FULL = log_of(*lines_of([metadata("one"), *full_conversation()]))


def found(page: Page) -> list[int]:
    return [hit.line for hit in page.records]


def everything(log: MemoryReader | LogFile, **terms: object) -> list[int]:
    """All pages of a query, one after the other."""
    lines: list[int] = []
    cursor = None
    while True:
        page = search_now(log, Query(cursor=cursor, **terms))  # type: ignore[arg-type]
        lines += found(page)
        cursor = page.next_cursor
        if cursor is None:
            return lines


def test_a_type_is_found_however_its_writer_sets_blanks() -> None:
    lines = []
    for separators in ((",", ":"), (", ", ": ")):
        head = json.dumps({"seq": len(lines) + 1, "type": "a.b", "time": 1}, separators=separators)[:-1].encode()
        lines.append(head + b',"crc":"%08x"}' % crc32(head))
    assert everything(log_of(*lines), types=("a.b",)) == [1, 2]
    assert everything(log_of(*lines), types=("a_b",)) == []


def test_without_terms_every_record_comes_as_stored() -> None:
    page = search_now(FULL, Query())
    assert found(page) == list(range(1, FULL.last_line + 1))
    assert page.next_cursor is None
    for line, record in page.records:
        assert record["seq"] == line
        assert set(record) >= {"seq", "type", "time", "crc"}
        assert record == FULL.read(line)


@pytest.mark.parametrize(
    ("terms", "lines"),
    [
        ({"from_line": 4, "to_line": 6}, [4, 5, 6]),
        ({"from_line": 6, "to_line": 4}, []),
        ({"from_line": 28}, [28, 29, 30]),
        ({"to_line": 2}, [1, 2]),
        ({"from_line": 1_000}, []),
        ({"types": ("context.undo", "context.clear")}, [27, 29]),
        ({"types": ("metadata",), "from_line": 2}, []),
        ({"types": ()}, list(range(1, 31))),
        ({"types": ("no.such",)}, []),
        ({"grep": "READ_FILE"}, [3, 9, 10, 11]),
        ({"grep": "read_file", "types": ("context.append_message",)}, [9, 11]),
        ({"grep": '"path": "a.txt"'}, [9]),
        ({"grep": '"x" \\ \n'}, [4]),
        ({"grep": "你好"}, [4, 30]),
        ({"grep": "no such text"}, []),
        ({"grep": ""}, list(range(1, 31))),
        ({"grep": r"snip|prune", "regex": True}, [20]),
        ({"grep": r"^reading\.$", "regex": True}, [9]),
        ({"grep": r"tool_call_id\b", "regex": True}, [10, 11, 17]),
        ({"grep": "compaction.cancel", "regex": True}, [25]),
    ],
)
def test_terms(terms: dict[str, object], lines: list[int]) -> None:
    assert everything(FULL, **terms) == lines
    assert everything(FULL, limit=1, **terms) == lines
    assert everything(FULL, limit=7, **terms) == lines


@pytest.mark.parametrize(
    ("needle", "text"),
    [
        ("STRASSE", "Straße"),
        ("straße", "STRASSE"),
        ("K", "\u212a"),
        ("k", "\u212a"),
        ("ΣΟΦΟΣ", "σοφος"),
        ("İ", "i\u0307"),
    ],
)
def test_case_is_folded_not_only_lowered(needle: str, text: str) -> None:
    log = log_of(*lines_of([r.SkillActivate(1, text, "inline", "model"), r.Clear(2)]))
    assert 1 in everything(log, grep=needle)


def test_pages_are_no_longer_than_asked_and_stop_at_the_end() -> None:
    page = search_now(FULL, Query(limit=30))
    assert (len(page.records), page.next_cursor) == (30, None)
    page = search_now(FULL, Query(limit=29))
    assert len(page.records) == 29
    assert found(search_now(FULL, Query(limit=29, cursor=page.next_cursor))) == [30]


def test_damage_is_passed_over_and_glued_records_are_found() -> None:
    lines = lines_of([metadata("one"), *(message(n) for n in range(2, 8))])
    log = log_of(lines[0], b"damage", lines[2][:-1] + lines[3], b"", lines[5], lines[6][:-5])
    assert everything(log) == [1, 3, 3, 5]
    assert everything(log, limit=1) == [1, 3, 3, 5]
    assert everything(log, grep="message 4:") == [3]
    records: list[JsonObject] = [hit.record for hit in search_now(log, Query(from_line=3, to_line=3)).records]
    assert [record["seq"] for record in records] == [3, 4]


def test_unknown_records_are_found_by_their_type() -> None:
    import zlib

    head = b'{"seq":2,"type":"context.future","time":1,"x":"needle"'
    log = log_of(lines_of([metadata("one")])[0], head + b',"crc":"%08x"}' % zlib.crc32(head))
    assert everything(log, types=("context.future",)) == [2]
    assert everything(log, grep="needle") == [2]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "-1.0", "1.0.0", "9" * 40 + ".0", "\u0661.0"])
def test_a_wrong_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        search_now(FULL, Query(cursor=cursor))
    assert caught.value.field == "cursor"


def test_a_cursor_outside_the_range_ends_it() -> None:
    assert found(search_now(FULL, Query(cursor="500.0"))) == []
    assert found(search_now(FULL, Query(from_line=5, to_line=6, cursor="2.0"))) == [5, 6]


def test_a_page_ends_when_it_is_full_and_can_go_on() -> None:
    log = log_of(*lines_of([message(n, "x" * 300) for n in range(60)]))
    size = len(next(log.iterate()).raw)
    page = search_now(log, Query(), Budget(page_bytes=10 * size + 100))
    assert found(page) == list(range(1, 11))
    assert found(search_now(log, Query(cursor=page.next_cursor))) == list(range(11, 61))


def test_one_record_over_every_bound_is_still_returned() -> None:
    log = log_of(*lines_of([message(1, "x" * 1_000), message(2)]))
    page = search_now(log, Query(), Budget(page_bytes=10, scanned_bytes=10, seconds=0))
    assert (found(page), page.next_cursor) == ([1], "2.0")


@pytest.mark.parametrize("budget", [Budget(scanned_bytes=2_999), Budget(seconds=0)])
def test_a_scan_that_finds_nothing_pauses(budget: Budget) -> None:
    log = log_of(*[b"d" * 1_000] * 7)
    pages, cursor = 0, None
    while True:
        page = search_now(log, Query(types=("turn.end",), cursor=cursor), budget)
        assert page.records == ()
        pages, cursor = pages + 1, page.next_cursor
        if cursor is None:
            break
    assert pages == (3 if budget.seconds else 7)


async def test_a_live_journal_can_be_searched(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, config(), message(3))
    page = await query.search(journal, Query(grep="MESSAGE 3"))
    assert found(page) == [3]
    await session.close()
