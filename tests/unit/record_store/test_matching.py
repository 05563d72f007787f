"""Patterns are tried where they can be ended."""

from __future__ import annotations

import pytest

from record_store.errors import InvalidQuery
from record_store.matching import PatternMatcher, PlainMatcher, matcher


def test_plain_text_and_patterns_that_are_plain_need_no_process() -> None:
    assert isinstance(matcher("a.b", regex=False), PlainMatcher)
    assert isinstance(matcher("a_b", regex=True), PlainMatcher)


def test_a_pattern_is_tried_on_many_texts() -> None:
    texts = ["Needle 12", "nothing", "x\nneedle 3", "", "n\ud800eedle", "needle" * 50_000 + " 9"]
    with PatternMatcher(r"^needle \d+$|e 9$") as match:
        assert match.matches(texts) == [True, False, True, False, False, True]
        assert match.matches([]) == []
        assert match.matches(texts[:2]) == [True, False]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<a>", "a{9999999999}", "(?<=a+)b", "\\"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        matcher(pattern, regex=True)
    assert caught.value.field == "grep"


def test_a_pattern_that_never_ends_is_ended() -> None:
    with PatternMatcher(r"(a+)+$", time_s=0.5) as match:
        with pytest.raises(InvalidQuery):
            match.matches(["a" * 100 + "b"])
        with pytest.raises(InvalidQuery):
            match.matches(["a"])
        assert match._process.wait(10) != 0
