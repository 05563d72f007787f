"""The folded state beside its log, so that opening does not read what lies before it. Derived: deleting it costs time.

`checkpoint.json` is one object: `version`, `code` (what folded it), `offset` and `seq` (the state holds everything up
to this byte and line), `last_bytes` and `last_crc` (length and CRC-32 of the line that ends there: the proof that this
is the checkpoint of this log, for the price of one small read), `state`, and `checksum`, the CRC-32 of all bytes before
`,"checksum"`.

A checkpoint that was made by other code is left unused: a newer version may know records that an older one skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from protocol import messages
from record_store import files, fold, pins, records, seen
from record_store.fold import State

VERSION: Final = 1
_PIECE: Final = 128
"""Messages that are encoded in one go. Encoding holds the interpreter; between two pieces others run."""

_TAIL = len(b',"checksum":"01234567"}')


class _Head(Struct, frozen=True):
    version: int
    code: str
    offset: int
    seq: int
    last_bytes: int
    last_crc: str


class _File(_Head, frozen=True):
    state: Raw


@dataclass(frozen=True, slots=True)
class Position:
    """A line's end: the byte after its newline, its number, and the length and CRC-32 of its bytes with newline."""

    offset: int
    seq: int
    last_bytes: int
    last_crc: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    position: Position
    state: State


@dataclass(frozen=True, slots=True)
class Loaded:
    """`damaged` says that there was a checkpoint whose bytes are not as they were written."""

    checkpoint: Checkpoint | None
    damaged: bool = False


_decode_file = msgspec.json.Decoder(_File).decode
_decode_state = msgspec.json.Decoder(State).decode
_encode = msgspec.json.Encoder().encode


def snapshot(state: State) -> State:
    """A copy that stays as it is while the state goes on: its containers are new, what they hold is frozen.
    Turn marks are replaced, never changed, so they are shared."""
    copies = {
        name: value.copy()
        for name in state.__struct_fields__
        if isinstance(value := getattr(state, name), (list, dict, bytearray)) and name != "config"
    }
    return replace(state, **copies)


def encode(state: State, position: Position) -> bytes:
    """The bytes of the file. Safe in a thread, on a `snapshot`."""
    head = _Head(VERSION, _code(), position.offset, position.seq, position.last_bytes, f"{position.last_crc:08x}")
    body = b"".join((_encode(head)[:-1], b',"state":', *_state_pieces(state)))
    return b'%b,"checksum":"%08x"}' % (body, crc32(body))


def decode(data: bytes) -> Loaded:
    """The checkpoint in these bytes, if they are whole and were made by this code."""
    file = _unseal(data)
    if file is None:
        return Loaded(None, damaged=not _is_sealed(data))
    try:
        return Loaded(Checkpoint(_position(file), _decode_state(file.state)))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Loaded(None)


def load(path: Path, log: int, size: int) -> Loaded:
    """The checkpoint at `path`, if it belongs to the log (a descriptor, `size` bytes of which count)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Loaded(None)
    except OSError:
        return Loaded(None, damaged=True)
    loaded = decode(data)
    if loaded.checkpoint is not None and not fits(loaded.checkpoint.position, log, size):
        return Loaded(None)
    return loaded


def mark(path: Path, log: int, size: int) -> Position | None:
    """Where the checkpoint at `path` stands in the log, without its state: a line number for an offset."""
    try:
        file = _unseal(path.read_bytes())
        position = _position(file) if file is not None else None
    except (OSError, ValueError):
        return None
    return position if position is not None and fits(position, log, size) else None


def _is_sealed(data: bytes) -> bool:
    return b',"checksum":"%08x"}' % crc32(data[:-_TAIL]) == data[-_TAIL:]


def _unseal(data: bytes) -> _File | None:
    """The file, if it is whole and of this version and code."""
    if not _is_sealed(data):
        return None
    try:
        file = _decode_file(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return file if file.version == VERSION and file.code == _code() else None


def _position(file: _File) -> Position:
    return Position(file.offset, file.seq, file.last_bytes, int(file.last_crc, 16))


def fits(position: Position, log: int, size: int) -> bool:
    start = position.offset - position.last_bytes
    if position.offset > size or start < 0:
        return False
    try:
        line = files.read_exactly(log, position.last_bytes, start)
        before = files.pread(log, 1, start - 1) if start else b"\n"
    except OSError:
        return False
    return before == b"\n" and line[-1:] == b"\n" and b"\n" not in line[:-1] and crc32(line) == position.last_crc


def save(path: Path, state: State, position: Position) -> None:
    """Raises `OSError`. The old checkpoint stays whole until the new one is."""
    files.write_atomic(path, encode(state, position), "checkpoint")


def _state_pieces(state: State) -> Iterator[bytes]:
    opening = b"{"
    for name in state.__struct_fields__:
        yield b'%b"%b":' % (opening, name.encode())
        opening = b","
        value = getattr(state, name)
        if name == "entries":
            yield from _list_pieces(value)
        else:
            yield _encode(value)
    yield b"}"


def _list_pieces(items: list[fold.Entry]) -> Iterator[bytes]:
    if not items:
        yield b"[]"
        return
    for start in range(0, len(items), _PIECE):
        yield b"," if start else b"["
        yield _encode(items[start : start + _PIECE])[1:-1]
    yield b"]"


@functools.cache
def _code() -> str:
    """Names the code that folds: its very text, so that no change of it can be forgotten."""
    crc = VERSION
    for module in (fold, pins, seen, records, messages):
        try:
            crc = crc32(Path(module.__file__ or "").read_bytes(), crc)
        except OSError:
            crc = crc32(repr(sorted(records.RECORD_TYPES)).encode(), crc)
    return f"{crc:08x}"
