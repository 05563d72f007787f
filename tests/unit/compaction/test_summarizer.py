"""The failure ladder of a summary request, and what each attempt shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from protocol.messages import ImagePart, Message, ToolCall, Usage
from record_store.fold import Entry
from sidecar.compaction import material, summarizer
from sidecar.compaction.ports import SummaryReply
from sidecar.compaction.summarizer import Accept, Action, Ask, GiveUp, Material, Progress, first_attempt, next_attempt
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import RetryPolicy
from tests.support.compaction_agent import assert_paired
from tests.unit.compaction.build import IMAGE, SIZES, assistant, entries, tool, user

TEN = Material([100] * 10, [True] * 10, 5)
OVERFLOW = ProviderError("overflow", "too long", status=400)
BUSY = ProviderError("unavailable", "503", status=503)


def reply(text: str, finish: str = "stop") -> SummaryReply:
    return SummaryReply(text, finish, Usage(), "m")  # type: ignore[arg-type]


def follow(
    span: Material, outcomes: Sequence[SummaryReply | ProviderError], *, room: int = 10_000
) -> tuple[list[Ask], Action]:
    """All requests that are made for these outcomes, and what stands at the end."""
    progress, action = first_attempt(span, room)
    asked: list[Ask] = []
    result: Action = action
    for outcome in outcomes:
        assert isinstance(result, Ask), result
        asked.append(result)
        progress, result = step(progress, outcome, span)
    return asked, result


def step(progress: Progress, outcome: SummaryReply | ProviderError, span: Material) -> tuple[Progress, Action]:
    return next_attempt(
        progress,
        outcome,
        span,
        reply_tokens=len(outcome.text) if isinstance(outcome, SummaryReply) else 0,
        overflow=isinstance(outcome, ProviderError) and outcome.kind == "overflow",
        retry=RetryPolicy(base_s=0.5, max_wait_s=60),
        jitter=1.0,
    )


def test_a_good_answer_is_the_summary() -> None:
    asked, end = follow(TEN, [reply("  fine  ")])
    assert asked == [Ask(0, None)]
    assert end == Accept("fine")


def test_overflow_keeps_70_50_and_35_percent_and_then_gives_up() -> None:
    asked, end = follow(TEN, [OVERFLOW] * 4)
    assert [a.first for a in asked] == [0, 3, 5, 7]
    assert end == GiveUp("overflow")


def test_the_newest_message_alone_too_large_is_cut_inside() -> None:
    span = Material([50, 50, 900], [True] * 3, 5)
    asked, _ = follow(span, [OVERFLOW] * 3)
    assert asked[1] == Ask(2, 700)
    assert asked[2] == Ask(2, 500)


def test_the_same_part_of_a_span_is_never_sent_twice_after_an_overflow() -> None:
    span = Material([500, 100, 100], [True, True, True], 9)
    asked, _ = follow(span, [OVERFLOW] * 4)
    assert len({(a.first, a.cut) for a in asked}) == len(asked) == 4
    assert [a.cut for a in asked] == [None, None, 140, 98]


def test_a_cut_never_separates_results_from_their_call() -> None:
    span = Material([100] * 6, [True, True, False, False, True, False], 9)
    asked, _ = follow(span, [OVERFLOW] * 3)
    assert [a.first for a in asked] == [0, 4, 4]
    asked, _ = follow(span, [reply("", "stop")] * 5)
    assert [a.first for a in asked] == [0, 1, 4, 4, 4]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (reply("cut of", "length"), "truncated_summary"),
        (reply(""), "empty_summary"),
        (reply(" \n "), "empty_summary"),
        (reply("", "tool_calls"), "empty_summary"),
    ],
)
def test_a_bad_answer_drops_the_oldest_message_and_tries_again(bad: SummaryReply, reason: str) -> None:
    asked, end = follow(TEN, [bad] * 5)
    assert [a.first for a in asked] == [0, 1, 2, 3, 4]
    assert end == GiveUp(reason)


def test_a_trivial_answer_counts_as_none_for_a_large_span_only() -> None:
    large = Material([500] * 5, [True] * 5, 5)
    assert follow(large, [reply("ok")])[1] == Ask(1, None)
    assert follow(TEN, [reply("ok")])[1] == Accept("ok")
    assert follow(large, [reply("x" * 20)])[1] == Accept("x" * 20)


def test_a_content_filter_fails_at_once() -> None:
    assert follow(TEN, [reply("x", "content_filter")])[1] == GiveUp("content_filter")
    assert follow(TEN, [ProviderError("refused", "no")])[1] == GiveUp("content_filter")


def test_retryable_errors_back_off_and_ask_the_same_again() -> None:
    asked, end = follow(TEN, [BUSY] * 5)
    assert [a.first for a in asked] == [0] * 5
    assert [a.wait_s for a in asked] == [0, 0.5, 1.0, 2.0, 4.0]
    assert end == GiveUp("provider_unavailable")


def test_retry_after_is_honoured_up_to_what_anyone_waits_for() -> None:
    wait = ProviderError("rate_limited", "429", status=429, retry_after_s=17.0)
    assert follow(TEN, [wait])[1] == Ask(0, None, 17.0)
    forever = ProviderError("rate_limited", "429", status=429, retry_after_s=3_600.0)
    assert follow(TEN, [forever])[1] == GiveUp("provider_rate_limited")


@pytest.mark.parametrize(("kind", "reason"), [("auth", "provider_auth"), ("rejected", "provider_rejected")])
def test_what_will_not_change_is_not_asked_again(kind: str, reason: str) -> None:
    assert follow(TEN, [ProviderError(kind, "no")])[1] == GiveUp(reason)  # type: ignore[arg-type]


def test_all_causes_share_the_attempts() -> None:
    asked, end = follow(TEN, [OVERFLOW, BUSY, reply(""), BUSY, OVERFLOW])
    assert len(asked) == 5
    assert end == GiveUp("overflow")
    assert [a.first for a in asked] == [0, 3, 3, 4, 4]


def test_one_attempt_only() -> None:
    assert follow(Material([1], [True], 1), [BUSY])[1] == GiveUp("provider_unavailable")


def test_a_span_that_is_known_not_to_fit_is_shortened_before_it_is_sent() -> None:
    asked, end = follow(TEN, [OVERFLOW, OVERFLOW, reply("fine")], room=600)
    assert [a.first for a in asked] == [5, 7, 8]
    assert end == Accept("fine")
    assert first_attempt(TEN, -50)[1] == Ask(9, 1)


def test_it_never_drops_the_last_group() -> None:
    assert follow(Material([100], [True], 5), [reply("")] * 4)[1] == Ask(0, None)


def test_output_limit() -> None:
    limit = summarizer.output_limit
    assert limit(131_072, 128_000, 100_000, None) == 26_976
    assert limit(131_072, 1_000_000, 100_000, None) == 131_072
    assert limit(131_072, 1_000_000, 100_000, 8_192) == 8_192
    assert limit(131_072, 8_000, 9_000, None) == 256


# ---------------------------------------------------------------- what is shown


CONTEXT = entries(
    user("u", "look", IMAGE),
    assistant("a1", "", "c1", "c2"),
    tool("c1", "x" * 4_000),
    tool("c2", "y" * 400),
)


def test_text_passes_as_the_same_objects() -> None:
    clean = material.without_images(CONTEXT)
    assert clean[1:] == tuple(CONTEXT[1:])
    assert all(a is b for a, b in zip(clean[1:], CONTEXT[1:], strict=True))
    assert not any(isinstance(p, ImagePart) for p in clean[0].message.content)
    assert clean[0].message.text.startswith("look[image offloaded: ")


def test_the_material_knows_where_a_rest_may_begin() -> None:
    span = material.material_of(CONTEXT, SIZES, 5)
    assert span.starts == [True, True, False, False]
    assert span.last_start == 1
    assert span.after(0) == 1
    assert span.after(1) == 1


def test_a_group_is_cut_at_its_largest_texts() -> None:
    shown = material.shown(CONTEXT, 1, 400, SIZES)
    assert [e.message.id for e in shown] == ["a1", "r-c1", "r-c2"]
    assert_paired([e.message for e in shown])
    assert shown[2].message.text == "y" * 400
    assert sum(SIZES.message(e.message) for e in shown) <= 400
    assert "cut to fit" in shown[1].message.text


def test_a_call_whose_arguments_are_the_trouble_becomes_text() -> None:
    huge = Message(
        id="a",
        role="assistant",
        content=(),
        time=1,
        tool_calls=(ToolCall("c1", "write_file", '{"content": "' + "z" * 40_000 + '"}'),),
    )
    shown = material.shown([Entry(huge, 4), Entry(tool("c1", "written"), 5)], 0, 500, SIZES)
    assert len(shown) == 1
    assert shown[0].message.role == "user"
    assert SIZES.message(shown[0].message) <= 500
    assert shown[0].message.text.startswith("[assistant]")


def test_no_cut_no_copy() -> None:
    assert material.shown(CONTEXT, 2, None, SIZES) == tuple(CONTEXT[2:])


def test_even_the_tightest_cut_shows_something() -> None:
    shown = material.shown(CONTEXT, 1, 1, SIZES)
    assert shown
    assert all(e.message.content or e.message.tool_calls for e in shown)
