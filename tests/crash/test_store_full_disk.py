"""A real file system that is really full: nothing half-written, and a session that works again when there is room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from record_store.backend import MAIN_AGENT
from record_store.conformance import info, message, metadata
from record_store.errors import StoreWriteError
from record_store.local import LocalStore
from record_store.replay import state_at
from record_store.verify import verify
from tests.support.small_disk import mounted
from tests.support.store import canonical, opened, texts

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One of 512 KiB, where we may mount one."""
    with mounted(tmp_path / "disk", "512k") as disk:
        yield disk


async def test_a_full_disk(small_disk: Path) -> None:
    store = LocalStore(small_disk)
    session = await store.create("one", info("one"), metadata("one"))
    journal, _ = await session.open_agent(MAIN_AGENT)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(300_000))
    stored = 0

    def fill() -> None:
        nonlocal stored
        while True:
            journal.append(message(stored, "x" * 10_000))
            stored += 1

    with pytest.raises(StoreWriteError) as caught:
        fill()
    assert caught.value.reason == "no_space"
    assert 5 < stored < 60
    assert journal.failed
    assert not journal.probe()
    log = Path(journal.location).read_bytes()
    assert log.endswith(b"\n")
    assert log.count(b"\n") == journal.last_line == stored + 1
    assert len(texts(journal.state)) == stored
    assert journal.read(stored) is not None
    assert canonical(state_at(journal)) == canonical(journal.state)
    with pytest.raises(StoreWriteError):
        await session.blobs.put(bytes(400_000))
    with pytest.raises(StoreWriteError):
        await store.create("two", info("two"), metadata("two"), message(1, "y" * 100_000))
    with pytest.raises(StoreWriteError):
        journal.append(message(0, "x" * 10_000))
    await journal.checkpoint()

    filler.unlink()
    assert journal.probe()
    assert not journal.failed
    assert journal.append(message(stored, "x" * 10_000)) == [stored + 2]
    await journal.sync()
    live = canonical(journal.state)
    await session.close()
    async with opened(small_disk) as (journal, recovered):
        assert recovered == []
        assert canonical(journal.state) == live
    session = await LocalStore(small_disk).open("one")
    assert [report.problems for report in await verify(session)] == [()]
    await session.close()
    assert sorted(os.listdir(small_disk / "sessions")) == ["one"]
