"""Opening a log after whatever happened to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_store import failpoints
from record_store import records as r
from record_store.backend import MAIN_AGENT
from record_store.conformance import config, message, metadata
from record_store.errors import StoreWriteError
from record_store.local import LocalStore
from record_store.names import SessionPaths
from record_store.recovery import MAX_REPORTED
from record_store.transcript import read_transcript
from record_store.verify import verify
from tests.support.store import SESSION, canonical, lines_of, opened, texts, write_log

pytestmark = pytest.mark.anyio

LINES = lines_of([metadata(SESSION), config(), *(message(n) for n in range(3, 9))])
LOG = b"".join(LINES)


def beside(home: Path, name: str) -> Path:
    return SessionPaths(home / "sessions" / SESSION).agent(MAIN_AGENT) / name


async def reopened_clean(home: Path) -> bytes:
    """Opens once more: nothing is left to mend. The log's bytes."""
    async with opened(home) as (journal, recovered):
        assert recovered == []
        return Path(journal.location).read_bytes()


async def test_a_whole_log_has_nothing_to_recover(tmp_path: Path) -> None:
    write_log(tmp_path, LOG)
    session = await LocalStore(tmp_path).open(SESSION)
    assert [x.kind for x in session.recovered] == ["session_file"]
    await session.close()
    assert await reopened_clean(tmp_path) == LOG


async def test_a_torn_tail_is_kept_aside_and_recorded(tmp_path: Path) -> None:
    torn = LINES[-1][:-20]
    write_log(tmp_path, b"".join(LINES[:-1]) + torn)
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
        assert beside(tmp_path, "wire.jsonl.torn-1").read_bytes() == torn
        repair = journal.read(8)
        assert repair is not None
        assert (repair["type"], repair["seq"], repair["bytes"]) == ("store.repair", 8, len(torn))
        assert repair["saved_as"] == "wire.jsonl.torn-1"
        assert journal.append(message(9)) == [9]
    assert (await reopened_clean(tmp_path)).startswith(b"".join(LINES[:-1]))
    write_log(tmp_path, await reopened_clean(tmp_path) + b'{"seq":')
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
    assert beside(tmp_path, "wire.jsonl.torn-2").read_bytes() == b'{"seq":'
    assert beside(tmp_path, "wire.jsonl.torn-1").read_bytes() == torn


async def test_a_last_line_that_lacks_only_its_newline_is_whole(tmp_path: Path) -> None:
    write_log(tmp_path, LOG[:-1])
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        assert len(texts(journal.state)) == 6
        assert journal.append(message(9)) == [9]
    assert (await reopened_clean(tmp_path)).startswith(LOG)


async def test_a_last_line_with_newline_and_wrong_checksum_is_damaged_not_torn(tmp_path: Path) -> None:
    damaged = LOG[:-1].replace(b"message 8", b"massage 8") + b"\n"
    write_log(tmp_path, damaged)
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
        assert journal.append(message(9)) == [9]
    assert (await reopened_clean(tmp_path)).startswith(damaged)


@pytest.mark.parametrize("whole", [1, 2])
async def test_whole_records_before_a_torn_end_of_the_same_line_stay(tmp_path: Path, whole: int) -> None:
    kept = LINES[-1][:-1] * whole
    write_log(tmp_path, b"".join(LINES[:-1]) + kept + b'{"seq":9,"ty')
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
        assert len(texts(journal.state)) == 5 + whole
        assert journal.last_line == 9
    assert beside(tmp_path, "wire.jsonl.torn-1").read_bytes() == b'{"seq":9,"ty'
    assert (await reopened_clean(tmp_path)).startswith(b"".join(LINES[:-1]) + kept + b"\n")


@pytest.mark.parametrize("size", [1, 4_096, 300_000])
async def test_a_tail_of_zeros_is_torn(tmp_path: Path, size: int) -> None:
    write_log(tmp_path, LOG + bytes(size))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
        assert journal.last_line == 9
    assert beside(tmp_path, "wire.jsonl.torn-1").read_bytes() == bytes(size)


@pytest.mark.parametrize(
    ("broken", "lost"),
    [
        (b"", 1),
        (b"{}", 1),
        (b"garbage \xff\xfe", 1),
        (bytes(700), 1),
        (LINES[4][:-30], 1),
        (bytes(700) + LINES[4][:-1], 0),
        (LINES[4][:60] + LINES[4][:-1], 0),
    ],
)
async def test_damage_in_the_middle_is_kept_reported_and_skipped(tmp_path: Path, broken: bytes, lost: int) -> None:
    data = b"".join(LINES[:4]) + broken + b"\n" + b"".join(LINES[5:])
    write_log(tmp_path, data)
    session = await LocalStore(tmp_path).open(SESSION)
    journal, recovered = await session.open_agent(MAIN_AGENT)
    assert [(x.kind, x.line) for x in recovered] == [("damaged_line", 5)]
    assert len(texts(journal.state)) == 6 - lost
    assert journal.append(message(9)) == [9]
    (report,) = await verify(session)
    assert [p.line for p in report.problems] == [5]
    await session.close()
    assert (await reopened_clean(tmp_path)).startswith(data)


async def test_glued_records_are_both_read_and_later_ones_too(tmp_path: Path) -> None:
    data = LOG.replace(LINES[4] + LINES[5], LINES[4][:-1] + LINES[5])
    write_log(tmp_path, data)
    session = await LocalStore(tmp_path).open(SESSION)
    journal, recovered = await session.open_agent(MAIN_AGENT)
    assert recovered == []
    assert len(texts(journal.state)) == 6
    assert journal.append(message(9)) == [8]
    (report,) = await verify(session)
    assert [(p.line, p.kind) for p in report.problems] == [(5, "glued"), (5, "seq")]
    await session.close()


async def test_unknown_records_are_kept_and_skipped_quietly(tmp_path: Path) -> None:
    import zlib

    head = b'{"seq":5,"type":"context.from_the_future","time":1,"x":[1,2,3]'
    line = head + b',"crc":"%08x"}\n' % zlib.crc32(head)
    data = LOG.replace(LINES[4], line)
    write_log(tmp_path, data)
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        assert len(texts(journal.state)) == 5
        record = journal.read(5)
        assert record is not None
        assert record["type"] == "context.from_the_future"
    assert await reopened_clean(tmp_path) == data


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\0", b"\n\n\n", b"no log at all", LINES[0][:-10], b"\xff" * 5_000 + b"\n"]
)
async def test_a_session_always_opens(tmp_path: Path, data: bytes) -> None:
    write_log(tmp_path, data)
    async with opened(tmp_path) as (journal, _):
        line = journal.last_line + 1
        assert journal.append(message(1)) == [line]
        assert journal.state.session_id == SESSION
    async with opened(tmp_path) as (journal, recovered):
        assert len(texts(journal.state)) == 1
        assert recovered == []


async def test_of_very_many_damaged_lines_only_some_are_named(tmp_path: Path) -> None:
    write_log(tmp_path, LOG + b"damaged\n" * (MAX_REPORTED + 50))
    session = await LocalStore(tmp_path).open(SESSION)
    _, recovered = await session.open_agent(MAIN_AGENT)
    assert len(recovered) == MAX_REPORTED + 1
    assert "50" in recovered[-1].detail
    await session.close()


# ---------------------------------------------------------------- a repair that is interrupted

STEPS = (
    "torn.open", "torn.write", "torn.sync", "torn.rename", "torn.dirsync", "torn.done", "repair.cut", "log.newline",
    "log.write", "repair.mark",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
async def test_a_repair_that_fails_halfway_is_finished_later(tmp_path: Path, step: str) -> None:
    torn = b'{"seq":9,"type":"con'
    write_log(tmp_path, LOG[:-1] + torn)
    with failpoints.active(f"{step}=EIO"):
        session = await LocalStore(tmp_path).open(SESSION)
        with pytest.raises(StoreWriteError):
            await session.open_agent(MAIN_AGENT)
        await session.close()
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
        assert len(texts(journal.state)) == 6
        repairs = [n for n, raw in journal.iterate() if b"store.repair" in raw]
        assert repairs == [9]
        live = canonical(journal.state)
    assert beside(tmp_path, "wire.jsonl.torn-1").read_bytes() == torn
    names = {p.name for p in beside(tmp_path, "x").parent.iterdir()}
    assert names == {"wire.jsonl", "wire.jsonl.torn-1", "checkpoint.json"}
    async with opened(tmp_path) as (journal, recovered):
        assert (recovered, canonical(journal.state)) == ([], live)


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_an_empty_log_opens_and_is_told(tmp_path: Path, checkpointed: bool) -> None:
    write_log(tmp_path, LOG)
    if checkpointed:
        await reopened_clean(tmp_path)
    beside(tmp_path, "wire.jsonl").write_bytes(b"")
    stored = await LocalStore(tmp_path).read(SESSION)
    assert [(p.line, p.kind) for report in await verify(stored) for p in report.problems] == [(1, "metadata")]
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
        assert journal.append(message(1)) == [1]
    assert len(lines_of([message(1)])[0]) == len(await reopened_clean(tmp_path))


async def test_a_session_whose_first_line_is_lost_has_a_time_all_the_same(tmp_path: Path) -> None:
    write_log(tmp_path, b"lost\n" + b"".join(LINES[1:]))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
        assert journal.state.created_at == config().time


@pytest.mark.parametrize("lost", [3, 4, 5, 6])
@pytest.mark.parametrize("shape", ["summary", "kept"])
async def test_a_line_lost_in_a_compacted_span_costs_no_message_after_it(tmp_path: Path, lost: int, shape: str) -> None:
    span = [message(n) for n in range(3, 7)]
    kept = tuple(r.Kept(m.message.id) for m in span[:2]) if shape == "kept" else ()
    start = r.CompactionStart(7, "c1", "auto", "background", (3, 6), 4, 100)
    paid = r.CompactionSummary(10, "c1", "a summary", r.Usage(1, 0, 1, 1), 1, 0)
    replacement = (*kept, r.New(message(20, "a summary").message))
    landing = r.ApplyCompaction(12, "c1", "handoff", "model", 4, replacement, 100, 50, len(replacement))
    head = [metadata(SESSION), config(), *span]
    lines = lines_of([*head, start, message(8), message(9), paid, message(11), landing, message(13)])
    lines[lost - 1] = b"lost\n"
    write_log(tmp_path, b"".join(lines))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
        stays = [m.message.id for n, m in enumerate(span[:2], 3) if kept and n != lost]
        assert [e.message.id for e in journal.state.entries] == [*stays, "msg_20", "msg_8", "msg_9", "msg_11", "msg_13"]
        everything = [m.id for m in await read_transcript(journal.reader())]
        assert everything == [f"msg_{n}" for n in (3, 4, 5, 6, 8, 9, 11, 13) if n != lost]
