"""Records to lines. Pure: no I/O.

A line is `{"seq":n,"type":...,"time":...,...payload,"crc":"8 hex"}` and a newline, UTF-8, with no newline inside.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

from record_store.errors import RecordRejected
from record_store.records import Record

MAX_LINE_BYTES: Final = 256 << 20
"""A longer line is neither written nor read: it bounds what a reader must hold."""

_encode = msgspec.json.Encoder().encode


def encode(record: Record, seq: int) -> bytes:
    """The line of a record, newline included. `RecordRejected` when it has none: a lone surrogate, an integer over
    64 bits, a value that is no JSON, nesting without end, more than `MAX_LINE_BYTES`."""
    try:
        body = _encode(record)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RecordRejected(f"{type(record).__name__} cannot be encoded: {type(error).__name__}") from None
    if len(body) > MAX_LINE_BYTES:
        raise RecordRejected(f"{type(record).__name__} has {len(body)} bytes, over {MAX_LINE_BYTES}")
    head = b'{"seq":%d,%b' % (seq, body[1:-1])
    return b'%b,"crc":"%08x"}\n' % (head, crc32(head))
