"""The disk under the memory: what tells a changed file, and one writer among processes.

Every function raises plain `OSError`; `store` converts it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from record_store.files import open_file

LOCK_WAIT_S: Final = 5.0
"""Writers hold the lock for some milliseconds; who waits longer is told that the store is busy."""

RACY_NS: Final = 50_000_000
"""A file changed less than this before it was looked at may change again without a new time stamp: file systems
count in ticks of some milliseconds. Such a sign is not trusted."""


class Sign(NamedTuple):
    """What tells a changed file from an unchanged one without reading it."""

    modified_ns: int
    size: int
    inode: int


def sign_of(status: os.stat_result) -> Sign | None:
    """None: changed so recently that it has to be looked at again."""
    if status.st_mtime_ns > time.time_ns() - RACY_NS:
        return None
    return Sign(status.st_mtime_ns, status.st_size, status.st_ino)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the directory's write lock against other processes and threads; the system frees it when its holder
    dies. Raises `TimeoutError` (an `OSError`) after `LOCK_WAIT_S`."""
    fd = open_file(directory / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _take(fd):
            if time.monotonic() > deadline:
                raise TimeoutError("another process holds the lock")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


if sys.platform == "win32":
    import msvcrt

    def _take(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _take(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
