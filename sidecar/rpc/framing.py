"""Bytes to frames and back: newline-delimited JSON, or `Content-Length` headers. Pure; no I/O.

A decoder finds out by itself which of the two a connection speaks, from its first bytes that are not blank. It keeps at
most one frame of the allowed size: a larger one is counted, sampled and thrown away as it arrives, and the connection
goes on behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Framing = Literal["lines", "headers"]

SAMPLE_BYTES = 4096
"""How much of the head and of the tail of a frame that is too large is kept, to find an `id` in."""

MAX_HEADER_BYTES = 8192
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_PREFIX = b"content-length:"
_HEADER_LINE = re.compile(rb"[!-9;-~]+[ \t]*:[^\n]*\r?\n")
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"(?im)^content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*\r?$")
_RESYNC = re.compile(rb"(?i)content-length[ \t]{0,8}:[ \t]{0,8}\d{1,15}[ \t]{0,8}\r?\n")
_RESYNC_KEEP = 64
_BLANKS = re.compile(rb"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Oversized:
    """A frame over the limit, after its end was seen. `head` and `tail` are samples of it."""

    head: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes between frames that are no header block. Reported once for each run of such bytes."""


Raw = bytes | bytearray
Decoded = Raw | Oversized | Malformed


class Decoder:
    """Incremental. `max_frame_bytes` may change at any time and holds for frames that are not complete yet."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.framing: Framing | None = None
        self._undecided = b""
        self._inner: _Lines | _Headers | None = None

    def feed(self, data: bytes) -> list[Decoded]:
        """The frames that these bytes complete, in order, blank lines left out."""
        if self._inner is None:
            data = (self._undecided + data).lstrip(_BLANK)
            if not self._decide(data):
                self._undecided = data
                return []
            self._undecided = b""
            if data.startswith(_BOM):
                data = data[len(_BOM) :]
        assert self._inner is not None
        return self._inner.feed(data, self.max_frame_bytes)

    def finish(self) -> list[Decoded]:
        """At the end of the stream: a last line that lacks only its newline is a frame."""
        if self._inner is not None:
            return self._inner.finish()
        return [self._undecided] if self._undecided else []

    def _decide(self, data: bytes) -> bool:
        start = data[: len(_PREFIX)].lower()
        if not start or (start != _PREFIX and _PREFIX.startswith(start)) or (start != _BOM and _BOM.startswith(start)):
            return False
        self.framing = "headers" if start == _PREFIX else "lines"
        self._inner = _Headers() if start == _PREFIX else _Lines()
        return True


class _Frame:
    """One frame in the making. Past the limit only its samples are kept."""

    __slots__ = ("_buffer", "_head", "_tail")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._tail = b""

    def add(self, piece: bytes, limit: int) -> None:
        if self._head is None:
            self._buffer += piece
            if len(self._buffer) <= limit:
                return
            self._head = bytes(self._buffer[: min(SAMPLE_BYTES, limit)])
            self._tail = bytes(self._buffer[-SAMPLE_BYTES:])
            self._buffer = bytearray()
            return
        self._tail = (self._tail + piece[-SAMPLE_BYTES:])[-SAMPLE_BYTES:]

    def take(self) -> bytearray | Oversized:
        """The whole frame, or its samples; then it is empty again."""
        if self._head is not None:
            done: bytearray | Oversized = Oversized(self._head, self._tail)
        else:
            done = self._buffer
        self._buffer, self._head, self._tail = bytearray(), None, b""
        return done


class _Lines:
    """Frames end at `\\n` and nowhere else; lines of white space are none."""

    def __init__(self) -> None:
        self._frame = _Frame()

    def feed(self, data: bytes, limit: int) -> list[Decoded]:
        out: list[Decoded] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._frame.add(data[start:end], limit)
            start = end + 1
            self._take(out)
        if start < len(data):
            self._frame.add(data[start:], limit)
        return out

    def finish(self) -> list[Decoded]:
        out: list[Decoded] = []
        self._take(out)
        return out

    def _take(self, out: list[Decoded]) -> None:
        frame = self._frame.take()
        if isinstance(frame, Oversized) or (frame and not frame.isspace()):
            out.append(frame)


class _Headers:
    """`Content-Length: n`, other headers, an empty line, `n` bytes. Blank lines between frames are skipped."""

    def __init__(self) -> None:
        self._kept = b""
        self._frame = _Frame()
        self._missing = 0
        self._state: Literal["header", "body", "lost"] = "header"

    def feed(self, data: bytes, limit: int) -> list[Decoded]:
        out: list[Decoded] = []
        data = self._kept + data
        self._kept = b""
        at: int | None = 0
        while at is not None:
            if self._state == "body":
                at = self._body(data, at, limit, out)
            elif self._state == "header":
                at = self._header(data, at, out)
            else:
                at = self._resync(data, at)
        return out

    def finish(self) -> list[Decoded]:
        """A frame that was announced and did not come is no frame."""
        return []

    def _body(self, data: bytes, at: int, limit: int, out: list[Decoded]) -> int | None:
        piece = data[at : at + self._missing]
        self._missing -= len(piece)
        self._frame.add(piece, limit)
        if self._missing:
            return None
        self._state = "header"
        out.append(self._frame.take())
        return at + len(piece)

    def _header(self, data: bytes, at: int, out: list[Decoded]) -> int | None:
        """Reads a header block that begins at `at`; where its body begins, or None when more bytes are needed."""
        blanks = _BLANKS.match(data, at)
        at = blanks.end() if blanks else at
        block = data[at : at + MAX_HEADER_BYTES]
        end = _HEADER_END.search(block)
        position = 0
        while (line := _HEADER_LINE.match(block, position)) is not None:
            position = line.end()
        if end is not None and position >= end.start() and (length := _LENGTH.search(block[: end.end()])) is not None:
            self._missing = int(length.group(1))
            self._state = "body"
            return at + end.end()
        if end is None and b"\n" not in block[position:] and len(block) < MAX_HEADER_BYTES:
            self._kept = block
            return None
        out.append(Malformed())
        self._state = "lost"
        return at + 1

    def _resync(self, data: bytes, at: int) -> int | None:
        """Skips to the next thing that looks like a length; keeps only what could be its beginning."""
        found = _RESYNC.search(data, at)
        if found is None:
            self._kept = data[max(at, len(data) - _RESYNC_KEEP) :]
            return None
        self._state = "header"
        return found.start()


def encode(framing: Framing | None, payload: bytes) -> bytes:
    """One frame around a serialised message. While the framing is unknown it is a line that ends in CRLF.

    A client that expects headers then takes the line for an unknown header of the frame after it.
    """
    if framing == "headers":
        return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
    return payload + (b"\n" if framing == "lines" else b"\r\n")
