"""Raw bytes beside the log, each under its SHA-256: written once, never changed, checked when read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from record_store import failpoints, files
from record_store.errors import StoreWriteError, write_error
from record_store.names import is_sha256
from record_store.threads import blocking


class FileBlobs:
    """The blobs of one session. `writable` is off for who only reads the session."""

    def __init__(self, directory: Path, *, writable: bool) -> None:
        self._directory = directory
        self._writable = writable

    async def put(self, data: bytes) -> str:
        if not self._writable:
            raise StoreWriteError("denied", "the session is open for reading only")
        try:
            return await blocking(self._put, data)
        except OSError as error:
            raise write_error(error, "storing a blob") from None

    def _put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._directory / name
        if self._size(path) != len(data):
            self._make_directory()
            files.write_atomic(path, data, "blob")
        return name

    def _make_directory(self) -> None:
        if not self._directory.is_dir():
            files.make_directory(self._directory)
            files.sync_directory(self._directory.parent)

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return -1

    def get(self, sha256: str) -> bytes | None:
        if not is_sha256(sha256):
            return None
        try:
            data = (self._directory / sha256).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None


def link_all(source: Path, target: Path) -> None:
    """Gives `target` all blobs of `source`: the same files where the system can, else copies. Raises `OSError`."""
    try:
        with os.scandir(source) as entries:
            names = [e.name for e in entries if is_sha256(e.name)]
    except FileNotFoundError:
        return
    files.make_directory(target)
    for name in names:
        if failpoints.on:
            failpoints.hit("fork.link")
        try:
            os.link(source / name, target / name)
        except OSError:
            files.write_atomic(target / name, (source / name).read_bytes(), "blob")
    files.sync_directory(target)
