"""Every backend keeps the promises of the port."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from record_store.backend import Lease, OpenSession, SessionStore
from record_store.conformance import CHECKS, Harness, NonConformance, logs
from record_store.local import LocalOpenSession, LocalStore
from record_store.memory import MemoryDisk, MemoryFiles, MemoryOpenSession, MemoryStore

pytestmark = pytest.mark.anyio


class LocalHarness:
    def __init__(self, home: Path) -> None:
        self._home = home

    async def store(self) -> SessionStore:
        return LocalStore(self._home)

    async def crash(self, session: OpenSession) -> None:
        assert isinstance(session, LocalOpenSession)
        session.abandon()

    async def depose(self, session_id: str) -> None:
        """What a person does who believes that lock files are to be removed."""
        os.unlink(self._home / "sessions" / session_id / "lock")

    async def damage(self, session_id: str, agent_id: str, line: int) -> None:
        log = self._home / "sessions" / session_id / "agents" / agent_id / "wire.jsonl"
        lines = log.read_bytes().split(b"\n")
        lines[line - 1] = lines[line - 1].replace(b"message", b"massage", 1)
        log.write_bytes(b"\n".join(lines))


class MemoryHarness:
    def __init__(self) -> None:
        self._disk: MemoryDisk = {}

    async def store(self) -> SessionStore:
        return MemoryStore(self._disk)

    async def crash(self, session: OpenSession) -> None:
        assert isinstance(session, MemoryOpenSession)
        session.abandon()

    async def depose(self, session_id: str) -> None:
        self._disk[session_id].holder = None

    async def damage(self, session_id: str, agent_id: str, line: int) -> None:
        self._disk[session_id].logs[agent_id].lines[line - 1] = b'{"not": "a record"}'


class Forgetful(MemoryHarness):
    """A backend that loses what it synced: the kit must notice."""

    async def crash(self, session: OpenSession) -> None:
        for files in self._disk.values():
            for log in files.logs.values():
                log.synced = min(log.synced, 3)
        await super().crash(session)


class UnfencedFiles(MemoryFiles):
    def check(self, lease: Lease) -> None:
        pass


class UnfencedDisk(MemoryDisk):
    def __setitem__(self, session_id: str, files: MemoryFiles) -> None:
        super().__setitem__(session_id, UnfencedFiles(files.info, files.logs, files.blobs))


class Unfenced(MemoryHarness):
    """A backend that lets a stale writer write."""

    def __init__(self) -> None:
        self._disk = UnfencedDisk()


@pytest.fixture(params=["local", "memory"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    return LocalHarness(tmp_path) if request.param == "local" else MemoryHarness()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_backend_keeps(check: Callable[[Harness], Awaitable[None]], harness: Harness) -> None:
    await check(harness)


async def test_the_kit_notices_lost_records() -> None:
    with pytest.raises(NonConformance):
        await logs.check_synced_survives(Forgetful())


async def test_the_kit_notices_a_missing_fence() -> None:
    with pytest.raises(NonConformance):
        await logs.check_fencing(Unfenced())


def test_the_types_are_those_of_the_port(tmp_path: Path) -> None:
    """For the type checker, mostly."""
    stores: list[SessionStore] = [LocalStore(tmp_path), MemoryStore()]
    assert len(stores) == 2
