"""The raw conversation: every message that ever entered the context, whatever became of the context.

Shadowed messages are in it, with the content that they entered with; so are cleared ones. Undone messages and those
that a host's revision replaced are out. What a compaction wrote (summary, notes) never was in it.

It is built along the log and keeps no text: where each message stands, and a fingerprint of what it says.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from protocol.messages import ImagePart, Message, TextPart
from record_store import records as r
from record_store.backend import LogReader
from record_store.replay import typed
from record_store.threads import blocking


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A message: its line, its place among that line's messages, its id and its fingerprint."""

    line: int
    index: int
    message_id: str
    fingerprint: bytes


def fingerprint(message: Message) -> bytes:
    """16 bytes over role and content: equal for messages that say the same, whatever their ids and times. An image
    counts by its bytes, whether they are in the message or in a blob."""
    digest = hashlib.blake2b(message.role.encode(), digest_size=16)
    for part in message.content:
        match part:
            case TextPart():
                data = part.text.encode("utf-8", "surrogatepass")
                digest.update(b"t%d:" % len(data))
                digest.update(data)
            case ImagePart():
                digest.update(b"i" + _image_hash(part).encode())
    return digest.digest()


def _image_hash(part: ImagePart) -> str:
    if part.blob is not None or part.data is None:
        return part.blob or ""
    try:
        return hashlib.sha256(base64.b64decode(part.data)).hexdigest()
    except binascii.Error:
        return hashlib.sha256(part.data.encode("utf-8", "surrogatepass")).hexdigest()


class Transcript:
    """Feed it every record of one log in order, or let `follow` do it. `line` is the last line that it has seen."""

    def __init__(self) -> None:
        self.line = 0
        self._messages_on_line = 0
        self._refs: list[Ref] = []
        self._context: list[str] = []
        self._pending: dict[str, Ref] = {}
        self._fork_line = 0
        self._spanned: int | None = None

    def __len__(self) -> int:
        return len(self._refs)

    def refs(self, start: int = 0, stop: int | None = None) -> list[Ref]:
        return self._refs[start:stop]

    def apply(self, record: r.Record, line: int) -> None:
        """Takes in one record. Mirrors what the fold does to the context, and never raises."""
        if line != self.line:
            self.line, self._messages_on_line = line, 0
        if 0 < self._fork_line < line:
            self._fork_line = 0
            self._pending.clear()
            self._spanned = None
        match record:
            case r.AppendMessage():
                ref = self._ref(record.message)
                if record.queued is None:
                    self._enter(ref)
                else:
                    self._pending[ref.message_id] = ref
            case r.TurnBegin():
                self._enter_waiting(record.queued)
            case r.StepBegin():
                self._enter_waiting(record.steers)
            case r.CompactionStart():
                self._spanned = len(self._context)
            case r.CompactionCancel():
                self._spanned = None
            case r.ApplyCompaction(message_count=count):
                self._splice(count if self._spanned is None else min(count, self._spanned), record.replacement)
                self._spanned = None
            case r.Rewrite(action="uncompact"):
                self._splice(record.message_count, record.replacement)
            case r.Undo():
                self._drop_from(record.keep)
            case r.HostRevision():
                self._drop_from(record.keep)
                for message in record.messages:
                    self._enter(self._ref(message))
            case r.Clear():
                self._context.clear()
            case r.Metadata():
                self._fork_line = record.fork_line or 0

    def _ref(self, message: Message) -> Ref:
        self._messages_on_line += 1
        return Ref(self.line, self._messages_on_line, message.id, fingerprint(message))

    def _enter(self, ref: Ref) -> None:
        self._refs.append(ref)
        self._context.append(ref.message_id)

    def _enter_waiting(self, ids: tuple[str, ...]) -> None:
        for message_id in ids:
            ref = self._pending.pop(message_id, None)
            if ref is not None:
                self._enter(ref)

    def _splice(self, count: int, replacement: tuple[r.Replacement, ...]) -> None:
        """What is new in the context is either brought back, and then known, or no part of the transcript."""
        before = set(self._context[:count])
        self._context[:count] = [
            item.message.id if isinstance(item, r.New) else item.message_id
            for item in replacement
            if isinstance(item, r.New) or item.message_id in before
        ]

    def _drop_from(self, keep: int) -> None:
        gone = set(self._context[keep:])
        del self._context[keep:]
        while self._refs and self._refs[-1].message_id in gone:
            gone.discard(self._refs.pop().message_id)
        if gone:
            self._refs = [ref for ref in self._refs if ref.message_id not in gone]


async def follow(transcript: Transcript, log: LogReader) -> None:
    """Brings the transcript up to the log's last line; costs what is new. One at a time for one transcript."""
    if transcript.line < log.last_line:
        await blocking(_follow, transcript, log)


def _follow(transcript: Transcript, log: LogReader) -> None:
    last = log.last_line
    for line, record in typed(log.iterate(transcript.line + 1, last)):
        transcript.apply(record, line)
    transcript.line = max(transcript.line, last)


async def read_messages(
    transcript: Transcript, log: LogReader, start: int = 0, stop: int | None = None
) -> list[Message]:
    """Messages `start` to `stop` of the transcript, with the content that they entered with."""
    return await blocking(_read, transcript.refs(start, stop), log)


async def read_transcript(log: LogReader) -> list[Message]:
    """The whole raw conversation of a log."""
    transcript = Transcript()
    await follow(transcript, log)
    return await read_messages(transcript, log)


def _read(refs: list[Ref], log: LogReader) -> list[Message]:
    """In one pass where messages stand close together, which they mostly do."""
    wanted = {(ref.line, ref.index) for ref in refs}
    found: dict[tuple[int, int], Message] = {}
    for first, last in _runs(sorted({ref.line for ref in refs})):
        before, index = 0, 0
        for line, record in typed(log.iterate(first, last)):
            index = index if line == before else 0
            before = line
            for message in _messages(record):
                index += 1
                if (line, index) in wanted:
                    found[line, index] = message
    return [found[ref.line, ref.index] for ref in refs if (ref.line, ref.index) in found]


def _messages(record: r.Record) -> tuple[Message, ...]:
    match record:
        case r.AppendMessage():
            return (record.message,)
        case r.HostRevision():
            return record.messages
    return ()


def _runs(lines: list[int]) -> list[tuple[int, int]]:
    """Stretches of lines in which a gap is cheaper to read over than to seek past."""
    runs: list[tuple[int, int]] = []
    for line in lines:
        if runs and line - runs[-1][1] <= 64:
            runs[-1] = (runs[-1][0], line)
        else:
            runs.append((line, line))
    return runs
