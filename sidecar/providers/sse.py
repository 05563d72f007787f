"""Server-sent events: bytes to events by the letter of the standard. Pure: no I/O.

Lines end at LF, CR or CRLF and nowhere else; a leading BOM is dropped; `data` lines are joined by LF; a comment is no
event; an event without `data` is none. Data stays bytes, so a character that is split between two chunks is whole
again here. The work is linear in the bytes fed, however they are cut.
"""

from __future__ import annotations

from msgspec import Struct

MAX_EVENT_BYTES = 32 << 20

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One event. `name` is empty when the stream gave none (the standard's `message`)."""

    name: str
    data: bytes


class EventTooLarge(Exception):
    """One event, or one line, is over the limit."""


class SseDecoder:
    """Feed it chunks as they come; it remembers what is not whole yet, at most `max_event_bytes` of it."""

    __slots__ = ("_bom", "_buffer", "_data", "_limit", "_name", "_scanned", "_size", "_skip_lf", "last_event_id")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._skip_lf = False
        self._bom = True
        self.last_event_id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes, in order. Raises `EventTooLarge`."""
        buffer = self._buffer
        buffer += chunk
        if self._bom and not self._drop_bom():
            return []
        events: list[SseEvent] = []
        start, scan = 0, self._scanned
        lf = cr = -2  # -2: not looked for yet; -1: none up to the end of the buffer
        while True:
            if self._skip_lf and start < len(buffer):
                self._skip_lf = False
                if buffer[start] == 0x0A:
                    start += 1
                    scan = max(scan, start)
            if lf != -1 and lf < scan:
                lf = buffer.find(b"\n", scan)
            if cr != -1 and cr < scan:
                cr = buffer.find(b"\r", scan)
            if lf == -1 and cr == -1:
                break
            end = lf if cr == -1 else cr if lf == -1 else min(lf, cr)
            self._line(bytes(buffer[start:end]), events)
            self._skip_lf = end == cr
            start = scan = end + 1
        del buffer[:start]
        self._scanned = len(buffer)
        if self._size + len(buffer) > self._limit:
            raise EventTooLarge
        return events

    def finish(self) -> SseEvent | None:
        """The last event if the stream ended in the middle of it; whether it is whole only its data can tell."""
        events: list[SseEvent] = []
        if self._buffer and not self._bom:
            self._line(bytes(self._buffer), events)
        self._buffer.clear()
        self._scanned = 0
        self._line(b"", events)
        return events[-1] if events else None

    def _drop_bom(self) -> bool:
        """Whether the start of the stream is decided."""
        head = bytes(self._buffer[:3])
        if len(head) < 3 and _BOM.startswith(head):
            return False
        self._bom = False
        if head == _BOM:
            del self._buffer[:3]
        return True

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(SseEvent(self._name, data))
                self._data = []
                self._size = 0
            self._name = ""
            return
        field, colon, value = line.partition(b":")
        if colon and not field:
            return
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                raise EventTooLarge
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\x00" not in value:
            self.last_event_id = value.decode(errors="replace")
