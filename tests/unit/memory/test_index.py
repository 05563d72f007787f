"""BM25 by its formula, over one index and over several, while documents come and go."""

from __future__ import annotations

import math

import pytest

from sidecar.memory.index import COMMON_AFTER, COMMON_FROM, MAX_COMMON, Index, search


def scored(indexes: list[Index], *terms: str) -> dict[str, float]:
    return {key: score for scores, _ in search(indexes, terms) for key, score in scores.items()}


def build(*documents: tuple[str, str]) -> Index:
    index = Index()
    for key, text in documents:
        index.put(key, text.split())
    return index


def test_the_formula() -> None:
    index = build(("a", "red red blue"), ("b", "red green green green green"), ("c", "blue"))
    average = (3 + 5 + 1) / 3

    def part(n: int, f: int, length: int) -> float:
        return math.log(1 + (3 - n + 0.5) / (n + 0.5)) * f * 2.2 / (f + 1.2 * (1 - 0.75 + 0.75 * length / average))

    got = scored([index], "red", "blue", "absent")
    assert got == pytest.approx({"a": part(2, 2, 3) + part(2, 1, 3), "b": part(2, 1, 5), "c": part(2, 1, 1)})


def test_matched_terms_are_bits_in_the_order_of_the_query() -> None:
    index = build(("a", "red blue"), ("b", "blue"))
    assert search([index], ("blue", "green", "red")) == [
        (pytest.approx(scored([index], "blue", "red")), {"a": 0b101, "b": 0b001})
    ]


def test_two_indexes_score_like_one() -> None:
    one = build(("a", "red blue"), ("b", "red"), ("c", "green blue blue"))
    left, right = build(("a", "red blue")), build(("b", "red"), ("c", "green blue blue"))
    assert scored([left, right], "red", "blue") == pytest.approx(scored([one], "red", "blue"))


def test_a_changed_index_is_the_same_as_a_fresh_one() -> None:
    changed = build(("a", "old words"), ("b", "red"), ("gone", "red red red"))
    changed.put("a", ["red", "blue"])
    changed.discard("gone")
    changed.discard("never there")
    fresh = build(("b", "red"), ("a", "red blue"))
    assert scored([changed], "red", "blue") == scored([fresh], "red", "blue")
    assert changed.postings == fresh.postings
    assert (len(changed), changed.total_length) == (2, 3)


def test_nothing_in_nothing() -> None:
    assert search([Index(), Index()], ("red",)) == [({}, {}), ({}, {})]
    assert scored([build(("a", "red"))]) == {}


def test_a_term_of_a_large_store_that_is_everywhere_only_adds_to_what_rarer_ones_found() -> None:
    index = Index()
    for n in range(COMMON_FROM + 1):
        index.put(f"d{n}", ["service", "rare" if n < COMMON_AFTER else f"name{n}"])
    assert len(scored([index], "service")) == COMMON_FROM + 1
    found = scored([index], "service", "rare")
    assert found.keys() == {f"d{n}" for n in range(COMMON_AFTER)}
    assert found["d7"] > scored([index], "rare")["d7"]
    assert scored([index], "service", "name40").keys() == {"d40"}


def test_terms_that_are_everywhere_together_find_the_latest() -> None:
    index = Index()
    for n in range(MAX_COMMON + 500):
        index.put(f"d{n}", ["service", "port", f"name{n}"])
    ((scores, matched),) = search([index], ["service", "port"])
    assert scores.keys() == {f"d{n}" for n in range(500, MAX_COMMON + 500)}
    assert set(matched.values()) == {3}
