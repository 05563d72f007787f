"""A file that is only appended to, by one writer: all or nothing towards errors, and honest about what is on disk.

What is written and not yet synced is kept in memory until a sync succeeds. A sync that failed says nothing about what
reached the disk, and the system may have dropped the data and forgotten about it; asking again would then succeed and
mean nothing. So the same bytes are first written again at the same place, which changes none of them, and only the
sync after that counts.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio

from record_store import failpoints, files
from record_store.errors import StaleWriter, StoreWriteError, write_error
from record_store.lock import SessionLock
from record_store.threads import blocking

MAX_UNSYNCED_BYTES = 64 << 20
"""A write beyond it syncs on the spot: what waits for the group commit is bounded."""

_PROBE_BYTES = 64 << 10


class AppendFile:
    """`fd` is open for reading and appending, and is closed with it; `size` counts whole writes.

    Everything but `sync` is for the loop's thread and does not wait. Raises `StoreWriteError` and `StaleWriter` only.
    """

    def __init__(self, path: Path, fd: int, size: int, lock: SessionLock) -> None:
        self.path = path
        self.size = size
        self._fd: int | None = fd
        self._lock = lock
        self._synced = size
        self._unsynced: list[bytes] = []
        self._unsynced_bytes = 0
        self._cut_needed = False
        self._write_failure: StoreWriteError | None = None
        self._sync_failure: StoreWriteError | None = None
        self._syncing: anyio.Event | None = None

    @property
    def fd(self) -> int:
        if self._fd is None:
            raise StaleWriter("the log was closed")
        return self._fd

    @property
    def closed(self) -> bool:
        return self._fd is None

    @property
    def failed(self) -> bool:
        """The last write or sync failed, and none of its kind has succeeded since."""
        return self._write_failure is not None or self._sync_failure is not None

    @property
    def dirty(self) -> bool:
        return self._synced < self.size

    @property
    def syncing(self) -> bool:
        return self._syncing is not None

    # ------------------------------------------------------------ writing

    def check(self) -> int:
        """The descriptor, if this is still the writer and the file is as it was left."""
        fd = self.fd
        try:
            self._lock.check()
            if self._cut_needed:
                self._cut_back(fd)
            status = os.fstat(fd)
        except OSError as error:
            raise self._write_failed(write_error(error, "the log")) from None
        if status.st_size != self.size or status.st_nlink == 0:
            raise self._write_failed(StoreWriteError("changed", "someone else changed the log: open the session anew"))
        return fd

    def write(self, data: bytes) -> None:
        """Appends all of it, or none and raises. Call `check` before."""
        try:
            files.write_all(self.fd, data, "log.write")
            if failpoints.on:
                failpoints.hit("log.written")
        except OSError as error:
            self._cut_needed = True
            try:
                self._cut_back(self.fd)
            except OSError:
                pass
            raise self._write_failed(write_error(error, "appending to the log")) from None
        self._write_failure = None
        self.size += len(data)
        self._unsynced.append(data)
        self._unsynced_bytes += len(data)

    def relieve(self) -> None:
        """Syncs on the spot if too much waits for it. A failure is for the next `sync` to tell."""
        if self._unsynced_bytes > MAX_UNSYNCED_BYTES and not self.syncing:
            try:
                self._sync_here()
            except StoreWriteError:
                pass

    def _cut_back(self, fd: int) -> None:
        """Removes what a failed write left behind the last whole one."""
        if failpoints.on:
            failpoints.hit("log.truncate")
        os.ftruncate(fd, self.size)
        self._cut_needed = False

    def _write_failed(self, error: StoreWriteError) -> StoreWriteError:
        self._write_failure = error
        return error

    def probe(self) -> bool:
        """Whether writing works (again). After a failure it tries what failed, and may wait for the disk."""
        if not self.failed:
            return True
        try:
            self.check()
            if self._sync_failure is not None and not self.syncing:
                self._sync_here()
            if self._write_failure is not None:
                self._try_writing()
                self._write_failure = None
        except (StoreWriteError, StaleWriter):
            pass
        return not self.failed

    def _try_writing(self) -> None:
        """Whether there is room beside the log, found out the only way that tells."""
        path = self.path.with_name(".probe")
        try:
            files.write_atomic(path, bytes(_PROBE_BYTES), "probe")
        except OSError as error:
            raise self._write_failed(write_error(error, "probing")) from None
        finally:
            files.remove(path)

    # ------------------------------------------------------------ syncing

    async def sync(self) -> None:
        """Returns once all that was written before the call is on disk. Those who wait at the same time share one."""
        target = self.size
        while self._synced < target:
            if self._syncing is None:
                await self._sync_in_thread()
            else:
                await self._syncing.wait()
                if self._sync_failure is not None:
                    raise StoreWriteError(self._sync_failure.reason, "syncing the log failed")

    async def _sync_in_thread(self) -> None:
        fd, count, size, again = self.fd, len(self._unsynced), self.size, self._again()
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
            self._flush(self.fd, self._again())
        except OSError as error:
            raise self._sync_failed(error) from None
        self._covered(len(self._unsynced), self.size)

    def _again(self) -> bytes | None:
        return b"".join(self._unsynced) if self._sync_failure is not None else None

    def _flush(self, fd: int, again: bytes | None) -> None:
        """In any thread. Writes `again` over itself first, through a descriptor that does not append."""
        if os.fstat(fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the log was removed")
        if again is not None:
            if failpoints.on:
                failpoints.hit("log.rewrite")
            other = files.open_file(self.path, os.O_WRONLY)
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

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Frees the descriptor once no sync uses it."""
        while self._syncing is not None:
            await self._syncing.wait()
        self.abandon()

    def abandon(self) -> None:
        """Lets go at once, as a crash would. No thread may be using the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
