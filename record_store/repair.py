"""The end of a log after a crash: whole, torn, or damaged, which are three different things.

    bytes after the last newline      what is done
    none                              nothing: the last line may be damaged, but it was written whole
    a whole record                    its newline is added
    whole records, then a fragment    the fragment is cut, the newline is added
    a fragment                        it is cut

What is cut goes to `wire.jsonl.torn-<n>` first. A crash between the steps is finished at the next opening: the file
has the ending `.pending` until the log holds the `store.repair` record that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from record_store import decoder, failpoints, files
from record_store.encoder import MAX_LINE_BYTES
from record_store.names import LOG

PENDING = ".pending"
_CHUNK = 64 << 10


@dataclass(frozen=True, slots=True)
class Cut:
    """A torn tail that was cut off the log and awaits its `store.repair`; `saved_as` is a name beside the log."""

    bytes: int
    saved_as: str


def settle_tail(fd: int, directory: Path) -> tuple[int, list[Cut]]:
    """Makes the log end in a newline (or be empty); its size, and the cuts that await `finish`: their record is
    missing, or is the last line. Raises `OSError`.

    `fd` is open for reading and appending, and the caller holds the session's lock.
    """
    size = os.fstat(fd).st_size
    start = last_newline(fd, size)
    if start < size:
        keep = _whole_part(fd, start, size)
        if start + keep < size:
            _cut(fd, directory, start + keep, size)
        if keep:
            files.write_all(fd, b"\n", "log.newline")
            keep += 1
        files.sync_data(fd)
        size = start + keep
    return size, _unfinished(directory)


def finish(directory: Path, cut: Cut) -> None:
    """The log names the torn file now: gives it its last name. Raises `OSError`."""
    if failpoints.on:
        failpoints.hit("repair.mark")
    pending = directory / (cut.saved_as + PENDING)
    if pending.exists():
        files.replace(pending, directory / cut.saved_as)
        files.sync_directory(directory)
    if failpoints.on:
        failpoints.hit("repair.done")


def last_newline(fd: int, size: int) -> int:
    """The offset after the last newline within `size` bytes; 0 if there is none."""
    at = size
    while at > 0:
        start = max(0, at - _CHUNK)
        found = files.read_exactly(fd, at - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


def _whole_part(fd: int, start: int, size: int) -> int:
    """How many bytes of the unfinished line belong to whole records, or stand before one."""
    if size - start > MAX_LINE_BYTES:
        return 0
    decoded = decoder.decode_line(files.read_exactly(fd, size - start, start), 0)
    return max((whole.end for whole in decoded.records), default=0)


def _cut(fd: int, directory: Path, start: int, size: int) -> None:
    if not _saved_already(fd, directory, start, size):
        _save(fd, directory / f"{LOG}.torn-{_next_number(directory)}{PENDING}", start, size)
    if failpoints.on:
        failpoints.hit("repair.cut")
    os.ftruncate(fd, start)
    files.sync_data(fd)


def _save(fd: int, target: Path, start: int, size: int) -> None:
    """Copies the bytes in pieces, so that a torn tail of any size fits."""
    if failpoints.on:
        failpoints.hit("torn.open")
    temporary = target.with_name(f".{target.name}{files.TEMPORARY}")
    out = files.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for piece in _pieces(fd, start, size):
            files.write_all(out, piece, "torn.write")
        if failpoints.on:
            failpoints.hit("torn.sync")
        files.sync_data(out)
    finally:
        os.close(out)
    if failpoints.on:
        failpoints.hit("torn.rename")
    files.replace(temporary, target)
    if failpoints.on:
        failpoints.hit("torn.dirsync")
    files.sync_directory(target.parent)
    if failpoints.on:
        failpoints.hit("torn.done")


def _pieces(fd: int, start: int, size: int) -> Iterator[bytes]:
    while start < size:
        piece = files.pread(fd, min(_CHUNK, size - start), start)
        if not piece:
            return
        yield piece
        start += len(piece)


def _saved_already(fd: int, directory: Path, start: int, size: int) -> bool:
    """Whether an earlier opening saved these bytes and died before it shortened the log."""
    for cut in _unfinished(directory):
        if cut.bytes == size - start:
            saved = files.open_file(directory / (cut.saved_as + PENDING), os.O_RDONLY)
            try:
                pairs = zip(_pieces(fd, start, size), _pieces(saved, 0, cut.bytes), strict=False)
                if all(one == other for one, other in pairs):
                    return True
            finally:
                os.close(saved)
    return False


def _unfinished(directory: Path) -> list[Cut]:
    names = [name for name in _torn_names(directory) if name.endswith(PENDING)]
    cuts = [Cut((directory / name).stat().st_size, name.removesuffix(PENDING)) for name in names]
    return sorted(cuts, key=lambda cut: _number(cut.saved_as))


def _next_number(directory: Path) -> int:
    return max((_number(name.removesuffix(PENDING)) for name in _torn_names(directory)), default=0) + 1


def _number(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdigit() else 0


def _torn_names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return [e.name for e in entries if e.name.startswith(f"{LOG}.torn-")]
