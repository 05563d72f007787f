"""The agent's own event log, as `record_search` and `record_read` show it to the model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from anyio import to_thread

from protocol.messages import ImagePart, Message, TextPart
from record_store import records as r
from sidecar.tools.patterns import BadPattern, TooSlow, searcher
from sidecar.tools.refusal import Refused
from sidecar.tools.spill import blob_of
from sidecar.tools.text import around, clean, printable

EXCERPT = 200
"""Characters of an excerpt around a hit."""
READERS = frozenset(("record_search", "record_read"))
"""Calls and results of these are left out of searches: they repeat what they found."""

Find = Callable[[str], "tuple[int, int] | None"]
BlobText = Callable[[str], "bytes | None"]


@dataclass(frozen=True, slots=True)
class Stored:
    """One record for reading: `text` is all of it, `searched` the part that searches look at (empty: none).

    `role` is set on messages; `time` is milliseconds since 1970.
    """

    line: int
    type: str
    role: str | None
    time: int
    text: str
    searched: str


class RecordSource(Protocol):
    """The records of one agent, as stored."""

    @property
    def last_line(self) -> int: ...

    def newest_first(self) -> AsyncIterator[Sequence[Stored]]:
        """All records that can be read, the newest first, in batches of some hundred."""
        ...

    async def at(self, line: int) -> Stored | None:
        """The record on this line; None if it is damaged or not there."""
        ...


def stored(record: r.Record, line: int, blob: BlobText) -> Stored:
    """How a record is read. Messages are their text: spilled results whole, calls as `name(arguments)`, images as a
    short note. Other records are their JSON, but a summary is the summary. `blob` gives a blob's bytes."""
    kind = str(record.__struct_config__.tag)
    match record:
        case r.AppendMessage(message=message):
            whole = message_text(message, blob)
            skips = message.role == "tool" and message.name in READERS
            return Stored(line, kind, message.role, record.time, whole, "" if skips else _searched(message, whole))
        case r.HostRevision(messages=messages):
            text = "\n".join(message_text(m, blob) for m in messages)
            return Stored(line, kind, None, record.time, text, text)
        case r.CompactionSummary(summary=summary):
            return Stored(line, kind, None, record.time, clean(summary), clean(summary))
        case _:
            text = clean(msgspec.json.encode(record).decode())
            return Stored(line, kind, None, record.time, text, text if isinstance(record, _SEARCHED_TOO) else "")


_SEARCHED_TOO = (r.TodoUpdate, r.SkillActivate, r.MemoryWrite, r.AgentSpawn, r.ToolApproval)


def message_text(message: Message, blob: BlobText) -> str:
    """All that a message says, as text."""
    parts: list[str] = []
    for part in message.content:
        if isinstance(part, TextPart):
            parts.append(part.text)
        elif isinstance(part, ImagePart):
            parts.append(f"[image, {part.media_type}{', ' + part.blob[:12] if part.blob else ''}]")
    text = "".join(parts)
    if message.role == "tool":
        name = blob_of(text)
        whole = blob(name) if name is not None else None
        text = whole.decode("utf-8", "replace") if whole is not None else text
    calls = [f"{c.name}({c.arguments})" for c in message.tool_calls or ()]
    return clean("\n".join(t for t in (text, *calls) if t))


def _searched(message: Message, whole: str) -> str:
    if not any(c.name in READERS for c in message.tool_calls or ()):
        return whole
    calls = [f"{c.name}({c.arguments})" for c in message.tool_calls or () if c.name not in READERS]
    return clean("\n".join(t for t in (message.text, *calls) if t))


class RecordReader:
    """`RecordAccess` over the stored records; no answer is over `max_bytes`."""

    def __init__(self, source: RecordSource, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes

    async def search(self, query: str, *, regex: bool, limit: int) -> str:
        """Raises `Refused` for a bad or endless expression."""
        find = _finder(query, regex)
        hits: list[str] = []
        size = 0
        try:
            async for batch in self._source.newest_first():
                for hit in await to_thread.run_sync(_search, find, batch, limit - len(hits)):
                    size += len(hit.encode()) + 1
                    if size > self._max_bytes - 200:
                        return _listing(hits, query, "which is all that fits")
                    hits.append(hit)
                if len(hits) >= limit:
                    return _listing(hits, query, "older ones may follow; raise limit to see them")
        except TooSlow:
            raise Refused("This regular expression takes too long; use a simpler one.") from None
        return _listing(hits, query, None)

    async def read(self, line: int, *, offset: int, limit: int) -> str:
        """Raises `Refused` for a line or an offset that is not there."""
        last = self._source.last_line
        if line > last:
            raise Refused(f"There is no line {line}: the log has lines 1 to {last}.")
        record = await self._source.at(line)
        if record is None:
            raise Refused(f"Line {line} of the log is damaged and cannot be read.")
        if offset and offset >= len(record.text):
            raise Refused(f"Line {line} has {len(record.text)} characters: offset {offset} is past its end.")
        return _slice(record, offset, limit, self._max_bytes - 300)


def _finder(query: str, regex: bool) -> Find:
    if regex:
        try:
            return searcher(query, ignore_case=True)
        except BadPattern as bad:
            raise Refused(f"`{printable(query)}` is not a valid regular expression: {bad}.") from None
    plain = re.compile(re.escape(query), re.IGNORECASE)

    def find(text: str) -> tuple[int, int] | None:
        match = plain.search(text)
        return None if match is None else match.span()

    return find


def _search(find: Find, batch: Sequence[Stored], limit: int) -> list[str]:
    hits: list[str] = []
    for record in batch:
        if len(hits) >= limit:
            break
        span = find(record.searched) if record.searched else None
        if span is not None:
            hits.append(f"{_head(record)}: {_excerpt(record.searched, *span)}")
    return hits


def _excerpt(text: str, start: int, end: int) -> str:
    near = around(text, start, min(end, start + EXCERPT), EXCERPT)
    return " ".join(near.split())


def _head(record: Stored) -> str:
    when = datetime.fromtimestamp(record.time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"line {record.line}, {record.type}, {record.role + ', ' if record.role else ''}{when}"


def _listing(hits: Sequence[str], query: str, more: str | None) -> str:
    if not hits:
        return f"Nothing in the log matches `{printable(query)}`."
    count = f"[{len(hits)} {'hit' if len(hits) == 1 else 'hits'}{', ' + more if more else ''}]"
    return "\n".join([*hits, count])


def _slice(record: Stored, offset: int, limit: int, max_bytes: int) -> str:
    text = record.text[offset : offset + limit].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
    end = offset + len(text)
    total = len(record.text)
    way_on = f"; go on with offset {end}" if end < total else ""
    return f"[{_head(record)}: characters {offset} to {end} of {total}{way_on}]\n{text}"
