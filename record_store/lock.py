"""One writer for a session: a lock of the operating system on `lock` in its directory, with who holds it inside.

The system frees the lock when its holder dies, however it dies: there is nothing to wait for and nothing to guess
from a pid. The file holds one line of 256 bytes, `{"token":n,"pid":p,"host":"h"}` filled up with spaces, written in
one piece. `token` is the fencing token: larger than every one before, and no smaller than the time in microseconds,
so that it grows even when the file was lost or torn. `pid` is 0 when it was given back.

A holder that lost its right (the file was removed or replaced, or a system without working locks let a second one in)
finds another token there and is refused.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

import orjson

from record_store import failpoints, files
from record_store.backend import Lease
from record_store.errors import SessionLocked, SessionNotFound, StaleWriter
from record_store.names import SessionPaths

_SIZE = 256
_MAX_TOKEN = 1 << 62
"""No clock and no count of holders gets there: a larger one was never written."""
_READ_AGAIN = 25
"""How often a holder that has not yet written its name is looked at again, 2 ms apart."""

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """Locked bytes cannot be read by others there, so the lock is on a byte that the file does not have."""

    def _take(fd: int) -> bool:
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _drop(fd: int) -> None:
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        except OSError:
            pass

else:
    import fcntl

    def _take(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _drop(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class _Held:
    """Locks of this process by device and inode: some file systems grant a process its own lock twice."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._keys: set[tuple[int, int]] = set()

    def add(self, key: tuple[int, int]) -> bool:
        with self._mutex:
            fresh = key not in self._keys
            self._keys.add(key)
            return fresh

    def discard(self, key: tuple[int, int]) -> None:
        with self._mutex:
            self._keys.discard(key)

    def __contains__(self, key: tuple[int, int]) -> bool:
        with self._mutex:
            return key in self._keys


_held = _Held()


class SessionLock:
    """A lock that is held. `lease` names its holder, this process."""

    def __init__(self, fd: int, key: tuple[int, int], lease: Lease) -> None:
        self._fd: int | None = fd
        self._key = key
        self._line = _line(lease)
        self.lease = lease

    @property
    def held(self) -> bool:
        return self._fd is not None

    def check(self) -> None:
        """Raises `StaleWriter` once the lock is no longer ours. Costs about a microsecond."""
        fd = self._fd
        if fd is None:
            raise StaleWriter("the session was closed")
        if os.fstat(fd).st_nlink == 0 or files.pread(fd, _SIZE, 0) != self._line:
            raise StaleWriter("the session has another writer")

    def release(self) -> None:
        """Gives it back. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            if files.pread(fd, _SIZE, 0) == self._line:
                _write(fd, _line(Lease(self.lease.session_id, self.lease.token, 0, "")))
        except OSError:
            pass
        _held.discard(self._key)
        try:
            _drop(fd)
        finally:
            os.close(fd)


def acquire(paths: SessionPaths, session_id: str) -> SessionLock:
    """Takes the lock or raises `SessionLocked` at once; `SessionNotFound` if the directory is not (or no longer) there.
    `OSError` if the file cannot be made or written."""
    if _key(paths) in _held:
        raise SessionLocked(session_id, os.getpid(), _host())
    try:
        fd = files.open_file(paths.lock, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        raise SessionNotFound(f"no session {session_id}") from None
    status = os.fstat(fd)
    key = (status.st_dev, status.st_ino)
    ours = _held.add(key)
    try:
        if not ours or not _take(fd):
            raise _locked(fd, session_id)
        if _key(paths) != key:
            raise SessionNotFound(f"session {session_id} is being removed")
        token = max(_read(fd)[0] + 1, time.time_ns() // 1_000)
        lease = Lease(session_id, token, os.getpid(), _host())
        _write(fd, _line(lease))
        if failpoints.on:
            failpoints.hit("lock.taken")
    except BaseException:
        if ours:
            _held.discard(key)
        os.close(fd)
        raise
    return SessionLock(fd, key, lease)


def is_free(paths: SessionPaths) -> bool:
    """Whether nobody holds it at this moment. Only for directories that nobody would open (staged ones)."""
    try:
        lock = acquire(paths, "-")
    except (SessionLocked, SessionNotFound, OSError):
        return False
    lock.release()
    return True


def _key(paths: SessionPaths) -> tuple[int, int]:
    """Device and inode of the lock file that is there now. Closing a second descriptor of a lock that this process
    holds would free it on some file systems, hence the look before it is opened."""
    try:
        status = os.stat(paths.lock)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _host() -> str:
    return socket.gethostname()[:64]


def _locked(fd: int, session_id: str) -> SessionLocked:
    for _ in range(_READ_AGAIN):
        _token, pid, host = _read(fd)
        if pid:
            return SessionLocked(session_id, pid, host)
        time.sleep(0.002)
    return SessionLocked(session_id, 0, "")


def _read(fd: int) -> tuple[int, int, str]:
    """Token, pid and host; zeros if they cannot be read."""
    try:
        value = orjson.loads(files.pread(fd, _SIZE, 0))
        token, pid = int(value["token"]), int(value["pid"])
        return (token, pid, str(value["host"])) if 0 <= token < _MAX_TOKEN else (0, 0, "")
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return 0, 0, ""


def _line(lease: Lease) -> bytes:
    text = orjson.dumps({"token": lease.token, "pid": lease.pid, "host": lease.host})
    return text.ljust(_SIZE - 1) + b"\n"


def _write(fd: int, line: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    files.write_all(fd, line, "lock.write")
