"""Lines of a text file by number, without loading the file. Blocking; standard library only."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sidecar.tools.textfile import SAMPLE, Encoding, NewLine, binary, newline_of, sniff

CHUNK = 1 << 20
COUNT_TO_THE_END = 64 << 20
"""A file up to this size is read to its end to say how many lines it has."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Lines `first` to `last` (numbers from 1; `last < first`: none). `text` joins them by `\\n` and has no BOM.

    `total` is the number of lines of the file, None where it was not counted. `cut` says that line `last` is too long
    for the budget and is not shown to its end. `odd` says that there were bytes that are no text, shown as U+FFFD.
    """

    text: str
    first: int
    last: int
    total: int | None
    cut: bool
    odd: bool
    encoding: Encoding
    newline: NewLine

    @property
    def is_whole(self) -> bool:
        return self.first == 1 and self.last == self.total and not self.cut


def read_slice(fd: int, name: str, *, first: int, count: int, budget: int, check: Callable[[], None]) -> Slice:
    """Up to `count` lines from line `first`, as many as fit in `budget` bytes of UTF-8 (always one, cut if need be).

    `check` is called between pieces and may raise. Raises `Refused` for binary data.
    """
    head = os.read(fd, SAMPLE)
    encoding = sniff(head)
    if encoding is None:
        raise binary(name)
    newline = newline_of(head[len(encoding.bom) :].decode(encoding.codec, "replace"))
    os.lseek(fd, len(encoding.bom), os.SEEK_SET)
    counts_all = os.fstat(fd).st_size <= COUNT_TO_THE_END
    taker = Taker(first, count, budget, "\r" if newline == "\r" else "\n")
    for piece in _pieces(fd, encoding, check):
        taker.add(piece)
        if taker.full and not counts_all:
            return taker.result(None, encoding, newline)
    return taker.result(taker.end(), encoding, newline)


def slice_text(text: str, *, first: int, count: int, budget: int) -> Slice:
    """The same for a text that is at hand."""
    newline = newline_of(text)
    taker = Taker(first, count, budget, "\r" if newline == "\r" else "\n")
    taker.add(text)
    return taker.result(taker.end(), Encoding(), newline)


def _pieces(fd: int, encoding: Encoding, check: Callable[[], None]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    while True:
        check()
        data = os.read(fd, CHUNK)
        yield decoder.decode(data, final=not data)
        if not data:
            return


class Taker:
    """Picks the wanted lines out of a text that comes in pieces."""

    def __init__(self, first: int, count: int, budget: int, mark: str) -> None:
        self._first, self._count, self._budget, self._mark = first, count, budget, mark
        self._line = 1
        self._open = False
        self._taken: list[str] = []
        self._current = ""
        self.cut = False
        self.full = False

    def add(self, piece: str) -> None:
        if not piece:
            return
        ends = piece.count(self._mark)
        if self.full or self._line + ends < self._first:
            self._line += ends
            self._open = not piece.endswith(self._mark)
            return
        for part in self._lines(piece):
            ended = part.endswith(self._mark)
            if self._line >= self._first and not self.full:
                self._current += part
                if ended or len(self._current) > self._budget:
                    self._close(ended)
            self._line += ended
            self._open = not ended

    def _lines(self, piece: str) -> Iterator[str]:
        start = 0
        while start < len(piece):
            end = piece.find(self._mark, start)
            end = len(piece) if end < 0 else end + 1
            yield piece[start:end]
            start = end

    def _close(self, ended: bool) -> None:
        """The current line is complete, or longer than the budget."""
        line = self._current
        self._current = ""
        if ended:
            line = line[:-1].removesuffix("\r") + "\n"
        size = len(line.encode("utf-8", "replace"))
        if size > self._budget:
            self.full = True
            if not self._taken:
                self.cut = True
                self._taken.append(line.encode("utf-8", "replace")[: self._budget].decode("utf-8", "ignore"))
            return
        self._budget -= size
        self._taken.append(line)
        self.full = len(self._taken) >= self._count

    def end(self) -> int:
        """No more text comes; the number of lines that there were."""
        if self._current and not self.full:
            self._close(False)
        return self._line if self._open else self._line - 1

    def result(self, total: int | None, encoding: Encoding, newline: NewLine) -> Slice:
        text = "".join(self._taken)
        last = self._first + len(self._taken) - 1
        return Slice(text, self._first, last, total, self.cut, "\ufffd" in text, encoding, newline)
