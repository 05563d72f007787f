"""Inputs whose sender goes away, or whose turn begins, while the disk is busy with them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.messages import TextPart
from record_store import files
from record_store.records import ConfigUpdate
from sidecar.app import App, layers_of
from sidecar.sessions.session import Session
from tests.unit.sessions.test_events import Recorder

pytestmark = pytest.mark.anyio


class Disk:
    """Takes its time over a sync while it is `held`."""

    def __init__(self) -> None:
        self._sync = files.sync_data
        self._free = threading.Event()
        self._free.set()
        self.waiting = threading.Event()

    def sync_data(self, fd: int) -> None:
        if not self._free.is_set():
            self.waiting.set()
            assert self._free.wait(10)
        self._sync(fd)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.waiting.clear()
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(files, "sync_data", made.sync_data)
    return made


@asynccontextmanager
async def a_session(home: Path) -> AsyncIterator[Session]:
    environment = {"SIDECAR_HOME": str(home / "home"), "HOME": str(home), "SIDECAR_MODEL": "scripted/echo"}
    app = App(layers_of(None, environment), environment)
    async with app.lifespan():
        yield await app.manager.create(
            Recorder(),
            session_id=None,
            cwd=str(home),
            model=None,
            system_prompt=None,
            title=None,
            config=None,
            tools=None,
        )
        await app.shutdown("graceful")


async def given_up(session: Session, disk: Disk, call: Any) -> None:
    """Cancels the call while what it wrote waits for a sync that was under way before."""
    with disk.held():
        session.main.agent.append(ConfigUpdate(time=0, title="title"))
        assert await anyio.to_thread.run_sync(disk.waiting.wait, 10)
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with anyio.fail_after(10):
                while not session.state.pending:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()


async def test_an_input_that_nobody_waits_for_any_more_ends_as_cancelled(tmp_path: Path, disk: Disk) -> None:
    async with a_session(tmp_path) as session:
        await given_up(session, disk, lambda: session.send("never mind"))
        with anyio.fail_after(10):
            await session.turns.wait_idle()
        assert session.turns.idle
        (outcome,) = session.state.outcomes.values()
        assert outcome.stop_reason == "cancelled"
        assert (await (await session.send("hello")).wait()).stop_reason == "end_turn"


async def test_steering_that_nobody_waits_for_any_more_starts_no_turn(tmp_path: Path, disk: Disk) -> None:
    async with a_session(tmp_path) as session:
        await given_up(session, disk, lambda: session.turns.steer((TextPart("never mind"),)))
        assert session.turns.idle
        assert (await (await session.send("hello")).wait()).stop_reason == "end_turn"
        assert len(session.state.outcomes) == 1
