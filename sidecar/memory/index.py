"""An inverted index that is kept as facts come and go, and BM25 over several of them. No I/O.

    idf(t)   = ln(1 + (N - n + 0.5) / (n + 0.5))
    score(d) = sum over matched t of idf(t) * f * (K1 + 1) / (f + K1 * (1 - B + B * |d| / average |d|))

with N facts in all indexes together, n of them with the term, f times in d, and |d| terms in d.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

K1: Final = 1.2
B: Final = 0.75

COMMON_SHARE: Final = 0.2
COMMON_FROM: Final = 500
COMMON_AFTER: Final = 32
MAX_COMMON: Final = 1_000
"""A term that is in more facts than `COMMON_FROM`, and in more than this share of all, finds none once rarer terms
found `COMMON_AFTER`: it only adds to the score of these. Before that it finds the latest `MAX_COMMON` that share
another term with the query."""

MAX_VISITS: Final = 6_000
"""Postings looked at for one query, rare terms first: what is left then are the terms that tell the least."""


class Index:
    """Terms to documents. Adding and removing cost O(terms of that document)."""

    def __init__(self) -> None:
        self.postings: dict[str, dict[str, int]] = {}
        self.lengths: dict[str, int] = {}
        self.total_length = 0
        self._counts: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def put(self, key: str, terms: Sequence[str]) -> None:
        """The document has these terms from now on, whatever it had before."""
        self.discard(key)
        counts = Counter(terms)
        self._counts[key] = counts
        self.lengths[key] = len(terms)
        self.total_length += len(terms)
        for term, count in counts.items():
            self.postings.setdefault(term, {})[key] = count

    def discard(self, key: str) -> None:
        counts = self._counts.pop(key, None)
        if counts is None:
            return
        self.total_length -= self.lengths.pop(key)
        for term in counts:
            postings = self.postings[term]
            del postings[key]
            if not postings:
                del self.postings[term]


def search(indexes: Sequence[Index], terms: Sequence[str]) -> list[tuple[dict[str, float], dict[str, int]]]:
    """For each index the scores of its documents that share a term with the query, and which terms: bit i is set for
    the query's term i. `terms` are unique."""
    tables: list[tuple[dict[str, float], dict[str, int]]] = [({}, {}) for _ in indexes]
    size = sum(map(len, indexes))
    if size == 0:
        return tables
    average = max(1.0, sum(i.total_length for i in indexes) / size)
    frequency = [sum(len(i.postings.get(term, ())) for i in indexes) for term in terms]
    visits = MAX_VISITS
    for n, position in sorted((n, position) for position, n in enumerate(frequency) if n):
        if visits <= 0:
            break
        weight = math.log(1 + (size - n + 0.5) / (n + 0.5)) * (K1 + 1)
        common = n > COMMON_FROM and n > COMMON_SHARE * size
        enough = sum(len(scores) for scores, _ in tables) >= COMMON_AFTER
        for index, (scores, matched) in zip(indexes, tables, strict=True):
            postings = index.postings.get(terms[position], {})
            keys: Collection[str] = postings
            if common and enough:
                keys = [key for key in scores if key in postings]
            elif common:
                others = [index.postings.get(t, {}) for i, t in enumerate(terms) if i != position]
                keys = _latest(postings, others)
            visits -= len(keys)
            _add(scores, matched, keys, postings, index.lengths, weight, 1 << position, average)
    return tables


def _latest(postings: dict[str, int], others: Sequence[dict[str, int]]) -> list[str]:
    """The latest `MAX_COMMON` keys that one of `others` has too; of a lone term simply the latest."""
    shared = (key for key in reversed(postings) if not others or any(key in other for other in others))
    return list(islice(shared, MAX_COMMON))


def _add(
    scores: dict[str, float],
    matched: dict[str, int],
    keys: Iterable[str],
    postings: dict[str, int],
    lengths: dict[str, int],
    weight: float,
    bit: int,
    average: float,
) -> None:
    fixed, per_term = K1 * (1 - B), K1 * B / average
    for key in keys:
        count = postings[key]
        part = weight * count / (count + fixed + per_term * lengths[key])
        if key in scores:
            scores[key] += part
            matched[key] |= bit
        else:
            scores[key] = part
            matched[key] = bit
