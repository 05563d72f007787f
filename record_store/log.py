"""One agent's log, open for its single writer: records to lines, lines to state. Local files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import anyio

from protocol.messages import JsonObject
from record_store import checkpoint, files, fold
from record_store.appending import AppendFile
from record_store.backend import CHECKPOINT_EVERY, Lease, Line, OnDirty
from record_store.encoder import encode
from record_store.errors import StaleWriter, read_error
from record_store.fold import State
from record_store.index import LineIndex
from record_store.lock import SessionLock
from record_store.names import CHECKPOINT
from record_store.reader import LogFile, parse
from record_store.records import Record
from record_store.recovery import OpenedLog
from record_store.threads import blocking


class FileJournal:
    """A `Journal` over one file, which it closes in the end."""

    def __init__(self, path: Path, opened: OpenedLog, lock: SessionLock, on_dirty: OnDirty | None) -> None:
        self._file = AppendFile(path, opened.fd, opened.end.offset, lock)
        self._lock = lock
        self._state = opened.state
        self._on_dirty = on_dirty
        self._index = LineIndex()
        self._index.remember(opened.end.seq + 1, opened.end.offset)
        self._line = opened.end.seq
        self._saved_line = opened.saved
        self._last_bytes = opened.end.last_bytes
        self._saving = anyio.Lock()

    # ------------------------------------------------------------ what it is

    @property
    def session_id(self) -> str:
        return self._lock.lease.session_id

    @property
    def agent_id(self) -> str:
        return self._file.path.parent.name

    @property
    def location(self) -> str:
        return str(self._file.path)

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
        return self._file.closed

    @property
    def failed(self) -> bool:
        return self._file.failed

    @property
    def dirty(self) -> bool:
        return self._file.dirty

    @property
    def checkpoint_due(self) -> bool:
        return self._line - self._saved_line >= CHECKPOINT_EVERY

    # ------------------------------------------------------------ append

    def append(self, *records: Record) -> list[int]:
        self._file.check()
        first, clean = self._line + 1, not self.dirty
        encoded = [encode(record, line) for line, record in enumerate(records, first)]
        if not encoded:
            return []
        self._file.write(encoded[0] if len(encoded) == 1 else b"".join(encoded))
        self._last_bytes = len(encoded[-1])
        self._line += len(encoded)
        for line, record in enumerate(records, first):
            fold.apply(self._state, record, line)
        self._file.relieve()
        if self._on_dirty is not None and (clean or self.checkpoint_due):
            self._on_dirty(self)
        return list(range(first, self._line + 1))

    def probe(self) -> bool:
        return self._file.probe()

    async def sync(self) -> None:
        await self._file.sync()

    # ------------------------------------------------------------ read

    def read(self, line: int) -> JsonObject | None:
        if not 1 <= line <= self._line:
            return None
        fd, size = self._file.fd, self._file.size
        try:
            start = self._index.locate(fd, line, size)
            length = 4096
            while True:
                raw, newline, _ = files.read_exactly(fd, min(length, size - start), start).partition(b"\n")
                if newline or start + len(raw) >= size:
                    return parse(raw)
                length *= 8
        except OSError as error:
            raise read_error(error, "reading the log") from None

    def iterate(self, from_line: int = 1, to_line: int | None = None) -> Iterator[Line]:
        return self.reader().iterate(from_line, to_line)

    def reader(self) -> LogFile:
        """The log as it is now, for another thread."""
        return LogFile(self._file.path, self.session_id, self.agent_id, self._file.size, self._line, self._index)

    # ------------------------------------------------------------ checkpoint and end

    async def checkpoint(self) -> None:
        async with self._saving:
            await self.sync()
            if self._line == self._saved_line:
                return
            line, size, last_bytes = self._line, self._file.size, self._last_bytes
            state = checkpoint.snapshot(self._state)
            self._saved_line = line
            path = self._file.path.with_name(CHECKPOINT)
            await blocking(_save, self._file.fd, path, state, size, line, last_bytes)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if not self.closed:
                    self._lock.check()
                    await self.checkpoint()
            except StaleWriter:
                pass
            finally:
                async with self._saving:
                    await self._file.close()

    def abandon(self) -> None:
        """Lets go at once, without sync or checkpoint, as a crash would. Nothing may be under way."""
        self._file.abandon()


def _save(fd: int, path: Path, state: State, offset: int, line: int, last_bytes: int) -> None:
    """In a thread. A checkpoint that cannot be written is one that is not there."""
    try:
        last = files.read_exactly(fd, last_bytes, offset - last_bytes)
        checkpoint.save(path, state, checkpoint.Position(offset, line, last_bytes, crc32(last)))
    except OSError:
        pass
