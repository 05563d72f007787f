"""Reading files whose paths come from others: only real files, never more than asked for, never waiting for a pipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from record_store.files import open_file


def read_regular(path: Path, limit: int, *, follow: bool = False) -> tuple[bytes, os.stat_result] | None:
    """At most `limit` bytes of a regular file, and its status as it was opened (`st_size` tells whether that is all
    of it); None for anything else. A link as the last component is an `OSError` unless `follow`. Raises `OSError`."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    fd = open_file(path, flags)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        pieces: list[bytes] = []
        while limit > 0 and (piece := os.read(fd, min(limit, 1 << 20))):
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces), status
    finally:
        os.close(fd)
