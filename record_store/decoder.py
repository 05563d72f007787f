"""Lines to records. Pure: no I/O, and never an exception, whatever the bytes are.

`decode` is the fast way for what is nearly every line; `decode_line` says everything about one line.

    line                                          records        damage
    a whole record                                it             -
    whole, of a type or shape of a newer version  an `Unknown`   -
    two or more whole records glued together      all of them    `glued`
    a fragment, then a whole record (or v.v.)     the whole one  what the fragment is
    anything else                                 none           `empty`, `nul`, `utf8`, `json`, `crc`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from zlib import crc32

import msgspec
import orjson

from protocol.messages import JsonObject
from record_store.records import AnyRecord, Record

DamageKind = Literal["empty", "nul", "utf8", "json", "crc", "glued"]

_TAIL: Final = len(b',"crc":"01234567"}')
_MAX_GLUED: Final = 64
"""Starts and ends that are tried in one broken line; more than any accident makes."""

# Other writers may put blanks between the tokens: the checksum says whether the line is as it was written.
_START = re.compile(rb'\{\s*"seq"\s*:\s*(\d{1,18})\s*,')
_END = re.compile(rb',"crc":"([0-9a-f]{8})"\}')

_decode = msgspec.json.Decoder(AnyRecord).decode
_decode_any = msgspec.json.Decoder(JsonObject).decode


@dataclass(frozen=True, slots=True)
class Unknown:
    """A whole record that this version does not know: its type is new, or a known one has a new shape."""

    type: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A record whose checksum is right. `start` and `end` are its place in the line."""

    seq: int
    record: Record | Unknown
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    kind: DamageKind
    detail: str

    @property
    def lost(self) -> bool:
        """Whether something of the line could not be read."""
        return self.kind != "glued"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What stands on one line."""

    line: int
    records: tuple[Whole, ...]
    damage: Damage | None = None


def decode(raw: bytes) -> Record | None:
    """The record of a line (without newline) that is whole and known; None says: ask `decode_line`."""
    try:
        if b',"crc":"%08x"}' % crc32(raw[:-_TAIL]) != raw[-_TAIL:] or not _START.match(raw):
            return None
        return _decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def as_object(raw: bytes) -> JsonObject:
    """A whole record as the plain object that it is, `seq` and `crc` included; empty if it cannot be had."""
    for load in (orjson.loads, _decode_any):
        try:
            value = load(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def decode_line(raw: bytes, line: int) -> Decoded:
    """All that can be read of a line (without newline), and what is wrong with it."""
    whole = _whole(raw, 0, len(raw))
    if whole is not None:
        return Decoded(line, (whole,))
    found = _salvage(raw)
    if found and _covers(found, len(raw)):
        return Decoded(line, found, Damage("glued", f"{len(found)} records on one line"))
    return Decoded(line, found, _damage(raw, found))


def _salvage(raw: bytes) -> tuple[Whole, ...]:
    """Whole records in a line that is not one: a run of them from its start, and a run of them up to its end.

    Those in between are left alone: a record that is quoted inside a damaged one never happened.
    """
    starts = [m.start() for m in _START.finditer(raw)][:_MAX_GLUED]
    head: list[Whole] = []
    at = 0
    while at in starts:
        whole = _first_whole(raw, at)
        if whole is None:
            break
        head.append(whole)
        at = whole.end
    tail: list[Whole] = []
    for start in starts:
        if start < at:
            continue
        run = _run_to_end(raw, start)
        if run:
            tail = run
            break
    return (*head, *tail)


def _run_to_end(raw: bytes, start: int) -> list[Whole]:
    run: list[Whole] = []
    while start < len(raw):
        whole = _first_whole(raw, start)
        if whole is None:
            return []
        run.append(whole)
        start = whole.end
    return run


def _first_whole(raw: bytes, start: int) -> Whole | None:
    """The whole record that begins at `start`, wherever it ends."""
    crc, at = 0, start
    for tried, end in enumerate(_END.finditer(raw, start)):
        if tried == _MAX_GLUED:
            break
        crc = crc32(raw[at : end.start()], crc)
        at = end.start()
        if b"%08x" % crc == end.group(1):
            return _whole(raw, start, end.end())
    return None


def _whole(raw: bytes, start: int, end: int) -> Whole | None:
    text = raw[start:end]
    begin, finish = _START.match(text), _END.match(text, max(0, len(text) - _TAIL))
    if begin is None or finish is None or b"%08x" % crc32(text[:-_TAIL]) != finish.group(1):
        return None
    record = decode(text) or _unknown(text)
    return None if record is None else Whole(int(begin.group(1)), record, start, end)


def _unknown(text: bytes) -> Unknown | None:
    try:
        kind = _decode_any(text).get("type")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return Unknown(kind if isinstance(kind, str) else "")


def _covers(found: tuple[Whole, ...], size: int) -> bool:
    return sum(w.end - w.start for w in found) == size


def _damage(raw: bytes, found: tuple[Whole, ...]) -> Damage:
    also = f"; {len(found)} whole record(s) on the same line were read" if found else ""
    if not raw:
        return Damage("empty", "no bytes")
    if b"\0" in raw:
        return Damage("nul", f"{raw.count(0)} NUL bytes of {len(raw)}{also}")
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return Damage("utf8", f"bad byte at {error.start}{also}")
    try:
        _decode_any(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Damage("json", f"{len(raw)} bytes that are no JSON object{also}")
    if raw[-_TAIL:-10] != b',"crc":"':
        return Damage("crc", "no checksum")
    return Damage("crc", "wrong checksum")
