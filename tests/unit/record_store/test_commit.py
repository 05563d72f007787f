"""The group commit: what nobody waited for is on disk a moment later."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from record_store import failpoints
from record_store.backend import CHECKPOINT_EVERY, MAIN_AGENT, Journal
from record_store.commit import Committer
from record_store.conformance import info, message, metadata
from record_store.local import LocalStore

pytestmark = pytest.mark.anyio


async def journals(home: Path, committer: Committer, count: int) -> list[Journal]:
    store = LocalStore(home, on_dirty=committer.mark)
    made: list[Journal] = []
    for n in range(count):
        session = await store.create(f"s{n}", info(f"s{n}"), metadata(f"s{n}"))
        journal, _ = await session.open_agent(MAIN_AGENT)
        made.append(journal)
    return made


async def until(holds: object) -> None:
    assert callable(holds)
    with anyio.fail_after(10):
        while not holds():
            await anyio.sleep(0.005)


async def test_whatever_was_appended_is_synced_soon(tmp_path: Path) -> None:
    committer = Committer()
    async with anyio.create_task_group() as group:
        group.start_soon(committer.run)
        made = await journals(tmp_path, committer, 5)
        for _ in range(3):
            for journal in made:
                journal.append(message(1), message(2))
            assert all(journal.dirty for journal in made)
            await until(lambda: not any(journal.dirty for journal in made))
        group.cancel_scope.cancel()
    for journal in made:
        await journal.close()


async def test_a_checkpoint_that_is_due_is_written(tmp_path: Path) -> None:
    committer = Committer()
    async with anyio.create_task_group() as group:
        group.start_soon(committer.run)
        (journal,) = await journals(tmp_path, committer, 1)
        journal.append(*(message(n) for n in range(CHECKPOINT_EVERY)))
        await until(lambda: not journal.checkpoint_due)
        await until(lambda: Path(journal.location).with_name("checkpoint.json").exists())
        group.cancel_scope.cancel()
    await journal.close()


async def test_one_that_cannot_be_synced_stops_no_other(tmp_path: Path) -> None:
    committer = Committer()
    async with anyio.create_task_group() as group:
        group.start_soon(committer.run)
        bad, good = await journals(tmp_path, committer, 2)
        with failpoints.active("log.sync=EIO@1"):
            bad.append(message(1))
            await until(lambda: bad.failed)
            good.append(message(1))
            await until(lambda: not good.dirty)
        await until(bad.probe)
        bad.append(message(2))
        await until(lambda: not bad.dirty)
        group.cancel_scope.cancel()
    await bad.close()
    await good.close()


async def test_a_journal_that_was_closed_meanwhile_is_no_matter(tmp_path: Path) -> None:
    committer = Committer()
    (one, two) = await journals(tmp_path, committer, 2)
    one.append(message(1))
    await one.close()
    async with anyio.create_task_group() as group:
        group.start_soon(committer.run)
        two.append(message(1))
        await until(lambda: not two.dirty)
        group.cancel_scope.cancel()
    await two.close()
