"""Counting one text with tiktoken within bounds, and a bounded cache of counts. Pure but for the cache."""

from __future__ import annotations

from sidecar.tokens import rough
from sidecar.tokens.vocabulary import Encode

PIECE_BYTES = 8_192
"""The most that tiktoken gets at once: longer runs without a break are slow in it, a million spaces make it panic.
Pieces of this size change a count by less than a thousandth."""

SAMPLES, SAMPLE_CHARS = 8, 2_048
"""A long text that nobody may wait for is counted from this many parts of this size, evenly over its length."""


def count(encode: Encode, text: str) -> int:
    """The tokens of a text of any length, piece by piece; a piece that tiktoken fails on is counted roughly."""
    step = PIECE_BYTES if text.isascii() else PIECE_BYTES // 4
    if len(text) <= step:
        return _count_piece(encode, text)
    return sum(_count_piece(encode, text[i : i + step]) for i in range(0, len(text), step))


def _count_piece(encode: Encode, text: str) -> int:
    try:
        return len(encode(text))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a panic inside tiktoken is no Exception
        return rough.text_tokens(text)


def sample(encode: Encode, text: str) -> int:
    """An estimate of a text over `SAMPLES * SAMPLE_CHARS` characters from some of its parts."""
    gap = (len(text) - SAMPLE_CHARS) / (SAMPLES - 1)
    parts = (text[int(i * gap) : int(i * gap) + SAMPLE_CHARS] for i in range(SAMPLES))
    return round(sum(count(encode, part) for part in parts) * len(text) / (SAMPLES * SAMPLE_CHARS))


class CountCache:
    """Counts by key, `entries` at most. Two halves: what was read since the last turnover stays, the rest goes."""

    def __init__(self, entries: int) -> None:
        self._half = max(1, entries // 2)
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        value = self._new.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: int, value: int) -> None:
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}
        self._new[key] = value

    def clear(self) -> None:
        self._new, self._old = {}, {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)
