"""Checkpoints: never wrong, never needed, quietly gone when they do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import anyio
import anyio.lowlevel
import pytest

from record_store import checkpoint, failpoints, fold
from record_store.backend import CHECKPOINT_EVERY, MAIN_AGENT
from record_store.conformance import config, message, metadata
from record_store.names import SessionPaths
from tests.support.store import SESSION, canonical, create, full_conversation, lines_of, opened, texts, write_log

pytestmark = pytest.mark.anyio


def saved(home: Path) -> Path:
    return SessionPaths(home / "sessions" / SESSION).checkpoint(MAIN_AGENT)


async def a_session(home: Path) -> bytes:
    """Closed cleanly; its state."""
    session, journal = await create(home, *full_conversation()[:-2], *(message(n) for n in range(50)))
    state = canonical(journal.state)
    await session.close()
    return state


async def test_opening_reads_only_what_follows_the_checkpoint(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1), message(2))
    await journal.checkpoint()
    journal.append(message(3))
    await journal.sync()
    session.abandon()
    log = Path(journal.location)
    # A reader of the first line would find it damaged: it is not read.
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":7', 1))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        assert len(texts(journal.state)) == 3
        assert journal.last_line == 4


async def test_the_state_is_the_same_with_and_without(tmp_path: Path) -> None:
    state = await a_session(tmp_path)
    assert saved(tmp_path).stat().st_mode & 0o777 == 0o600
    async with opened(tmp_path) as (journal, recovered):
        assert (canonical(journal.state), recovered) == (state, [])
    saved(tmp_path).unlink()
    async with opened(tmp_path) as (journal, recovered):
        assert (canonical(journal.state), recovered) == (state, [])


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def resealed(change: Callable[[dict[str, object]], None]) -> Callable[[bytes], bytes]:
    """Changes the content, the state in it too, and makes the checksum right again."""

    def apply(data: bytes) -> bytes:
        content = json.loads(data)
        del content["checksum"]
        content["state"]["title"] = "A state that must not be used"
        change(content)
        body = json.dumps(content).encode()[:-1]
        return b'%b,"checksum":"%08x"}' % (body, crc32(body))

    return apply


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (lambda data: b"", True),
        (lambda data: data[:-1], True),
        (lambda data: data[: len(data) // 2], True),
        (flip, True),
        (lambda data: bytes(len(data)), True),
        (lambda data: b"{}", True),
        (resealed(lambda c: c.update(version=99)), False),
        (resealed(lambda c: c.update(code="other")), False),
        (resealed(lambda c: c.update(state=[])), False),
        (resealed(lambda c: c.update(offset=10**9)), False),
        (resealed(lambda c: c.update(offset=1)), False),
        (resealed(lambda c: c.update(last_bytes=3)), False),
        (resealed(lambda c: c.update(last_crc="0" * 8)), False),
        (resealed(lambda c: c.update(last_crc="no number")), False),
    ],
)
async def test_a_checkpoint_that_is_damaged_or_does_not_fit_is_not_used(
    tmp_path: Path, damage: Callable[[bytes], bytes], reported: bool
) -> None:
    state = await a_session(tmp_path)
    saved(tmp_path).write_bytes(damage(saved(tmp_path).read_bytes()))
    async with opened(tmp_path) as (journal, recovered):
        assert canonical(journal.state) == state
        assert recovered == (["checkpoint"] if reported else [])
    async with opened(tmp_path) as (journal, recovered):
        assert (canonical(journal.state), recovered) == (state, [])


async def test_a_checkpoint_of_another_log_is_not_used(tmp_path: Path) -> None:
    await a_session(tmp_path)
    other = lines_of([metadata(SESSION), config(), message(1)])
    write_log(tmp_path, b"".join(other))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        assert journal.last_line == 3
        assert len(texts(journal.state)) == 1


async def test_a_log_cut_inside_what_the_checkpoint_holds_wins(tmp_path: Path) -> None:
    await a_session(tmp_path)
    log = SessionPaths(tmp_path / "sessions" / SESSION).log(MAIN_AGENT)
    log.write_bytes(log.read_bytes()[:-30])
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["torn_tail"]
        assert texts(journal.state)[-1] == message(48).message.text


async def test_damage_after_the_checkpoint_is_found_damage_before_it_is_not_told_again(tmp_path: Path) -> None:
    write_log(tmp_path, b"".join([*lines_of([metadata(SESSION)]), b"damaged\n"]))
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        location = Path(journal.location)
    with location.open("ab") as file:
        file.write(b"more damage\n")
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == ["damaged_line"]
        assert journal.last_line == 3


async def test_a_checkpoint_that_cannot_be_written_is_one_that_is_not_there(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    with failpoints.active("checkpoint.write=ENOSPC"):
        await session.close()
    assert sorted(p.name for p in saved(tmp_path).parent.iterdir()) == ["wire.jsonl"]
    async with opened(tmp_path) as (journal, recovered):
        assert recovered == []
        assert len(texts(journal.state)) == 1


async def test_the_session_goes_on_while_one_is_written(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(*(message(n) for n in range(3_000)))
    await journal.sync()
    async with anyio.create_task_group() as group:
        group.start_soon(journal.checkpoint)
        while not journal.dirty:
            await anyio.lowlevel.checkpoint()
            if journal._saved_line == journal.last_line:
                journal.append(message(3_000))
    await journal.sync()
    live = canonical(journal.state)
    session.abandon()
    assert saved(tmp_path).exists()
    async with opened(tmp_path) as (journal, recovered):
        assert (canonical(journal.state), recovered) == (live, [])


async def test_one_is_due_every_so_many_records(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(*(message(n) for n in range(CHECKPOINT_EVERY - 2)))
    assert not journal.checkpoint_due
    journal.append(message(0))
    assert journal.checkpoint_due
    await journal.checkpoint()
    assert not journal.checkpoint_due
    assert saved(tmp_path).exists()
    await session.close()


async def test_a_clean_session_writes_none_again(tmp_path: Path) -> None:
    await a_session(tmp_path)
    before = saved(tmp_path).stat()
    async with opened(tmp_path):
        pass
    assert saved(tmp_path).stat().st_mtime_ns == before.st_mtime_ns


def test_a_snapshot_stays_as_it_was() -> None:
    state = fold.State()
    records = [metadata(SESSION), *full_conversation()]
    for line, record in enumerate(records, 1):
        fold.apply(state, record, line)
        before = canonical(state)
        copy = checkpoint.snapshot(state)
        for later, other in enumerate(records, line + 1):
            fold.apply(state, other, later)
        assert canonical(copy) == before
        state = copy


def test_the_pieces_are_the_whole(tmp_path: Path) -> None:
    position = checkpoint.Position(10, 2, 5, 7)
    for count in (0, 1, 127, 128, 129, 1_000):
        state = fold.State()
        for n in range(count):
            fold.apply(state, message(n), n + 1)
        loaded = checkpoint.decode(checkpoint.encode(state, position))
        assert loaded.checkpoint is not None
        assert loaded.checkpoint.position == position
        assert canonical(loaded.checkpoint.state) == canonical(state)
