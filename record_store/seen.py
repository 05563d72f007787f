"""Names that were seen, in a fixed number of bytes however many there were. Pure.

A Bloom filter: what was noted is always found again; a name that never was is found by mistake about once in ten
thousand times after a thousand names, and more often after many more. For uses where such a mistake costs nothing.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

SIZE: Final = 1 << 13
"""Bytes of a filter that holds something; an empty one has none."""


def note(filter_: bytearray, name: str) -> None:
    if not filter_:
        filter_.extend(bytes(SIZE))
    for bit in _bits(name):
        filter_[bit >> 3] |= 1 << (bit & 7)


def holds(filter_: bytearray, name: str) -> bool:
    return bool(filter_) and all(filter_[bit >> 3] >> (bit & 7) & 1 for bit in _bits(name))


def merge(into: bytearray, other: bytearray) -> None:
    """`into` then holds what `other` holds too."""
    if other:
        both = int.from_bytes(into, "little") | int.from_bytes(other, "little")
        into[:] = both.to_bytes(SIZE, "little")


def _bits(name: str) -> tuple[int, int, int]:
    value = crc32(name.encode("utf-8", "surrogatepass"))
    return value & 0xFFFF, value >> 16, (value * 0x9E3779B1 >> 16) & 0xFFFF
