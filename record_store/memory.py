"""The store in memory: for tests and simulations. Keeps the promises of the port, forgets with the process.

`MemoryDisk` is what several stores share, as machines share a disk: it remembers what was synced, and a crash of a
holder takes the rest with it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from protocol.info import Recovered, SessionInfo
from protocol.messages import JsonObject
from record_store import fold
from record_store.backend import (
    CHECKPOINT_EVERY,
    MAIN_AGENT,
    Lease,
    Line,
    LogReader,
    OnDirty,
    SessionPage,
)
from record_store.catalog import decode_info, encode_info, info_of, page_of
from record_store.checkpoint import Position
from record_store.encoder import encode
from record_store.errors import SessionExists, SessionLocked, SessionNotFound, StaleWriter
from record_store.fold import State
from record_store.names import check_id
from record_store.reader import parse
from record_store.records import AgentSpawn, Metadata, Record
from record_store.recovery import Folding
from record_store.replay import state_at, typed


@dataclass(slots=True)
class MemoryLog:
    """Lines without newlines; the first `synced` of them survive a crash."""

    lines: list[bytes] = field(default_factory=list)
    synced: int = 0


@dataclass(slots=True)
class MemoryFiles:
    """One session. `token` is that of the last lease, `holder` who has it now."""

    info: bytes
    logs: dict[str, MemoryLog] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    token: int = 0
    holder: Lease | None = None

    def lease(self, session_id: str) -> Lease:
        self.token += 1
        self.holder = Lease(session_id, self.token, os.getpid(), "memory")
        return self.holder

    def check(self, lease: Lease) -> None:
        if self.holder != lease:
            raise StaleWriter("the session has another writer, or none")


MemoryDisk = dict[str, MemoryFiles]


class MemoryReader:
    def __init__(self, session_id: str, agent_id: str, lines: list[bytes]) -> None:
        """`lines` must not be changed, only followed by more."""
        self.session_id = session_id
        self.agent_id = agent_id
        self._lines = lines
        self._fixed: int | None = len(lines)

    @property
    def location(self) -> str:
        return f"memory:{self.session_id}/{self.agent_id}"

    @property
    def last_line(self) -> int:
        return len(self._lines) if self._fixed is None else self._fixed

    @property
    def unfinished(self) -> int:
        return 0

    def read(self, line: int) -> JsonObject | None:
        return parse(self._lines[line - 1]) if 1 <= line <= self.last_line else None

    def iterate(self, from_line: int = 1, to_line: int | None = None) -> Iterator[Line]:
        first, last = max(1, from_line), self.last_line
        last = last if to_line is None else min(to_line, last)
        return (Line(line, self._lines[line - 1]) for line in range(first, last + 1))


class MemoryJournal(MemoryReader):
    failed = False

    def __init__(self, files: MemoryFiles, lease: Lease, agent_id: str, state: State, on_dirty: OnDirty | None) -> None:
        self._log = files.logs[agent_id]
        super().__init__(lease.session_id, agent_id, self._log.lines)
        self._fixed = None
        self._files = files
        self._on_dirty = on_dirty
        self._saved = 0
        self.lease = lease
        self.state = state
        self.closed = False

    @property
    def dirty(self) -> bool:
        return self._log.synced < len(self._lines)

    @property
    def checkpoint_due(self) -> bool:
        return len(self._lines) - self._saved >= CHECKPOINT_EVERY

    def append(self, *records: Record) -> list[int]:
        self._check()
        first, clean = len(self._lines) + 1, not self.dirty
        self._lines.extend([encode(record, line)[:-1] for line, record in enumerate(records, first)])
        for line, record in enumerate(records, first):
            fold.apply(self.state, record, line)
        if self._on_dirty is not None and records and (clean or self.checkpoint_due):
            self._on_dirty(self)
        return list(range(first, first + len(records)))

    def _check(self) -> None:
        if self.closed:
            raise StaleWriter("the log was closed")
        self._files.check(self.lease)

    def probe(self) -> bool:
        return True

    async def sync(self) -> None:
        if self.dirty:
            self._check()
            self._log.synced = len(self._lines)

    async def checkpoint(self) -> None:
        await self.sync()
        self._saved = len(self._lines)

    async def close(self) -> None:
        try:
            if not self.closed:
                await self.sync()
        except StaleWriter:
            pass
        finally:
            self.closed = True


class MemoryBlobs:
    def __init__(self, blobs: dict[str, bytes]) -> None:
        self._blobs = blobs

    async def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self._blobs[name] = data
        return name

    def get(self, sha256: str) -> bytes | None:
        return self._blobs.get(sha256)


class MemorySession:
    def __init__(self, files: MemoryFiles, session_id: str) -> None:
        self.session_id = session_id
        self.blobs = MemoryBlobs(files.blobs)
        self._files = files

    async def info(self) -> SessionInfo:
        return decode_info(self._files.info) or info_of(await self.state(), self.session_id)

    async def agents(self) -> tuple[str, ...]:
        return tuple(sorted(self._files.logs, key=lambda name: (name != MAIN_AGENT, name)))

    async def log(self, agent_id: str = MAIN_AGENT) -> LogReader:
        if agent_id not in self._files.logs:
            raise SessionNotFound(f"no agent {agent_id}")
        return MemoryReader(self.session_id, agent_id, self._files.logs[agent_id].lines)

    async def state(self, agent_id: str = MAIN_AGENT) -> State:
        return state_at(await self.log(agent_id))


class MemoryOpenSession(MemorySession):
    recovered: tuple[Recovered, ...] = ()

    def __init__(self, files: MemoryFiles, lease: Lease, on_dirty: OnDirty | None) -> None:
        super().__init__(files, lease.session_id)
        self.lease = lease
        self._on_dirty = on_dirty
        self._journals: dict[str, MemoryJournal] = {}

    async def open_agent(self, agent_id: str) -> tuple[MemoryJournal, list[Recovered]]:
        check_id(agent_id)
        self._files.check(self.lease)
        known = self._journals.get(agent_id)
        if known is not None and not known.closed:
            raise SessionLocked(self.session_id, self.lease.pid, self.lease.host)
        log = self._files.logs.setdefault(agent_id, MemoryLog())
        folding = Folding(State(session_id=self.session_id, agent_id=agent_id), Position(0, 0, 0, 0))
        folding.run(MemoryReader(self.session_id, agent_id, log.lines).iterate(), 0)
        journal = MemoryJournal(self._files, self.lease, agent_id, folding.state, self._on_dirty)
        self._journals[agent_id] = journal
        return journal, folding.report()

    async def save_info(self, info: SessionInfo) -> None:
        self._files.check(self.lease)
        self._files.info = encode_info(info)

    async def close(self) -> None:
        for journal in self._journals.values():
            await journal.close()
        if self._files.holder == self.lease:
            self._files.holder = None

    def abandon(self) -> None:
        """The holder is gone, and with it what it did not sync."""
        for journal in self._journals.values():
            journal.closed = True
        if self._files.holder == self.lease:
            self._files.holder = None
            for log in self._files.logs.values():
                del log.lines[log.synced :]


class MemoryStore:
    """One machine's view of a shared `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk | None = None, *, on_dirty: OnDirty | None = None) -> None:
        self._disk: MemoryDisk = {} if disk is None else disk
        self._on_dirty = on_dirty

    async def create(self, session_id: str, info: SessionInfo, *records: Record) -> MemoryOpenSession:
        lines = [encode(record, line)[:-1] for line, record in enumerate(records, 1)]
        return self._add(session_id, MemoryFiles(encode_info(info), {MAIN_AGENT: MemoryLog(lines, len(lines))}))

    def _add(self, session_id: str, files: MemoryFiles) -> MemoryOpenSession:
        if check_id(session_id) in self._disk:
            raise SessionExists(f"session {session_id} exists")
        self._disk[session_id] = files
        return MemoryOpenSession(files, files.lease(session_id), self._on_dirty)

    async def open(self, session_id: str) -> MemoryOpenSession:
        files = self._files(session_id)
        if files.holder is not None:
            raise SessionLocked(session_id, files.holder.pid, files.holder.host)
        return MemoryOpenSession(files, files.lease(session_id), self._on_dirty)

    async def read(self, session_id: str) -> MemorySession:
        return MemorySession(self._files(session_id), session_id)

    def _files(self, session_id: str) -> MemoryFiles:
        if check_id(session_id) not in self._disk:
            raise SessionNotFound(f"no session {session_id}")
        return self._disk[session_id]

    async def list(self, *, cwd: str | None = None, limit: int = 100, cursor: str | None = None) -> SessionPage:
        infos = [await MemorySession(files, name).info() for name, files in self._disk.items()]
        return page_of(infos, cwd, limit, cursor)

    async def delete(self, session_id: str) -> None:
        files = self._files(session_id)
        if files.holder is not None:
            raise SessionLocked(session_id, files.holder.pid, files.holder.host)
        del self._disk[session_id]

    async def fork(
        self, source: str, session_id: str, upto_line: int, metadata: Metadata, info: SessionInfo
    ) -> MemoryOpenSession:
        old = self._files(source)
        logs: dict[str, MemoryLog] = {}
        waiting: list[tuple[str, int | None]] = [(MAIN_AGENT, upto_line)]
        for agent_id, upto in waiting:
            lines = old.logs[agent_id].lines[:upto]
            own = replace(metadata, agent_id=agent_id, forked_from=source, fork_line=len(lines))
            if agent_id != MAIN_AGENT:
                own = replace(own, parent_agent_id=(await MemorySession(old, source).state(agent_id)).parent_agent_id)
            logs[agent_id] = MemoryLog([encode(own, 1)[:-1], *lines[1:]], len(lines))
            waiting += [
                (record.agent_id, None)
                for _, record in typed(Line(n, raw) for n, raw in enumerate(lines, 1))
                if isinstance(record, AgentSpawn) and record.agent_id in old.logs and record.agent_id not in logs
            ]
        return self._add(session_id, MemoryFiles(encode_info(info), logs, dict(old.blobs)))
