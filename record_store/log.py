"""One agent's log, open for its single writer: append, sync, read. Local files.

What is written and not yet synced is kept in memory until a sync succeeds. A sync that failed says nothing about what
reached the disk, and the system may have dropped the data and forgotten about it; asking again would then succeed and
mean nothing. So the same bytes are first written again at the same place, which changes none of them, and only the
sync after that counts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import anyio

from protocol.messages import JsonObject
from record_store import checkpoint, failpoints, files, fold
from record_store.backend import CHECKPOINT_EVERY, Lease, Line, OnDirty
from record_store.encoder import encode
from record_store.errors import StaleWriter, StoreWriteError, read_error, write_error
from record_store.fold import State
from record_store.index import LineIndex
from record_store.lock import SessionLock
from record_store.names import CHECKPOINT
from record_store.reader import LogFile, parse
from record_store.records import Record
from record_store.recovery import OpenedLog
from record_store.threads import blocking

MAX_UNSYNCED_BYTES = 64 << 20
"""An append beyond it syncs on the spot: what waits for the group commit is bounded."""

_PROBE_BYTES = 64 << 10


class FileJournal:
    """A `Journal` over one file, which it closes in the end."""

    def __init__(self, path: Path, opened: OpenedLog, lock: SessionLock, on_dirty: OnDirty | None) -> None:
        self._path = path
        self._fd: int | None = opened.fd
        self._lock = lock
        self._state = opened.state
        self._on_dirty = on_dirty
        self._index = LineIndex()
        self._index.remember(opened.end.seq + 1, opened.end.offset)
        self._size = self._synced = opened.end.offset
        self._line = opened.end.seq
        self._saved_line = opened.saved
        self._last_bytes = opened.end.last_bytes
        self._unsynced: list[bytes] = []
        self._unsynced_bytes = 0
        self._cut_needed = False
        self._rewrite_needed = False
        self._write_failure: StoreWriteError | None = None
        self._sync_failure: StoreWriteError | None = None
        self._syncing: anyio.Event | None = None
        self._saving = anyio.Lock()

    # ------------------------------------------------------------ what it is

    @property
    def session_id(self) -> str:
        return self._lock.lease.session_id

    @property
    def agent_id(self) -> str:
        return self._path.parent.name

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def state(self) -> State:
        return self._state

    @property
    def lease(self) -> Lease:
        return self._lock.lease

    @property
    def last_line(self) -> int:
        return self._line

    @property
    def unfinished(self) -> int:
        return 0

    @property
    def closed(self) -> bool:
        return self._fd is None

    @property
    def failed(self) -> bool:
        return self._write_failure is not None or self._sync_failure is not None

    @property
    def dirty(self) -> bool:
        return self._synced < self._size

    @property
    def checkpoint_due(self) -> bool:
        return self._line - self._saved_line >= CHECKPOINT_EVERY

    # ------------------------------------------------------------ append

    def append(self, *records: Record) -> list[int]:
        fd = self._writable()
        first = self._line + 1
        encoded = [encode(record, line) for line, record in enumerate(records, first)]
        if not encoded:
            return []
        clean = not self.dirty
        self._write(fd, encoded[0] if len(encoded) == 1 else b"".join(encoded))
        self._last_bytes = len(encoded[-1])
        self._line += len(encoded)
        for line, record in enumerate(records, first):
            fold.apply(self._state, record, line)
        self._commit_later(clean)
        return list(range(first, self._line + 1))

    def _commit_later(self, was_clean: bool) -> None:
        if self._unsynced_bytes > MAX_UNSYNCED_BYTES and self._syncing is None:
            try:
                self._sync_here()
            except StoreWriteError:
                pass
        if self._on_dirty is not None and (was_clean or self.checkpoint_due):
            self._on_dirty(self)

    def _writable(self) -> int:
        """The descriptor, if this is still the writer and the file is as it was left."""
        fd = self._descriptor()
        try:
            self._lock.check()
            if self._cut_needed:
                self._cut_back(fd)
            status = os.fstat(fd)
        except OSError as error:
            raise self._write_failed(write_error(error, "the log")) from None
        if status.st_size != self._size or status.st_nlink == 0:
            raise self._write_failed(StoreWriteError("changed", "someone else changed the log: open the session anew"))
        return fd

    def _descriptor(self) -> int:
        if self._fd is None:
            raise StaleWriter("the log was closed")
        return self._fd

    def _write(self, fd: int, data: bytes) -> None:
        try:
            files.write_all(fd, data, "log.write")
            if failpoints.on:
                failpoints.hit("log.written")
        except OSError as error:
            self._cut_needed = True
            try:
                self._cut_back(fd)
            except OSError:
                pass
            raise self._write_failed(write_error(error, "appending to the log")) from None
        self._write_failure = None
        self._size += len(data)
        self._unsynced.append(data)
        self._unsynced_bytes += len(data)

    def _cut_back(self, fd: int) -> None:
        """Removes what a failed write left behind the last whole line."""
        if failpoints.on:
            failpoints.hit("log.truncate")
        os.ftruncate(fd, self._size)
        self._cut_needed = False

    def _write_failed(self, error: StoreWriteError) -> StoreWriteError:
        self._write_failure = error
        return error

    def probe(self) -> bool:
        if not self.failed:
            return True
        try:
            self._writable()
            if self._sync_failure is not None and self._syncing is None:
                self._sync_here()
            if self._write_failure is not None:
                self._try_writing()
                self._write_failure = None
        except (StoreWriteError, StaleWriter):
            pass
        return not self.failed

    def _try_writing(self) -> None:
        """Whether there is room beside the log, found out the only way that tells."""
        path = self._path.with_name(".probe")
        try:
            files.write_atomic(path, bytes(_PROBE_BYTES), "probe")
        except OSError as error:
            raise self._write_failed(write_error(error, "probing")) from None
        finally:
            files.remove(path)

    # ------------------------------------------------------------ sync

    async def sync(self) -> None:
        target = self._size
        while self._synced < target:
            if self._syncing is None:
                await self._sync_in_thread()
            else:
                await self._syncing.wait()
                if self._sync_failure is not None:
                    raise StoreWriteError(self._sync_failure.reason, "syncing the log failed")

    async def _sync_in_thread(self) -> None:
        fd = self._descriptor()
        count, size, again = len(self._unsynced), self._size, self._again()
        done = self._syncing = anyio.Event()
        try:
            await blocking(self._flush, fd, again)
        except OSError as error:
            raise self._sync_failed(error) from None
        else:
            self._covered(count, size)
        finally:
            self._syncing = None
            done.set()

    def _sync_here(self) -> None:
        """On the spot; only while no other sync runs."""
        try:
            self._flush(self._descriptor(), self._again())
        except OSError as error:
            raise self._sync_failed(error) from None
        self._covered(len(self._unsynced), self._size)

    def _again(self) -> bytes | None:
        return b"".join(self._unsynced) if self._sync_failure is not None else None

    def _flush(self, fd: int, again: bytes | None) -> None:
        """In any thread. Writes `again` over itself first, through a descriptor that does not append."""
        if again is not None:
            if failpoints.on:
                failpoints.hit("log.rewrite")
            other = files.open_file(self._path, os.O_WRONLY)
            try:
                if not os.path.samestat(os.fstat(other), os.fstat(fd)):
                    raise FileNotFoundError(errno.ENOENT, "the log was replaced")
                os.lseek(other, self._synced, os.SEEK_SET)
                files.write_all(other, again, "log.write")
            finally:
                os.close(other)
        if failpoints.on:
            failpoints.hit("log.sync")
        files.sync_data(fd)
        if failpoints.on:
            failpoints.hit("log.synced")

    def _sync_failed(self, error: OSError) -> StoreWriteError:
        self._sync_failure = write_error(error, "syncing the log")
        return self._sync_failure

    def _covered(self, count: int, size: int) -> None:
        self._synced = size
        self._sync_failure = None
        self._unsynced_bytes -= sum(map(len, self._unsynced[:count]))
        del self._unsynced[:count]

    # ------------------------------------------------------------ read

    def read(self, line: int) -> JsonObject | None:
        if not 1 <= line <= self._line:
            return None
        fd = self._descriptor()
        try:
            start = self._index.locate(fd, line, self._size)
            length = 4096
            while True:
                raw, newline, _ = files.read_exactly(fd, min(length, self._size - start), start).partition(b"\n")
                if newline or start + len(raw) >= self._size:
                    return parse(raw)
                length *= 8
        except OSError as error:
            raise read_error(error, "reading the log") from None

    def iterate(self, from_line: int = 1, to_line: int | None = None) -> Iterator[Line]:
        return self.reader().iterate(from_line, to_line)

    def reader(self) -> LogFile:
        """The log as it is now, for another thread."""
        return LogFile(self._path, self.session_id, self.agent_id, self._size, self._line, self._index)

    # ------------------------------------------------------------ checkpoint and end

    async def checkpoint(self) -> None:
        async with self._saving:
            await self.sync()
            if self._line == self._saved_line:
                return
            line, size, last_bytes = self._line, self._size, self._last_bytes
            state = checkpoint.snapshot(self._state)
            self._saved_line = line
            await blocking(_save, self._descriptor(), self._path.with_name(CHECKPOINT), state, size, line, last_bytes)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if self._fd is not None:
                    self._lock.check()
                    await self.checkpoint()
            except StaleWriter:
                pass
            finally:
                await self._let_go()

    async def _let_go(self) -> None:
        """Frees the descriptor once no thread uses it."""
        async with self._saving:
            while self._syncing is not None:
                await self._syncing.wait()
            self.abandon()

    def abandon(self) -> None:
        """Lets go at once, without sync or checkpoint, as a crash would. No sync may be under way."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _save(fd: int, path: Path, state: State, offset: int, line: int, last_bytes: int) -> None:
    """In a thread. A checkpoint that cannot be written is one that is not there."""
    try:
        last = files.read_exactly(fd, last_bytes, offset - last_bytes)
        checkpoint.save(path, state, checkpoint.Position(offset, line, last_bytes, crc32(last)))
    except OSError:
        pass
