"""Where lines begin in a log: sparse, built only as far as someone looks, never the log itself.

Every 256th line is remembered as it is passed. A line is found from the nearest one remembered before it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

from record_store import files

STRIDE = 256
CHUNK = 256 << 10


class LineIndex:
    """Line numbers and offsets of one log that only grows. Thread-safe."""

    def __init__(self) -> None:
        self._lines = [1]
        self._offsets = [0]
        self._mutex = threading.Lock()

    def remember(self, line: int, offset: int) -> None:
        """`line` begins at `offset`. Kept where nothing near is known."""
        with self._mutex:
            at = bisect_right(self._lines, line)
            if self._lines[at - 1] + STRIDE <= line:
                self._lines.insert(at, line)
                self._offsets.insert(at, offset)

    def nearest(self, line: int) -> tuple[int, int]:
        """The last remembered line that is not after `line`, and its offset."""
        with self._mutex:
            at = bisect_right(self._lines, line) - 1
            return self._lines[at], self._offsets[at]

    def locate(self, fd: int, line: int, end: int) -> int:
        """The offset at which `line` begins; `end` if the log has fewer lines before that offset."""
        at, offset = self.nearest(line)
        while at < line and offset < end:
            chunk = files.pread(fd, min(CHUNK, end - offset), offset)
            if not chunk:
                return end
            at, offset = self._walk(chunk, at, offset, line)
        return offset if at == line else end

    def _walk(self, chunk: bytes, at: int, offset: int, line: int) -> tuple[int, int]:
        """Passes the line ends in the chunk that begins inside line `at`; where it stopped."""
        position = 0
        while at < line:
            found = chunk.find(b"\n", position)
            if found < 0:
                return at, offset + len(chunk)
            position = found + 1
            at += 1
            if at % STRIDE == 0:
                self.remember(at, offset + position)
        return at, offset + position

    def count(self, fd: int, end: int) -> int:
        """How many line ends there are before `end`. Reads what was not passed before; remembers nothing."""
        with self._mutex:
            line, offset = self._lines[-1], self._offsets[-1]
        count = line - 1
        while offset < end:
            chunk = files.pread(fd, min(CHUNK, end - offset), offset)
            if not chunk:
                break
            count += chunk.count(b"\n")
            offset += len(chunk)
        return count
