"""Ids and arguments of calls, as models really make them."""

from __future__ import annotations

import pytest

from protocol.messages import ImagePart, TextPart, ToolCall
from sidecar.agent.calls import NO_OUTPUT, arguments_of, result_message, with_unique_ids


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"x": 1}', {"x": 1}), ("", {}), ("  \n", {}), ("[]", None), ("1", None), ('{"x": ', None), ("null", None),
        ('{"x": NaN}', None), ('{"a":1}{"b":2}', None), ('{"x": "\ud800"}', {"x": "\ufffd"}),
        ('{"x": "\\ud800"}', {"x": "\ufffd"}),
    ],
)  # fmt: skip
def test_arguments(text: str, wanted: object) -> None:
    assert arguments_of(text) == wanted


def test_good_ids_stay_and_empty_repeated_or_taken_ones_are_renamed() -> None:
    made = [ToolCall(i, "t", "{}") for i in ("a", "b", "a", "", "", "old")]
    ids = [c.id for c in with_unique_ids(made, {"old"}.__contains__)]
    assert ids[:2] == ["a", "b"]
    assert len(set(ids)) == 6
    assert "" not in ids
    assert "old" not in ids


def test_a_result_is_never_empty() -> None:
    call = ToolCall("c", "t", "{}")
    assert result_message(call, (), False, 1).text == NO_OUTPUT
    assert result_message(call, (TextPart(" \n"),), False, 1).text == NO_OUTPUT
    image = ImagePart("image/png", data="aGk=")
    assert result_message(call, (image,), False, 1).content == (image,)
