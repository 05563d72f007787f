"""JSON and text at the border: always valid outwards, forgiving inwards."""

from __future__ import annotations

import json

import pytest

from sidecar.providers.jsontext import TextJoiner, clean, dumps, json_object, loads, parsed_object


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", "plain"), ("a\x00b", "a\ufffdb"), ("a\ud800b", "a\ufffdb"), ("\ud83d\ude42", "🙂"),
        ("\udfff", "\ufffd"), ("🙂\x1b[31m\u2028", "🙂\x1b[31m\u2028"), ("", ""),
    ],
)  # fmt: skip
def test_clean(text: str, wanted: str) -> None:
    assert clean(text) == wanted


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        (["a", "b"], ["a", "b"]), (["\ud83d", "\ude42"], ["", "🙂"]), (["x\ud83d", "y"], ["x", "\ufffdy"]),
        (["\ud83d"], [""]), (["\ude42", "z"], ["\ufffd", "z"]),
    ],
)  # fmt: skip
def test_a_pair_that_is_split_between_two_pieces_is_joined(pieces: list[str], wanted: list[str]) -> None:
    joiner = TextJoiner()
    assert [joiner.feed(p) for p in pieces] == wanted
    assert joiner.flush() == ("\ufffd" if pieces == ["\ud83d"] else "")
    assert joiner.flush() == ""


@pytest.mark.parametrize(
    "value",
    ["a\ud800", {"n": 1 << 80}, {"x": float("nan"), "y": "\udc00"}, [[[[]]]] * 3, {"\ud83d": "k"}, "\x00\x1b"],
)
def test_what_is_written_is_always_valid(value: object) -> None:
    json.loads(dumps(value).decode(), parse_constant=lambda c: pytest.fail(c))


def test_deep_nesting_is_written() -> None:
    value: list[object] = []
    for _ in range(300):
        value = [value]
    assert dumps(value) == b"[" * 301 + b"]" * 301


def test_reading_joins_halves_and_marks_damage() -> None:
    assert loads(b'{"a": "\\ud83d"}') == ({"a": "\ud83d"}, False)
    assert loads(b'{"a": "\xff"}') == ({"a": "\ufffd"}, True)
    for bad in (b"", b"{", b"[" * 100_000):
        with pytest.raises(ValueError):
            loads(bad)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('{"a": 1.0}', True),
        (" {} ", True),
        ("[]", False),
        ("{", False),
        ('{"a": NaN}', False),
        ('{"a": NaN, "b": "\\ud800"}', False),
        ('["\\ud800"]', False),
    ],
)
def test_an_object_keeps_its_own_text(text: str, is_one: bool) -> None:
    assert json_object(text) == (text.encode() if is_one else None)


@pytest.mark.parametrize("text", ['{"a": "\ud800"}', '{"a": "\\ud800"}'])
def test_an_object_with_lone_surrogates_is_written_anew(text: str) -> None:
    assert json_object(text) == '{"a":"\ufffd"}'.encode()
    assert parsed_object(text) == {"a": "\ufffd"}
