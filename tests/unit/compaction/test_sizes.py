"""Cutting: at a character, within the budget, as much as fits, at the right end."""

from __future__ import annotations

from typing import Literal

import pytest

from protocol.messages import ImagePart, Origin, TextPart
from sidecar.compaction.sizes import ScaledSizes, cut_message, cut_text, rest_of
from tests.support.compaction_agent import message_tokens, text_tokens
from tests.unit.compaction.build import IMAGE, SIZES, user

TEXT = "".join(chr(ord("a") + i % 26) for i in range(40_000))


@pytest.mark.parametrize("budget", [1, 7, 100, 2_500])
def test_a_cut_is_a_part_of_the_text_and_fits(budget: int) -> None:
    head = cut_text(TEXT, budget, SIZES, "start")
    tail = cut_text(TEXT, budget, SIZES, "end")
    assert TEXT.startswith(head)
    assert TEXT.endswith(tail)
    for piece in (head, tail):
        assert 0.9 * budget <= SIZES.text(piece) <= budget


def test_what_fits_is_not_cut() -> None:
    assert cut_text("short", 2, SIZES, "start") == "short"
    assert cut_text("", 5, SIZES, "start") == ""
    assert cut_text("text", 0, SIZES, "end") == ""
    assert cut_text("text", -3, SIZES, "end") == ""


def test_dense_text_is_cut_too() -> None:
    dense = ScaledSizes(message_tokens, lambda t: 3 * len(t))
    assert cut_text("日本語テキスト", 9, dense, "start") == "日本語"
    assert cut_text("日本語テキスト", 2, dense, "start") == ""


def test_few_measurements_whatever_the_length() -> None:
    calls = 0

    def count(text: str) -> int:
        nonlocal calls
        calls += 1
        assert len(text) <= 16_000
        return text_tokens(text)

    cut_text("x" * 5_000_000, 1_000, ScaledSizes(message_tokens, count), "end")
    assert calls <= 9


def test_a_cut_message_keeps_everything_else() -> None:
    message = user("u1", "x" * 4_000, origin=Origin("skill_activation", trigger="user_slash"))
    cut = cut_message(message, "u1.cut", 100, SIZES, "start")
    assert cut is not None
    assert (cut.id, cut.role, cut.origin, cut.time) == ("u1.cut", "user", message.origin, 1)
    assert SIZES.message(cut) <= 100
    assert rest_of(message, cut).text == message.text[len(cut.text) :]


def test_parts_are_taken_from_the_kept_side() -> None:
    message = user("u", "a" * 400, IMAGE, TextPart("b" * 400))
    start = cut_message(message, "x", 150, SIZES, "start")
    assert start is not None
    assert start.content == (TextPart("a" * 400),)
    assert rest_of(message, start).content == (IMAGE, TextPart("b" * 400))
    end = cut_message(message, "x", 620, SIZES, "end")
    assert end is not None
    assert end.content[1:] == (IMAGE, TextPart("b" * 400))


def test_an_image_alone_becomes_a_placeholder() -> None:
    message = user("u", "", IMAGE, ImagePart("image/jpeg", data="eA=="))
    cut = cut_message(message, "x", 60, SIZES, "end")
    assert cut is not None
    assert cut.text == "[image left out: image/png]"
    assert rest_of(message, cut).content == ()


def test_nothing_fits() -> None:
    assert cut_message(user("u", "hello world"), "x", 4, SIZES, "start") is None


def test_the_factor_applies() -> None:
    assert ScaledSizes(message_tokens, text_tokens, 1.5).text("x" * 40) == 15


@pytest.mark.parametrize("keep", ["start", "end"])
def test_a_placeholder_stands_whole_or_not_at_all(keep: Literal["start", "end"]) -> None:
    image = user("m", "", IMAGE)
    shown = {c.text for b in range(60) if (c := cut_message(image, "c", b, SIZES, keep)) is not None}
    assert shown == {"[image left out: image/png]"}
