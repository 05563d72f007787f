"""Reading a log without writing it: streams of lines in bounded memory, and single lines by number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from protocol.messages import JsonObject
from record_store import decoder, files
from record_store.backend import Line
from record_store.encoder import MAX_LINE_BYTES
from record_store.errors import read_error
from record_store.index import LineIndex

CHUNK = 1 << 20


def stream(fd: int, start: int, end: int, first_line: int) -> Iterator[Line]:
    """The lines between two offsets, of which `start` is the beginning of `first_line`. What follows the last newline
    is left out. A line over `MAX_LINE_BYTES` comes out empty: it could not be held. Raises `OSError`."""
    line, offset = first_line, start
    parts: list[bytes] = []
    held = 0
    while offset < end:
        chunk = files.pread(fd, min(CHUNK, end - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        pieces = chunk.split(b"\n")
        if len(pieces) > 1 and parts:
            parts.append(pieces[0])
            pieces[0] = b"".join(parts) if held + len(pieces[0]) <= MAX_LINE_BYTES else b""
            parts, held = [], 0
        rest = pieces.pop()
        for piece in pieces:
            yield Line(line, piece)
            line += 1
        held += len(rest)
        if held <= MAX_LINE_BYTES:
            parts.append(rest)
        else:
            parts.clear()


def parse(raw: bytes) -> JsonObject | None:
    """The first whole record of a line as a plain object, `seq` and `crc` included."""
    if decoder.decode(raw) is None:
        found = decoder.decode_line(raw, 0).records
        if not found:
            return None
        raw = raw[found[0].start : found[0].end]
    return decoder.as_object(raw)


class LogFile:
    """The whole lines that a log file had when this was made. A `LogReader`; opens the file only while it reads."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        agent_id: str,
        end: int,
        last_line: int,
        index: LineIndex,
        unfinished: int = 0,
    ) -> None:
        self._path = path
        self._end = end
        self._index = index
        self.session_id = session_id
        self.agent_id = agent_id
        self.last_line = last_line
        self.unfinished = unfinished

    @property
    def location(self) -> str:
        return str(self._path)

    def read(self, line: int) -> JsonObject | None:
        for found in self.iterate(line, line):
            return parse(found.raw)
        return None

    def iterate(self, from_line: int = 1, to_line: int | None = None) -> Iterator[Line]:
        first = max(1, from_line)
        last = self.last_line if to_line is None else min(to_line, self.last_line)
        return _lines(self._path, self._index, first, last, self._end)


def _lines(path: Path, index: LineIndex, first: int, last: int, end: int) -> Iterator[Line]:
    if first > last:
        return
    try:
        fd = files.open_file(path, os.O_RDONLY)
        try:
            for line in stream(fd, index.locate(fd, first, end), end, first):
                yield line
                if line.line >= last:
                    return
        finally:
            os.close(fd)
    except OSError as error:
        raise read_error(error, "reading the log") from None
