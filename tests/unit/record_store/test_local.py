"""Sessions in a home directory: made whole, listed without their logs, removed for good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from record_store import catalog, failpoints
from record_store.backend import MAIN_AGENT
from record_store.conformance import config, info, message, metadata
from record_store.errors import SessionExists, SessionLocked, SessionNotFound, StoreReadError, StoreWriteError
from record_store.local import LocalStore
from record_store.names import DELETED, STAGED, SessionPaths
from tests.support.store import SESSION, canonical, create, full_conversation, opened, texts, write_log

pytestmark = pytest.mark.anyio


def paths(home: Path, session_id: str = SESSION) -> SessionPaths:
    return SessionPaths(home / "sessions" / session_id)


def names(home: Path) -> list[str]:
    return sorted(os.listdir(home / "sessions"))


# ---------------------------------------------------------------- files


async def test_everything_is_private_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        home = tmp_path / "a" / "home"
        session, journal = await create(home, config())
        await session.blobs.put(b"blob")
        sub, _ = await session.open_agent("sub")
        sub.append(metadata(SESSION, "sub"))
        journal.append(message(1))
        await session.close()
        write_log(home, Path(journal.location).read_bytes() + b"torn")
        async with opened(home):
            pass
    finally:
        os.umask(umask)
    for root, directories, files in os.walk(home):
        for name in directories:
            assert os.stat(Path(root, name)).st_mode & 0o777 == 0o700, name
        for name in files:
            if name != "wire.jsonl":
                assert os.stat(Path(root, name)).st_mode & 0o777 == 0o600, name
    assert os.stat(home).st_mode & 0o777 == 0o700


async def test_session_files_lie_where_the_format_says(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, config())
    blob = await session.blobs.put(b"x" * 5_000)
    await session.close()
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    base = f"sessions/{SESSION}"
    assert found == {
        f"{base}/session.json", f"{base}/lock", f"{base}/blobs/{blob}",
        f"{base}/agents/main/wire.jsonl", f"{base}/agents/main/checkpoint.json",
    }  # fmt: skip
    assert journal.location == str(tmp_path / base / "agents/main/wire.jsonl")


# ---------------------------------------------------------------- making and removing


@pytest.mark.parametrize(
    "step",
    ["create.stage", "lock.write", "lock.taken", "create.log", "log.write", "session.write", "session.rename",
     "create.sync", "create.rename"],
)  # fmt: skip
async def test_a_session_that_could_not_be_made_is_not_there(tmp_path: Path, step: str) -> None:
    store = LocalStore(tmp_path)
    with failpoints.active(f"{step}=ENOSPC"), pytest.raises(StoreWriteError):
        await store.create(SESSION, info(SESSION), metadata(SESSION))
    assert (await store.list()).sessions == ()
    assert names(tmp_path) == []
    session = await store.create(SESSION, info(SESSION), metadata(SESSION))
    await session.close()


async def test_what_crashes_left_is_swept(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    left = [f"{STAGED}0123", f"{DELETED}4567"]
    for name in left:
        write_log(tmp_path, b"half", name)
    alive = f"{STAGED}alive"
    write_log(tmp_path, b"half", alive)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from record_store import lock; from record_store.names import *\n"
            "held = lock.acquire(SessionPaths(Path(sys.argv[1])), 'x'); print(flush=True); sys.stdin.read()",
            str(tmp_path / "sessions" / alive),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        other = await LocalStore(tmp_path).create("two", info("two"), metadata("two"))
        assert names(tmp_path) == sorted([alive, SESSION, "two"])
    finally:
        holder.kill()
        holder.communicate()
    await other.close()
    await session.close()


async def test_an_id_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(message(1))
    await session.close()
    before = Path(journal.location).read_bytes()
    with pytest.raises(SessionExists):
        await LocalStore(tmp_path).create(SESSION, info(SESSION), metadata(SESSION))
    assert Path(journal.location).read_bytes() == before
    assert names(tmp_path) == [SESSION]


async def test_delete_removes_all_of_it(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    await session.blobs.put(b"blob")
    store = LocalStore(tmp_path)
    with pytest.raises(SessionLocked):
        await store.delete(SESSION)
    await session.close()
    await store.delete(SESSION)
    assert names(tmp_path) == []


async def test_a_deletion_that_stops_halfway_is_a_deletion_or_none(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    await session.close()
    store = LocalStore(tmp_path)
    with failpoints.active("delete.rename=EIO"), pytest.raises(StoreWriteError):
        await store.delete(SESSION)
    async with opened(tmp_path):
        pass
    with failpoints.active("delete.remove=EIO"), pytest.raises(StoreWriteError):
        await store.delete(SESSION)
    assert (await store.list()).sessions == ()
    with pytest.raises(SessionNotFound):
        await store.open(SESSION)
    session, _ = await create(tmp_path)
    assert names(tmp_path) == [SESSION]
    await session.close()


# ---------------------------------------------------------------- session.json


async def test_info_survives_and_is_checked(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    new = replace(info(SESSION), title='T\u2028"', updated_at=7)
    await session.save_info(new)
    await session.close()
    data = paths(tmp_path).info.read_bytes()
    assert catalog.decode_info(data) == new
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        assert catalog.decode_info(changed) is None
        assert catalog.decode_info(data[:at]) is None


@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "other"])
async def test_a_lost_session_file_is_rebuilt_from_the_log(tmp_path: Path, damage: str) -> None:
    session, _ = await create(tmp_path, *full_conversation())
    await session.close()
    file = paths(tmp_path).info
    if damage == "lost":
        file.unlink()
    else:
        other = catalog.encode_info(info("another"))
        file.write_bytes({"empty": b"", "cut": file.read_bytes()[:-9], "other": other}[damage])
    stored = await LocalStore(tmp_path).read(SESSION)
    rebuilt = await stored.info()
    assert (rebuilt.session_id, rebuilt.title, rebuilt.cwd) == (SESSION, "A title", "/work")
    assert (rebuilt.model, rebuilt.window, rebuilt.agents) == ("scripted/echo", 8_192 * 4, ("main", "sub"))
    session = await LocalStore(tmp_path).open(SESSION)
    assert [x.kind for x in session.recovered] == ["session_file"]
    await session.close()
    assert catalog.read_info(file) == rebuilt
    session = await LocalStore(tmp_path).open(SESSION)
    assert session.recovered == ()
    await session.close()


async def test_listing_reads_no_log_unless_it_must(tmp_path: Path) -> None:
    for n in range(3):
        name = f"s{n}"
        session, journal = await create(tmp_path, config(), session_id=name)
        await session.save_info(info(name, updated_at=n))
        await session.close()
        Path(journal.location).write_bytes(b"unreadable\n")
    store = LocalStore(tmp_path)
    assert [s.session_id for s in (await store.list()).sessions] == ["s2", "s1", "s0"]
    assert [s.title for s in (await store.list()).sessions] == ["A title"] * 3
    await (await store.open("s1")).save_info(info("s1", updated_at=9))
    assert [s.session_id for s in (await store.list()).sessions] == ["s1", "s2", "s0"]


async def test_a_session_file_of_another_session_is_not_believed(tmp_path: Path) -> None:
    session, _ = await create(tmp_path, config())
    await session.close()
    paths(tmp_path).info.write_bytes(catalog.encode_info(info("another")))
    assert [s.session_id for s in (await LocalStore(tmp_path).list()).sessions] == [SESSION]


async def test_a_list_rebuilds_what_is_lost_even_while_someone_writes(tmp_path: Path) -> None:
    session, _ = await create(tmp_path, config(), message(1))
    paths(tmp_path).info.unlink()
    store = LocalStore(tmp_path)
    (found,) = (await store.list()).sessions
    assert (found.title, found.updated_at) == ("A title", message(1).time)
    assert not paths(tmp_path).info.exists()
    await session.close()
    assert (await store.list()).sessions == (found,)
    assert catalog.read_info(paths(tmp_path).info) == found


async def test_what_is_no_session_is_not_listed(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    (tmp_path / "sessions" / "empty").mkdir()
    (tmp_path / "sessions" / "a file").write_bytes(b"")
    (tmp_path / "sessions" / "file").write_bytes(b"")
    assert [s.session_id for s in (await LocalStore(tmp_path).list()).sessions] == [SESSION]
    for name in ("empty", "file"):
        with pytest.raises(SessionNotFound):
            await LocalStore(tmp_path).open(name)
    await session.close()
    assert (await LocalStore(tmp_path / "nowhere").list()).sessions == ()


# ---------------------------------------------------------------- reading without the lock


async def test_reading_a_session_that_another_store_holds(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, config(), message(1))
    stored = await LocalStore(tmp_path).read(SESSION)
    log = await stored.log()
    assert (log.last_line, log.unfinished) == (3, 0)
    assert canonical(await stored.state()) == canonical(journal.state)
    with Path(journal.location).open("ab") as file:
        file.write(b'{"seq":4,"type":"conte')
    torn = await stored.log()
    assert (torn.last_line, torn.unfinished) == (3, 22)
    assert canonical(await stored.state()) == canonical(journal.state)
    assert [n for n, _ in torn.iterate()] == [1, 2, 3]
    with pytest.raises(StoreWriteError):
        await stored.blobs.put(b"x")
    session.abandon()


async def test_a_readers_line_numbers_come_from_the_checkpoint(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    journal.append(*(message(n) for n in range(1_000)))
    await journal.checkpoint()
    journal.append(message(1_000))
    stored = await LocalStore(tmp_path).read(SESSION)
    log = await stored.log()
    assert log.last_line == 1_002
    for line in (1_002, 1_001, 500, 1):
        record = log.read(line)
        assert record is not None
        assert record["seq"] == line
    await session.close()


async def test_a_log_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    await session.close()
    Path(journal.location).unlink()
    Path(journal.location).mkdir()
    stored = await LocalStore(tmp_path).read(SESSION)
    with pytest.raises(StoreReadError):
        await stored.state()


# ---------------------------------------------------------------- forks


async def test_a_fork_of_a_damaged_log_keeps_its_numbers(tmp_path: Path) -> None:
    session, journal = await create(tmp_path, config(), *(message(n) for n in range(3, 10)))
    await session.close()
    log = Path(journal.location)
    data = log.read_bytes().replace(b"message 5", b"massage 5")
    log.write_bytes(data)
    copy = await LocalStore(tmp_path).fork(SESSION, "two", 7, metadata("two"), info("two"))
    forked, recovered = await copy.open_agent(MAIN_AGENT)
    assert [(x.kind, x.line) for x in recovered] == [("damaged_line", 5)]
    assert Path(forked.location).read_bytes().split(b"\n", 1)[1] == b"".join(data.splitlines(keepends=True)[1:7])
    assert len(texts(forked.state)) == 4
    await copy.close()


@pytest.mark.parametrize("upto", [1, 2, 99])
async def test_a_fork_goes_as_far_as_there_are_lines(tmp_path: Path, upto: int) -> None:
    session, _ = await create(tmp_path, config(), message(3))
    copy = await LocalStore(tmp_path).fork(SESSION, "two", upto, metadata("two"), info("two"))
    forked, _ = await copy.open_agent(MAIN_AGENT)
    assert forked.last_line == min(upto, 3)
    first = forked.read(1)
    assert first is not None
    assert first["fork_line"] == min(upto, 3)
    await copy.close()
    await session.close()


async def test_blobs_of_a_fork_outlive_the_source(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    blob = await session.blobs.put(b"blob")
    copy = await LocalStore(tmp_path).fork(SESSION, "two", 1, metadata("two"), info("two"))
    await session.close()
    await LocalStore(tmp_path).delete(SESSION)
    assert copy.blobs.get(blob) == b"blob"
    await copy.close()


# ---------------------------------------------------------------- blobs


async def test_a_damaged_blob_is_none_and_can_be_put_again(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    blob = await session.blobs.put(b"blob")
    path = paths(tmp_path).blobs / blob
    path.write_bytes(b"blo")
    assert session.blobs.get(blob) is None
    assert await session.blobs.put(b"blob") == blob
    assert session.blobs.get(blob) == b"blob"
    with failpoints.active("blob.write=part:3:ENOSPC"), pytest.raises(StoreWriteError) as caught:
        await session.blobs.put(b"another")
    assert caught.value.reason == "no_space"
    assert os.listdir(paths(tmp_path).blobs) == [blob]
    await session.close()
