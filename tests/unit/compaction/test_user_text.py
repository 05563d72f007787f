"""HEAD and TAIL of the user's words: verbatim, within budget, cut only where they face the gap."""

from __future__ import annotations

import pytest

from protocol.messages import TextPart
from record_store.records import Kept, New
from sidecar.compaction.user_text import UserText, keep_user_text
from tests.unit.compaction.build import IMAGE, SIZES, entries, user


def text(label: str, tokens: int) -> str:
    """Distinct text of exactly `tokens` tokens with its message overhead."""
    return "".join(f"{label}{n:03d}" for n in range(tokens - 4))


def keep(sizes: list[int], most: int, head: int, gap: int | None = None) -> tuple[UserText, list[str]]:
    labels = "abcdefghij"
    context = entries(*(user(f"u{i}", text(labels[i], size)) for i, size in enumerate(sizes)))
    assert [SIZES.message(e.message) for e in context] == sizes
    return keep_user_text(context, gap, most, head, SIZES, "cmp"), [e.message.text for e in context]


def test_what_fits_stays_as_it_is() -> None:
    kept, _ = keep([100, 200, 300], 600, 60)
    assert not kept.has_gap
    assert kept.elided == 0
    assert [p.replacement for p in kept.tail] == [Kept("u0"), Kept("u1"), Kept("u2")]


def test_head_and_tail_with_both_border_messages_cut_towards_the_gap() -> None:
    kept, texts = keep([30, 500, 100, 500, 60], 400, 100)
    assert kept.has_gap
    assert [p.message.id for p in kept.head] == ["u0", "cmp.head"]
    assert [p.message.id for p in kept.tail] == ["cmp.tail", "u4"]
    assert texts[1].startswith(kept.head[1].message.text)
    assert texts[3].endswith(kept.tail[0].message.text)
    assert sum(p.tokens for p in kept.head) <= 100
    total = sum(p.tokens for p in (*kept.head, *kept.tail))
    assert 380 <= total <= 400
    assert kept.elided == 1_190 - total
    assert isinstance(kept.head[1].replacement, New)
    assert kept.head[1].replacement.line == 4


def test_one_giant_message_keeps_both_its_ends_without_overlap() -> None:
    kept, texts = keep([900], 500, 100)
    head, tail = kept.head[0].message.text, kept.tail[0].message.text
    assert texts[0].startswith(head)
    assert texts[0].endswith(tail)
    assert len(head) + len(tail) < len(texts[0])


def test_the_head_never_takes_what_stands_behind_an_earlier_gap() -> None:
    kept, _ = keep([40, 500, 600], 500, 100, gap=1)
    assert [p.message.id for p in kept.head] == ["u0"]
    assert [p.message.id for p in kept.tail] == ["cmp.tail"]
    assert kept.tail[0].tokens <= 460


def test_a_head_that_must_be_cut_before_an_earlier_gap_leaves_nothing_between() -> None:
    kept, texts = keep([300, 200, 100], 250, 50, gap=2)
    assert [p.message.id for p in kept.head] == ["cmp.head"]
    assert [p.message.id for p in kept.tail] == ["u2"]
    assert texts[0].startswith(kept.head[0].message.text)


def test_an_earlier_gap_stays_where_it_was() -> None:
    kept, _ = keep([40, 50, 60], 500, 50, gap=1)
    assert kept.has_gap
    assert kept.elided == 0
    assert [p.message.id for p in kept.head] == ["u0"]
    assert [p.message.id for p in kept.tail] == ["u1", "u2"]


def test_an_image_only_message_on_the_border_becomes_a_placeholder() -> None:
    context = entries(user("u0", text("a", 400)), user("u1", "", IMAGE), user("u2", text("b", 300)))
    kept = keep_user_text(context, None, 400, 50, SIZES, "cmp")
    assert kept.tail[0].message.content == (TextPart("[image left out: image/png]"),)
    assert kept.tail[1].message.id == "u2"


@pytest.mark.parametrize("most", [0, 1, 5, 20])
def test_tiny_budgets_break_nothing(most: int) -> None:
    kept, _ = keep([100, 100], most, most // 10)
    assert sum(p.tokens for p in (*kept.head, *kept.tail)) <= most
    assert kept.has_gap
