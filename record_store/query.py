"""Looking for records in a log: by line, by type, by text. Bounded in time, in memory and in what it returns.

A record's text is its line as stored, and every string in it as it reads: a text with quotes or line breaks is found
although the line holds them escaped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from protocol.messages import JsonObject
from record_store import decoder
from record_store.backend import Line, LogReader
from record_store.errors import InvalidQuery
from record_store.matching import Matcher, matcher
from record_store.records import Record
from record_store.threads import blocking

MAX_LIMIT = 1_000

_BATCH = 256
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one page may cost. After so many bytes or seconds it ends where it is, possibly empty, with a cursor to go
    on. It holds at most `page_bytes`, but one record at least."""

    scanned_bytes: int = 512 << 20
    seconds: float = 3.0
    page_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Lines are inclusive. `types` None or empty: all. `grep` is a plain substring (case folded), with `regex` a
    pattern. `cursor` is that of the page before; everything else must be as it was then."""

    from_line: int | None = None
    to_line: int | None = None
    types: tuple[str, ...] | None = None
    grep: str | None = None
    regex: bool = False
    limit: int = 100
    cursor: str | None = None


class Hit(NamedTuple):
    """A record as stored, `seq` and `crc` included, and the line that it stands on."""

    line: int
    record: JsonObject


@dataclass(frozen=True, slots=True)
class Page:
    """`next_cursor` is None when the last line was reached; a page can be empty and yet have one."""

    records: tuple[Hit, ...]
    next_cursor: str | None


class _Found(NamedTuple):
    """A whole record: `place` is its place among those of its line."""

    line: int
    place: int
    raw: bytes


async def search(log: LogReader, query: Query) -> Page:
    """The next page. Raises `InvalidQuery`, `StoreReadError`."""
    return await blocking(search_now, log, query)


def search_now(log: LogReader, query: Query, budget: Budget = Budget()) -> Page:
    """The same, blocking."""
    line, place = _parse_cursor(query.cursor, max(1, query.from_line or 1))
    last = log.last_line if query.to_line is None else min(query.to_line, log.last_line)
    page = _PageBuilder(max(1, min(query.limit, MAX_LIMIT)), budget.page_bytes)
    if line > last:
        return Page((), None)
    needle = _needle(query)
    scan = _Scan(log.iterate(line, last), (line, place), frozenset(query.types or ()), needle, budget)
    if not query.grep:
        page.take(scan)
    else:
        with matcher(query.grep, regex=query.regex) as match:
            page.take(_matching(scan, match, needle))
    return page.finish(scan, last)


def _needle(query: Query) -> bytes | None:
    """The folded bytes that a line of ASCII must hold to match, and that make it match; None if there are none such:
    for patterns, and for texts that a line can hold otherwise than they read."""
    if not query.grep or query.regex:
        return None
    folded = query.grep.casefold()
    plain = folded.isascii() and not any(c in '"\\' or c < " " for c in folded)
    return folded.encode() if plain else None


class _Scan:
    """Whole records of the right types, until the budget is spent. `at` is the line that comes next."""

    def __init__(
        self,
        lines: Iterator[Line],
        first: tuple[int, int],
        types: frozenset[str],
        needle: bytes | None,
        budget: Budget,
    ) -> None:
        self.at = first[0]
        self._lines = lines
        self._first = first
        self._types = types
        self._budget = budget
        names = b"|".join(re.escape(kind.encode()) for kind in sorted(types))
        self._tag = re.compile(rb'"type"\s*:\s*"(?:%b)"' % names) if types else None
        self._needle = needle

    def __iter__(self) -> Iterator[_Found]:
        bytes_left, ends = self._budget.scanned_bytes, time.monotonic() + self._budget.seconds
        for line, raw in self._lines:
            self.at = line
            if self._may_match(raw):
                yield from self._records(line, raw)
            self.at = line + 1
            bytes_left -= len(raw)
            if bytes_left < 0 or time.monotonic() > ends:
                return

    def _may_match(self, raw: bytes) -> bool:
        if self._tag is not None and not self._tag.search(raw):
            return False
        return self._needle is None or not raw.isascii() or self._needle in raw.lower()

    def _records(self, line: int, raw: bytes) -> Iterator[_Found]:
        record = decoder.decode(raw)
        if record is not None:
            if (line, 0) >= self._first and (not self._types or _tag(record) in self._types):
                yield _Found(line, 0, raw)
            return
        for place, whole in enumerate(decoder.decode_line(raw, line).records):
            if (line, place) >= self._first and (not self._types or _tag(whole.record) in self._types):
                yield _Found(line, place, raw[whole.start : whole.end])


def _tag(record: Record | decoder.Unknown) -> str:
    return record.type if isinstance(record, decoder.Unknown) else str(record.__struct_config__.tag)


class _PageBuilder:
    def __init__(self, limit: int, max_bytes: int) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._hits: list[Hit] = []
        self._bytes = 0
        self._next: _Found | None = None

    def take(self, found: Iterator[_Found] | _Scan) -> None:
        for one in found:
            if len(self._hits) >= self._limit or (self._hits and self._bytes + len(one.raw) > self._max_bytes):
                self._next = one
                return
            self._hits.append(Hit(one.line, decoder.as_object(one.raw)))
            self._bytes += len(one.raw)

    def finish(self, scan: _Scan, last: int) -> Page:
        if self._next is not None:
            cursor: str | None = f"{self._next.line}.{self._next.place}"
        else:
            cursor = f"{scan.at}.0" if scan.at <= last else None
        return Page(tuple(self._hits), cursor)


def _matching(scan: _Scan, match: Matcher, needle: bytes | None) -> Iterator[_Found]:
    """Those whose text matches, in order. A pattern's process is asked for many at a time."""
    batch: list[_Found] = []
    size = 0
    for one in scan:
        if needle is not None and one.raw.isascii():
            if needle in one.raw.lower():
                yield one
            continue
        batch.append(one)
        size += len(one.raw)
        if needle is not None or len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield from _hits(batch, match)
            batch, size = [], 0
    yield from _hits(batch, match)


def _hits(batch: list[_Found], match: Matcher) -> list[_Found]:
    return [one for one, hit in zip(batch, match.matches([text_of(one.raw) for one in batch]), strict=True) if hit]


def text_of(raw: bytes) -> str:
    """A record's text: its line, and under it every string value of it as it reads."""
    strings: list[str] = []
    stack: list[Any] = [decoder.as_object(raw)]
    while stack:
        match stack.pop():
            case str() as text:
                strings.append(text)
            case dict() as inner:
                stack.extend(reversed(inner.values()))
            case list() as items:
                stack.extend(reversed(items))
    return "\n".join((raw.decode(), *strings))


def _parse_cursor(cursor: str | None, first: int) -> tuple[int, int]:
    if cursor is None:
        return first, 0
    line, dot, place = cursor.partition(".")
    if not (dot and cursor.isascii() and line.isdigit() and place.isdigit() and len(cursor) < 32):
        raise InvalidQuery("cursor", "not a cursor of this query")
    return max(first, int(line)), int(place) if int(line) >= first else 0
