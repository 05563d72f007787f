"""The journal: appending, failing, syncing, reading."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from record_store import failpoints
from record_store import records as r
from record_store.appending import MAX_UNSYNCED_BYTES
from record_store.conformance import message
from record_store.errors import StaleWriter, StoreWriteError
from record_store.log import FileJournal
from record_store.reader import CHUNK
from record_store.replay import state_at
from tests.support.store import canonical, create, full_conversation, opened, texts, write_log

pytestmark = pytest.mark.anyio


def on_disk(journal: FileJournal) -> bytes:
    return Path(journal.location).read_bytes()


# ---------------------------------------------------------------- writing


async def test_every_type_of_record_folds_live_as_in_replay(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, *full_conversation())
    for record in full_conversation():
        journal.append(record)
    assert canonical(state_at(journal)) == canonical(journal.state)
    live = canonical(journal.state)
    await session.close()
    async with opened(tmp_path) as (journal, recovered):
        assert (canonical(journal.state), recovered) == (live, [])


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("log.write=ENOSPC", "no_space"),
        ("log.write=EDQUOT", "no_space"),
        ("log.write=EIO", "io"),
        ("log.write=EROFS", "denied"),
        ("log.write=part:1:ENOSPC", "no_space"),
        ("log.write=part:100:EIO", "io"),
        ("log.written=EIO", "io"),
    ],
)
async def test_a_failed_write_leaves_no_byte_and_changes_nothing(tmp_path: Path, rule: str, reason: str) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    await journal.sync()
    before, state = on_disk(journal), canonical(journal.state)
    with failpoints.active(rule):
        with pytest.raises(StoreWriteError) as caught:
            journal.append(message(2), message(3))
        assert caught.value.reason == reason
        assert journal.failed
        assert (on_disk(journal), canonical(journal.state), journal.last_line) == (before, state, 2)
        assert journal.read(2) is not None
        assert len(list(journal.iterate())) == 2
    assert journal.append(message(4)) == [3]
    assert not journal.failed
    await session.close()
    async with opened(tmp_path) as (journal, recovered):
        assert (texts(journal.state), recovered) == ([message(n).message.text for n in (1, 4)], [])


async def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    with failpoints.active("log.write=short:7"):
        assert journal.append(message(1), message(2)) == [2, 3]
    assert canonical(state_at(journal)) == canonical(journal.state)
    await session.close()


async def test_half_written_bytes_that_could_not_be_cut_are_cut_before_the_next_write(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    before = on_disk(journal)
    with failpoints.active("log.write=part:30:EIO;log.truncate=EIO"):
        with pytest.raises(StoreWriteError):
            journal.append(message(1))
        assert on_disk(journal) != before
        with pytest.raises(StoreWriteError):
            journal.append(message(1))
        assert not journal.probe()
        assert len(list(journal.iterate())) == journal.last_line == 1
    assert journal.append(message(1)) == [2]
    assert on_disk(journal).startswith(before)
    assert canonical(state_at(journal)) == canonical(journal.state)
    await session.close()


async def test_probe_ends_a_failure_when_writing_works_again(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    assert journal.probe()
    with failpoints.active("log.write=ENOSPC;probe.write=ENOSPC"):
        with pytest.raises(StoreWriteError):
            journal.append(message(1))
        assert not journal.probe()
        assert journal.failed
    assert journal.probe()
    assert not journal.failed
    assert sorted(os.listdir(Path(journal.location).parent)) == ["wire.jsonl"]
    await session.close()


async def test_a_sync_does_not_end_a_failure_to_write(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    with failpoints.active("log.write=ENOSPC"), pytest.raises(StoreWriteError):
        journal.append(message(2))
    await journal.sync()
    assert journal.failed
    await session.close()


# ---------------------------------------------------------------- someone else's hands


@pytest.mark.parametrize("what", ["longer", "shorter", "removed", "replaced"])
async def test_a_log_that_someone_else_changed_is_not_written(tmp_path: Path, what: str) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    await journal.sync()
    path = Path(journal.location)
    data = path.read_bytes()
    if what == "longer":
        with path.open("ab") as file:
            file.write(b"x\n")
    elif what == "shorter":
        os.truncate(path, len(data) - 5)
    else:
        path.unlink()
    if what == "replaced":
        path.write_bytes(data)
    now = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(StoreWriteError) as caught:
            journal.append(message(2))
        assert caught.value.reason == "changed"
        assert not journal.probe()
    assert (path.read_bytes() if path.exists() else None) == now
    assert len(journal.state.entries) == 1
    await session.close()


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    await session.close()
    with pytest.raises(StaleWriter):
        journal.append(message(1))
    with pytest.raises(StaleWriter):
        journal.read(1)
    await journal.close()


# ---------------------------------------------------------------- syncing


async def test_a_failed_sync_is_told_and_the_data_written_again(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    await journal.sync()
    journal.append(message(2))
    data = on_disk(journal)
    with failpoints.active("log.sync=EIO"):
        for _ in range(2):
            with pytest.raises(StoreWriteError):
                await journal.sync()
        assert journal.failed
        assert journal.dirty
        assert not journal.probe()
    with failpoints.active("log.rewrite=EIO"), pytest.raises(StoreWriteError):
        await journal.sync()
    # A system that forgot what it could not write: the bytes are gone from the file.
    with Path(journal.location).open("r+b") as file:
        file.seek(len(data) - 40)
        file.write(b"\0" * 40)
    await journal.sync()
    assert not journal.failed
    assert not journal.dirty
    assert on_disk(journal) == data
    await session.close()


async def test_a_sync_of_a_log_that_was_removed_tells_no_one_that_it_is_on_disk(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    Path(journal.location).unlink()
    with pytest.raises(StoreWriteError):
        await journal.sync()
    session.abandon()


async def test_appends_between_a_failed_sync_and_the_next_are_covered(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    with failpoints.active("log.sync=EIO"), pytest.raises(StoreWriteError):
        await journal.sync()
    journal.append(message(2))
    assert journal.failed
    assert journal.probe()
    assert not journal.dirty
    assert canonical(state_at(journal)) == canonical(journal.state)
    await session.close()


async def test_what_is_appended_during_a_sync_is_kept_for_the_next(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    async with anyio.create_task_group() as group:
        group.start_soon(journal.sync)
        while not journal._file.syncing:
            await anyio.lowlevel.checkpoint()
        journal.append(message(2))
    assert journal.dirty
    data = on_disk(journal)
    with failpoints.active("log.sync=EIO"), pytest.raises(StoreWriteError):
        await journal.sync()
    with Path(journal.location).open("r+b") as file:
        file.seek(len(data) - 40)
        file.write(b"\0" * 40)
    await journal.sync()
    assert on_disk(journal) == data
    await session.close()


async def test_all_who_wait_for_one_sync_hear_of_its_failure(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    heard = []

    async def tell() -> None:
        journal.append(message(1))
        try:
            await journal.sync()
        except StoreWriteError as error:
            heard.append(error.reason)

    with failpoints.active("log.sync=ENOSPC@1"):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(tell)
    assert heard == ["no_space"] * 5
    assert journal.dirty
    await session.close()


async def test_syncs_at_the_same_time_share_one(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    await journal.sync()
    with failpoints.active("log.sync=EIO@3+"):
        async with anyio.create_task_group() as group:
            journal.append(message(2))
            for _ in range(20):
                group.start_soon(journal.sync)
    assert not journal.dirty
    await session.close()


async def test_what_waits_for_a_sync_is_bounded(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    for n in range(2):
        journal.append(message(n, "x" * (MAX_UNSYNCED_BYTES // 2)))
        assert journal.dirty == (n == 0)
    await session.close()


async def test_closing_without_being_able_to_sync_says_so_and_lets_go(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    with failpoints.active("log.sync=EIO"), pytest.raises(StoreWriteError):
        await session.close()
    assert journal.closed
    async with opened(tmp_path) as (journal, _):
        assert journal.last_line == 2


# ---------------------------------------------------------------- reading


async def test_any_line_is_found_whatever_its_length(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(*(message(n) for n in range(700)))
    journal.append(message(700, "x" * (3 * CHUNK)), message(701))
    journal.append(*(message(n) for n in range(702, 1_400)))
    for line in (1, 2, 255, 256, 257, 511, 512, 513, 702, 703, 1_000, 1_401):
        record = journal.read(line)
        assert record is not None
        assert record["seq"] == line
        assert [number for number, _ in journal.iterate(line, line)] == [line]
    assert journal.read(1_402) is None
    assert [number for number, _ in journal.iterate()] == list(range(1, 1_402))
    await session.close()
    async with opened(tmp_path) as (journal, _):
        for line in (3, 1_401, 800):
            record = journal.read(line)
            assert record is not None
            assert record["seq"] == line


async def test_empty_lines_count(tmp_path: Path) -> None:
    write_log(tmp_path, b"\n" * 2_000 + b"x\n")
    async with opened(tmp_path) as (journal, _):
        assert journal.last_line == 2_001
        for line in (2_001, 1, 255, 256, 257, 1_999):
            ((number, raw),) = journal.iterate(line, line)
            assert (number, raw) == (line, b"x" if line == 2_001 else b"")


async def test_a_reader_holds_little_of_a_long_log(tmp_path: Path) -> None:
    import tracemalloc

    lines = b"".join(b'{"padding":"%b"}\n' % (b"x" * 1_000) for _ in range(20_000))
    write_log(tmp_path, lines)
    async with opened(tmp_path) as (journal, _):
        assert journal.last_line == 20_000
        tracemalloc.start()
        seen = sum(1 for _ in journal.iterate())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert seen == 20_000
    assert peak < 8 * CHUNK


async def test_no_record_is_written_twice_by_one_append(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    with failpoints.active("log.write=EIO@2+"):
        assert journal.append(*(r.Clear(n) for n in range(100))) == list(range(2, 102))
    await session.close()
