"""What the operating system is asked for, in one place: private files, durable writes, positioned reads.

Every function raises plain `OSError`; callers convert it. Names of failpoints are handed in.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import threading
import time
from pathlib import Path

from record_store import failpoints

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
TEMPORARY = ".tmp"
"""How the name of a file ends that was to be renamed; one that is left over can be removed."""

_BINARY: int = getattr(os, "O_BINARY", 0)


def open_file(path: Path, flags: int) -> int:
    """A descriptor that children do not inherit; a file that it makes is private, whatever the umask."""
    fd = os.open(path, flags | _BINARY, PRIVATE_FILE)
    if flags & os.O_CREAT and sys.platform != "win32":
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) != PRIVATE_FILE:
                os.fchmod(fd, PRIVATE_FILE)
        except OSError:
            pass  # someone else's file, or a file system without modes
    return fd


def make_directory(path: Path) -> None:
    """Makes the directory and what is missing above it, all of it private, whatever the umask."""
    if not path.is_dir():
        make_directory(path.parent)
        try:
            path.mkdir(PRIVATE_DIRECTORY)
        except FileExistsError:
            if not path.is_dir():
                raise
            return
        try:
            if stat.S_IMODE(path.stat().st_mode) != PRIVATE_DIRECTORY:
                path.chmod(PRIVATE_DIRECTORY)
        except OSError:
            pass  # a file system without modes


def write_all(fd: int, data: bytes, point: str) -> None:
    """Writes all of it: one call, unless the system takes less. On an error an unknown part is written."""
    taken = failpoints.write(point, fd, data) if failpoints.on else os.write(fd, data)
    if taken == len(data):
        return
    rest = memoryview(data)[taken:]
    while rest:
        taken = failpoints.write(point, fd, rest) if failpoints.on else os.write(fd, rest)
        rest = rest[taken:]


if sys.platform == "win32":
    _seeking = threading.Lock()

    def pread(fd: int, count: int, offset: int) -> bytes:
        with _seeking:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, count)

    def sync_data(fd: int) -> None:
        os.fsync(fd)

    def sync_directory(path: Path) -> None:
        """NTFS journals its directories; there is no call for it."""

else:
    pread = os.pread

    if sys.platform == "darwin":
        import fcntl

        def sync_data(fd: int) -> None:
            """`fsync` stops at the drive's cache there; this does not. Some file systems do not know it."""
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            except OSError:
                os.fsync(fd)

    else:

        def sync_data(fd: int) -> None:
            os.fdatasync(fd)

    def sync_directory(path: Path) -> None:
        """Names that were made, renamed or removed in it are on disk. Some file systems cannot and need not."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)


def read_exactly(fd: int, count: int, offset: int) -> bytes:
    """`count` bytes from `offset`, fewer only at the end of the file."""
    data = pread(fd, count, offset)
    while len(data) < count:
        more = pread(fd, count - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def replace(source: Path, target: Path) -> None:
    """Renames over what is there. Windows refuses while someone reads the target: tried again for a moment."""
    for wait in (0.01, 0.05, 0.2) if sys.platform == "win32" else ():
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(wait)
    return os.replace(source, target)


def write_atomic(path: Path, data: bytes, point: str, *, durable: bool = True) -> None:
    """Replaces a file whole: a reader, also after a crash, finds the old bytes or the new ones.

    Without `durable` a loss of power can bring back the old ones or leave garbage: for files whose reader checks them.
    """
    if failpoints.on:
        failpoints.hit(f"{point}.open")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY}")
    fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            write_all(fd, data, f"{point}.write")
            if durable:
                if failpoints.on:
                    failpoints.hit(f"{point}.sync")
                sync_data(fd)
        finally:
            os.close(fd)
        if failpoints.on:
            failpoints.hit(f"{point}.rename")
        replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if failpoints.on:
        failpoints.hit(f"{point}.dirsync")
    if durable:
        sync_directory(path.parent)
    if failpoints.on:
        failpoints.hit(f"{point}.done")


def remove(path: Path) -> None:
    """Removes a file if it is there and can be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


def remove_leftovers(directory: Path) -> None:
    """Removes temporary files that a crash left. Only for who holds the lock."""
    try:
        with os.scandir(directory) as entries:
            left = [e.name for e in entries if e.name.startswith(".") and e.name.endswith(TEMPORARY)]
    except OSError:
        return
    for name in left:
        remove(directory / name)
