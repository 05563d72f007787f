"""The store over local files: `SessionStore`, `OpenSession` and `StoredSession` of the port."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import anyio

from protocol.info import Recovered, SessionInfo
from record_store import catalog, checkpoint, failpoints, files, forking, lock, recovery, repair
from record_store.backend import MAIN_AGENT, Lease, LogReader, OnDirty, SessionPage
from record_store.blobs import FileBlobs
from record_store.encoder import encode
from record_store.errors import (
    SessionExists,
    SessionLocked,
    SessionNotFound,
    StoreError,
    read_error,
    write_error,
)
from record_store.fold import State
from record_store.index import LineIndex
from record_store.log import FileJournal
from record_store.names import DELETED, STAGED, SessionPaths, check_id
from record_store.reader import LogFile
from record_store.records import Metadata, Record
from record_store.threads import blocking

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LocalSession:
    """A session on disk, for reading. Takes no lock, changes nothing but a lost `session.json`."""

    def __init__(self, paths: SessionPaths, session_id: str, *, writable: bool = False) -> None:
        self.session_id = session_id
        self.blobs = FileBlobs(paths.blobs, writable=writable)
        self._paths = paths

    async def info(self) -> SessionInfo:
        info = await _reading(catalog.read_info, self._paths.info)
        if info is None or info.session_id != self.session_id:
            info = catalog.info_of(await self.state(), self.session_id)
        return info

    async def agents(self) -> tuple[str, ...]:
        return await _reading(forking.agents_of, self._paths)

    async def log(self, agent_id: str = MAIN_AGENT) -> LogReader:
        return await _reading(_stored_log, self._paths, self.session_id, agent_id)

    async def state(self, agent_id: str = MAIN_AGENT) -> State:
        return await _reading(stored_state, self._paths, self.session_id, agent_id)


class LocalOpenSession(LocalSession):
    """A session whose lock this process holds."""

    def __init__(
        self,
        paths: SessionPaths,
        held: lock.SessionLock,
        recovered: Sequence[Recovered],
        on_dirty: OnDirty | None,
    ) -> None:
        super().__init__(paths, held.lease.session_id, writable=True)
        self.recovered = tuple(recovered)
        self._lock = held
        self._on_dirty = on_dirty
        self._journals: dict[str, FileJournal | None] = {}

    @property
    def lease(self) -> Lease:
        return self._lock.lease

    async def open_agent(self, agent_id: str) -> tuple[FileJournal, list[Recovered]]:
        path = self._paths.log(agent_id)
        if agent_id in self._journals and not self._is_closed(agent_id):
            raise SessionLocked(self.session_id, self.lease.pid, self.lease.host)
        self._lock.check()
        self._journals[agent_id] = None
        try:
            opened = await _writing("opening a log", recovery.open_log, path, self.session_id, agent_id)
        except BaseException:
            del self._journals[agent_id]
            raise
        journal = FileJournal(path, opened, self._lock, self._on_dirty)
        self._journals[agent_id] = journal
        return journal, opened.recovered

    def _is_closed(self, agent_id: str) -> bool:
        journal = self._journals[agent_id]
        return journal is not None and journal.closed

    async def save_info(self, info: SessionInfo) -> None:
        self._lock.check()
        await _writing("writing session.json", catalog.write_info, self._paths.info, info)

    async def close(self) -> None:
        failure: StoreError | None = None
        with anyio.CancelScope(shield=True):
            for journal in list(self._journals.values()):
                try:
                    if journal is not None:
                        await journal.close()
                except StoreError as error:
                    failure = failure or error
            self._lock.release()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Lets go of everything at once, as a crash would."""
        for journal in self._journals.values():
            if journal is not None:
                journal.abandon()
        self._lock.release()


class LocalStore:
    """All sessions under `home`. Makes directories as it needs them; `on_dirty` is handed to every journal."""

    def __init__(self, home: Path, *, on_dirty: OnDirty | None = None) -> None:
        self._sessions = home / "sessions"
        self._on_dirty = on_dirty
        self._catalog = catalog.Catalog(self._sessions, self._rebuild)
        self._listing = anyio.Lock()
        self._put_back: set[str] = set()
        self._swept = False

    async def create(self, session_id: str, info: SessionInfo, *records: Record) -> LocalOpenSession:
        check_id(session_id)
        encoded = b"".join(encode(record, line) for line, record in enumerate(records, 1))

        def fill(staged: SessionPaths) -> None:
            forking.write_log(staged.log(MAIN_AGENT), encoded)
            catalog.write_info(staged.info, info)

        return await self._publish(session_id, fill)

    async def fork(
        self, source: str, session_id: str, upto_line: int, metadata: Metadata, info: SessionInfo
    ) -> LocalOpenSession:
        check_id(session_id)
        old = await self._existing(source)

        def fill(staged: SessionPaths) -> None:
            forking.copy_session(old, staged, upto_line, metadata)
            catalog.write_info(staged.info, info)

        return await self._publish(session_id, fill)

    async def _publish(self, session_id: str, fill: Callable[[SessionPaths], None]) -> LocalOpenSession:
        held = await _writing("making a session", self._stage_and_rename, session_id, fill)
        return LocalOpenSession(self._paths(session_id), held, (), self._on_dirty)

    def _stage_and_rename(self, session_id: str, fill: Callable[[SessionPaths], None]) -> lock.SessionLock:
        """The whole session is made under another name, locked, and appears by one rename."""
        self._sweep()
        final = self._paths(session_id)
        if os.path.lexists(final.root):
            raise SessionExists(f"session {session_id} exists")
        if failpoints.on:
            failpoints.hit("create.stage")
        staged = SessionPaths(self._sessions / f"{STAGED}{secrets.token_hex(8)}")
        held: lock.SessionLock | None = None
        try:
            files.make_directory(staged.root)
            held = lock.acquire(staged, session_id)
            fill(staged)
            if failpoints.on:
                failpoints.hit("create.sync")
            files.sync_directory(staged.root)
            if sys.platform == "win32":
                held.release()
            if failpoints.on:
                failpoints.hit("create.rename")
            _rename_new(staged.root, final.root, session_id)
        except BaseException:
            if held is not None:
                held.release()
            shutil.rmtree(staged.root, ignore_errors=True)
            raise
        if failpoints.on:
            failpoints.hit("create.dirsync")
        files.sync_directory(self._sessions)
        return held if held.held else lock.acquire(final, session_id)

    async def open(self, session_id: str) -> LocalOpenSession:
        paths = await self._existing(session_id)
        held = await _writing("locking the session", lock.acquire, paths, session_id)
        try:
            recovered = await _writing("opening the session", _mend_session, paths, session_id)
        except BaseException:
            held.release()
            raise
        if session_id in self._put_back:
            # A list came first: who opens the session is told all the same.
            self._put_back.discard(session_id)
            recovered = recovered or [_REBUILT]
        return LocalOpenSession(paths, held, recovered, self._on_dirty)

    async def read(self, session_id: str) -> LocalSession:
        return LocalSession(await self._existing(session_id), session_id)

    async def list(self, *, cwd: str | None = None, limit: int = 100, cursor: str | None = None) -> SessionPage:
        async with self._listing:
            return await _reading(self._catalog.page, cwd, limit, cursor)

    async def delete(self, session_id: str) -> None:
        paths = await self._existing(session_id)
        await _writing("deleting the session", self._delete, paths, session_id)

    def _delete(self, paths: SessionPaths, session_id: str) -> None:
        held = lock.acquire(paths, session_id)
        aside = self._sessions / f"{DELETED}{secrets.token_hex(8)}"
        try:
            if sys.platform == "win32":
                held.release()
            if failpoints.on:
                failpoints.hit("delete.rename")
            os.rename(paths.root, aside)
            if failpoints.on:
                failpoints.hit("delete.dirsync")
            files.sync_directory(self._sessions)
        finally:
            held.release()
        if failpoints.on:
            failpoints.hit("delete.remove")
        shutil.rmtree(aside, ignore_errors=True)

    async def _existing(self, session_id: str) -> SessionPaths:
        paths = self._paths(check_id(session_id))
        if not await _reading(paths.agents.is_dir):
            raise SessionNotFound(f"no session {session_id}")
        return paths

    def _paths(self, session_id: str) -> SessionPaths:
        return SessionPaths(self._sessions / session_id)

    def _sweep(self) -> None:
        """Once: removes what crashes left of sessions that were being made or removed."""
        files.make_directory(self._sessions)
        if self._swept:
            return
        self._swept = True
        with os.scandir(self._sessions) as entries:
            names = [e.name for e in entries if e.name.startswith((STAGED, DELETED))]
        for name in names:
            path = self._sessions / name
            if name.startswith(DELETED) or lock.is_free(SessionPaths(path)):
                shutil.rmtree(path, ignore_errors=True)

    def _rebuild(self, session_id: str) -> SessionInfo | None:
        """For the list: from the log, and put back if nobody holds the session."""
        paths = self._paths(session_id)
        try:
            info = catalog.info_of(stored_state(paths, session_id, MAIN_AGENT), session_id)
            held = lock.acquire(paths, session_id)
        except SessionLocked:
            return info
        except (StoreError, OSError):
            return None
        try:
            catalog.write_info(paths.info, info)
            self._put_back.add(session_id)
        except OSError:
            pass
        finally:
            held.release()
        return info


_REBUILT = Recovered(kind="session_file", detail="session.json was lost or damaged and is rebuilt from the log")


def stored_state(paths: SessionPaths, session_id: str, agent_id: str) -> State:
    """The fold of an agent's log as it is now, whoever writes it. Blocking; raises `OSError`, `SessionNotFound`."""
    fd = _open_stored(paths, session_id, agent_id)
    try:
        end = repair.last_newline(fd, os.fstat(fd).st_size)
        folding, _ = recovery.fold_log(fd, paths.checkpoint(agent_id), end, session_id, agent_id)
        return folding.state
    finally:
        os.close(fd)


def _stored_log(paths: SessionPaths, session_id: str, agent_id: str) -> LogFile:
    fd = _open_stored(paths, session_id, agent_id)
    try:
        size = os.fstat(fd).st_size
        end = repair.last_newline(fd, size)
        index = LineIndex()
        mark = checkpoint.mark(paths.checkpoint(agent_id), fd, end)
        if mark is not None:
            index.remember(mark.seq + 1, mark.offset)
        return LogFile(paths.log(agent_id), session_id, agent_id, end, index.count(fd, end), index, size - end)
    finally:
        os.close(fd)


def _open_stored(paths: SessionPaths, session_id: str, agent_id: str) -> int:
    try:
        return files.open_file(paths.log(agent_id), os.O_RDONLY)
    except FileNotFoundError:
        raise SessionNotFound(f"no agent {agent_id} in session {session_id}") from None


def _mend_session(paths: SessionPaths, session_id: str) -> list[Recovered]:
    """What a crash did to the session's own files. For the holder of the lock."""
    files.remove_leftovers(paths.root)
    files.remove_leftovers(paths.blobs)
    info = catalog.read_info(paths.info)
    if info is not None and info.session_id == session_id:
        return []
    try:
        catalog.write_info(paths.info, catalog.info_of(stored_state(paths, session_id, MAIN_AGENT), session_id))
    except SessionNotFound:
        return [Recovered(kind="session_file", detail="session.json was lost or damaged, and the main log is gone")]
    return [_REBUILT]


def _rename_new(source: Path, target: Path, session_id: str) -> None:
    try:
        os.rename(source, target)
    except OSError as error:
        if os.path.lexists(target):
            raise SessionExists(f"session {session_id} exists") from None
        raise error


async def _reading(call: Callable[[*Ts], T], *args: *Ts) -> T:
    try:
        return await blocking(call, *args)
    except OSError as error:
        raise read_error(error, "reading the store") from None


async def _writing(what: str, call: Callable[[*Ts], T], *args: *Ts) -> T:
    try:
        return await blocking(call, *args)
    except OSError as error:
        raise write_error(error, what) from None
