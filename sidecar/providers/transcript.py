"""The messages of a request, as bytes that only grow. Pure: no I/O but the codec's reading of blobs.

    Message -> Codec (one dialect's JSON) -> Transcript (order, pairing, groups) -> Tape (bytes, hash)

A transcript is well formed whatever it is fed: a call that the next message does not answer gets a result that says
so, and a result that answers no open call becomes text of the user. A well-formed conversation passes unchanged.

Results of one assistant message are a *group*. What a dialect cannot put into it (images in the chat dialect) waits
for the group's end. The end is written when the next message comes; a request made before that carries the same bytes
provisionally (`closing`), so that what was sent stays a prefix of what is sent next.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from protocol.messages import Message
from sidecar.providers.port import HasMessage

SEAL_BYTES = 128 << 10
"""Pieces are joined to chunks of about this size, so that a request is made of few of them."""

LARGE_PIECE = 1 << 20
"""A piece of this size (a large image) is a chunk of its own and is not copied."""

HASH_BYTES = 8


class Codec(Protocol):
    """One dialect's JSON of single messages. Each method gives whole JSON values; the same input, the same bytes.

    `group_open` and `group_close` stand around the results of one assistant message. `mark_back` is how many bytes
    before the end of a user-role message a cache mark goes (0: the dialect has no marks).
    """

    group_open: bytes
    group_close: bytes
    mark_back: int

    def opening(self) -> bytes | None:
        """What has to stand before an assistant message that comes first; None if nothing has to."""
        ...

    def user(self, message: Message) -> bytes: ...

    def assistant(self, message: Message) -> bytes | None:
        """None when the message is blank."""
        ...

    def result(self, message: Message) -> bytes: ...

    def beside_result(self, message: Message) -> list[bytes]:
        """Content parts of a result that go into a user message after the group."""
        ...

    def missing_result(self, call_id: str) -> bytes: ...

    def late_result(self, message: Message) -> list[bytes]:
        """Content parts for a result that answers no open call."""
        ...

    def user_parts(self, parts: Sequence[bytes]) -> bytes:
        """A user message of ready content parts."""
        ...


class Tape:
    """Bytes that only grow, in few chunks, with a running hash."""

    __slots__ = ("_hash", "_seal_bytes", "_sealed", "_starts", "_tail", "size")

    def __init__(self, seal_bytes: int = SEAL_BYTES) -> None:
        self._seal_bytes = seal_bytes
        self.size = 0
        self._sealed: list[bytes] = []
        self._starts: list[int] = []
        # Copied, not kept: serialised pieces come with up to eight times their size of spare room.
        self._tail = bytearray()
        self._hash = blake2b(digest_size=HASH_BYTES)

    def write(self, piece: bytes) -> None:
        self._hash.update(piece)
        if len(piece) >= LARGE_PIECE:
            self.seal()
            self._starts.append(self.size)
            self._sealed.append(piece)
            self.size += len(piece)
            return
        self._tail += piece
        self.size += len(piece)
        if len(self._tail) >= self._seal_bytes:
            self.seal()

    def seal(self) -> None:
        if self._tail:
            self._starts.append(self.size - len(self._tail))
            self._sealed.append(bytes(self._tail))
            self._tail = bytearray()

    def cut(self, start: int, length: int) -> bytes:
        """The bytes of one piece; call `seal` before."""
        i = bisect_right(self._starts, start) - 1
        offset = start - self._starts[i]
        return self._sealed[i][offset : offset + length]

    def hash_with(self, closing: bytes) -> str:
        state = self._hash.copy()
        state.update(closing)
        return state.hexdigest()

    def chunks(self, marks: Sequence[int], mark: bytes, closing: bytes) -> list[bytes]:
        """All bytes and `closing` after them, with `mark` put in at each of the ascending offsets `marks`."""
        rest = bytes(self._tail) + closing
        starts = [*self._starts, self.size - len(self._tail)]
        out: list[bytes] = []
        for start, chunk in zip(starts, [*self._sealed, rest], strict=True):
            at = start
            for offset in marks:
                if at < offset <= start + len(chunk):
                    out += (chunk[at - start : offset - start], mark)
                    at = offset
            left = chunk if at == start else chunk[at - start :]
            if left:
                out.append(left)
        return out


class Closing(Struct, frozen=True):
    """What ends an open group: its bytes, and where a cache mark of its user messages would go."""

    data: bytes
    marks: tuple[int, ...]


class Transcript:
    """The serialised messages of one agent. Appending costs the new message only."""

    __slots__ = ("_beside", "_codec", "_group", "_lengths", "_marks", "_messages", "_open", "_starts", "tape")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.tape = Tape()
        self._messages: list[Message] = []
        self._starts = array("q")
        self._lengths = array("q")
        self._open: dict[str, None] = {}
        self._group = False
        self._beside: list[bytes] = []
        self._marks: list[int] = []

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def marks(self) -> tuple[int, ...]:
        """Where the marks of the last two user-role messages go, the open group's left out."""
        return tuple(self._marks)

    def append(self, message: Message, known: bytes | None = None) -> None:
        """Takes in the next message. `known` are its bytes if this very message was serialised before."""
        start, length = 0, 0
        if message.role == "tool":
            if message.tool_call_id in self._open:
                start, length = self._append_result(message, known)
            else:
                self._append_late(message)
        else:
            self.close()
            data = known
            if data is None:
                assistant = message.role == "assistant"
                data = self._codec.assistant(message) if assistant else self._codec.user(message)
            if data is not None:
                start, length = self._append_message(message, data), len(data)
        self._messages.append(message)
        self._starts.append(start)
        self._lengths.append(length)

    def _append_message(self, message: Message, data: bytes) -> int:
        if message.role == "assistant":
            opening = self._codec.opening() if self.tape.size == 0 else None
            if opening is not None:
                self._unit(opening)
                self._mark(self.tape.size)
            self._open = {c.id: None for c in message.tool_calls or ()}
        start = self._unit(data)
        if message.role != "assistant":
            self._mark(self.tape.size)
        return start

    def _append_result(self, message: Message, known: bytes | None) -> tuple[int, int]:
        codec = self._codec
        data = codec.result(message) if known is None else known
        self._beside += codec.beside_result(message)
        del self._open[message.tool_call_id or ""]
        if self._group:
            self.tape.write(b",")
            start = self.tape.size
            self.tape.write(data)
        else:
            start = self._unit(codec.group_open + data) + len(codec.group_open)
        self._group = True
        return start, len(data)

    def _append_late(self, message: Message) -> None:
        parts = self._codec.late_result(message)
        if self._group or self._open:
            self._beside += parts
        else:
            self._unit(self._codec.user_parts(parts))
            self._mark(self.tape.size)

    def closing(self) -> Closing:
        """What a request has to end with now, and what is written when the next message comes."""
        if not (self._group or self._open):
            return Closing(b"", ())
        codec, out, marks = self._codec, bytearray(), []
        group = self._group
        for call_id in self._open:
            if group:
                out += b","
            else:
                out += (b"," if self.tape.size else b"") + codec.group_open
                group = True
            out += codec.missing_result(call_id)
        out += codec.group_close
        marks.append(self.tape.size + len(out) - codec.mark_back)
        if self._beside:
            out += b"," + codec.user_parts(self._beside)
            marks.append(self.tape.size + len(out) - codec.mark_back)
        return Closing(bytes(out), tuple(marks))

    def close(self) -> None:
        """Ends the open group, if there is one."""
        end = self.closing()
        if end.data:
            self.tape.write(end.data)
        self._marks = [*self._marks, *end.marks][-2:]
        self._open = {}
        self._group = False
        self._beside = []

    def pieces(self) -> Iterable[tuple[Message, bytes]]:
        """Every message that has bytes of its own, with them."""
        self.tape.seal()
        for message, start, length in zip(self._messages, self._starts, self._lengths, strict=True):
            if length:
                yield message, self.tape.cut(start, length)

    def _unit(self, data: bytes) -> int:
        if self.tape.size:
            self.tape.write(b",")
        start = self.tape.size
        self.tape.write(data)
        return start

    def _mark(self, end: int) -> None:
        self._marks = [*self._marks, end - self._codec.mark_back][-2:]


def rebuilt(old: Transcript, codec: Codec, entries: Sequence[HasMessage]) -> Transcript:
    """A transcript of other entries; messages that are the same object keep their bytes."""
    known = {id(message): (message, data) for message, data in old.pieces()}
    new = Transcript(codec)
    for entry in entries:
        message = entry.message
        found = known.get(id(message))
        new.append(message, found[1] if found is not None and found[0] is message else None)
    return new
