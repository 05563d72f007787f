"""Records as the lines of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from record_store.backend import Line
from record_store.encoder import encode
from record_store.records import Record


def lines_of(records: Iterable[Record]) -> Iterator[Line]:
    """Each with the seq and the checksum of its place, without the newline."""
    return (Line(n, encode(record, n)[:-1]) for n, record in enumerate(records, 1))
