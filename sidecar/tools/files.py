"""Files of the working folders: read whole, and replaced in one step. Blocking; standard library only."""

from __future__ import annotations

import os
import secrets
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass

from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused, from_os

MAX_EDIT_BYTES = 64 << 20
"""A file over this is not edited in memory."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Stop:
    """Set when nobody waits for the work any more; long work looks at it between two pieces."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises `Stopped` once it is set."""
        if self._event.is_set():
            raise Stopped


class Stopped(Exception):
    """The caller went away; the work ended without effect."""


@dataclass(frozen=True, slots=True)
class Version:
    """Tells one state of a file from another: device, inode, size, time of change in ns."""

    device: int
    inode: int
    size: int
    changed: int

    @staticmethod
    def of(status: os.stat_result) -> Version:
        return Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file as it was read; `mode` are its permission bits."""

    data: bytes
    version: Version
    mode: int
    owner: tuple[int, int]


def snapshot(confinement: Confinement, path: str) -> Snapshot:
    """Reads a whole regular file at a resolved path. Raises `Refused`, also if it is over `MAX_EDIT_BYTES`."""
    name = confinement.shown(path)
    with confinement.file(path) as fd:
        status = os.fstat(fd)
        if status.st_size > MAX_EDIT_BYTES:
            raise Refused(
                f"`{name}` has {status.st_size:,} bytes; files over {MAX_EDIT_BYTES:,} are not edited whole."
                " Use run_command, e.g. with sed."
            )
        try:
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(MAX_EDIT_BYTES + 1)
        except OSError as error:
            raise from_os(error, name) from None
        owner = (status.st_uid, status.st_gid)
        return Snapshot(data, Version.of(status), stat.S_IMODE(status.st_mode), owner)


def snapshot_if_any(confinement: Confinement, path: str) -> Snapshot | None:
    """The file at a resolved path; None if nothing is there. Raises `Refused` for what is no regular file."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise from_os(error, confinement.shown(path)) from None
    return snapshot(confinement, path)


def replace(confinement: Confinement, path: str, data: bytes, before: Snapshot | None, stop: Stop) -> None:
    """Puts `data` at a resolved path in one step: readers see the old file or the new one, a crash leaves one of them.

    `before` is the file as it was read: its mode and owner are kept, and if it changed since, nothing is written and
    `Refused` is raised. Without it the file is new, missing directories are made, and a file that came into being
    meanwhile is not overwritten.
    """
    parent, name = os.path.split(path)
    shown = confinement.shown(path)
    with confinement.directory(parent, create=before is None) as folder:
        place = _Place(folder, parent)
        scratch = f".sidecar-{secrets.token_hex(8)}.tmp"
        try:
            if before is not None and not place.is_writable(name):
                raise Refused(f"`{shown}` is read-only; change its mode first if it is meant to be changed.")
            _write_scratch(place, scratch, data, before)
            stop.check()
            _check_unchanged(place, name, before, shown)
            os.replace(place.at(scratch), place.at(name), **place.both)
        except OSError as error:
            place.remove(scratch)
            raise from_os(error, shown) from None
        except BaseException:
            place.remove(scratch)
            raise
        place.sync()


class _Place:
    """A directory by descriptor, or by path where descriptors cannot be used."""

    def __init__(self, folder: int, path: str) -> None:
        self._path = path
        self._folder = folder
        self.one = {"dir_fd": folder} if folder >= 0 else {}
        self.both = {"src_dir_fd": folder, "dst_dir_fd": folder} if folder >= 0 else {}

    def at(self, name: str) -> str:
        return name if self._folder >= 0 else os.path.join(self._path, name)

    def is_writable(self, name: str) -> bool:
        return os.access(self.at(name), os.W_OK, dir_fd=self.one.get("dir_fd"))

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self.at(name), **self.one)

    def sync(self) -> None:
        """The new name reaches the disk; a directory that cannot be synced is left to the system."""
        if self._folder < 0:
            return
        with suppress(OSError):
            fd = os.open(".", os.O_RDONLY, dir_fd=self._folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _write_scratch(place: _Place, name: str, data: bytes, before: Snapshot | None) -> None:
    fd = os.open(place.at(name), _NEW, 0o666 if before is None else 0o600, **place.one)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        if before is not None and hasattr(os, "geteuid"):
            if before.owner != (os.geteuid(), os.getegid()):
                with suppress(OSError):
                    os.fchown(fd, *before.owner)
            os.fchmod(fd, before.mode)
        os.fsync(fd)


def _check_unchanged(place: _Place, name: str, before: Snapshot | None, shown: str) -> None:
    try:
        now = Version.of(os.stat(place.at(name), follow_symlinks=False, **place.one))
    except FileNotFoundError:
        now = None
    if now != (None if before is None else before.version):
        raise Refused(f"`{shown}` was changed by something else meanwhile; nothing was written. Read it again first.")
