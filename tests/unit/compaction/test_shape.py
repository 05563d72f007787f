"""What replaces a span, per shape: order, what stays verbatim, what shrinks under pressure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from protocol.events import TodoItem
from protocol.messages import Message, Origin
from record_store.fold import Entry
from record_store.pins import PinnedSkill
from record_store.records import Kept, New
from sidecar.compaction import summary_prompt as words
from sidecar.compaction.policy import Policy
from sidecar.compaction.shape import Shaped, Span, build_shape
from tests.support.compaction_agent import assert_paired
from tests.unit.compaction.build import IMAGE, SIZES, assistant, entries, ids, policy, system, tool, user


def shape(p: Policy, context: Sequence[Entry], summary: str = "It went well.", **more: Any) -> Shaped:
    values: dict[str, Any] = {
        "time": 9,
        "around_tokens": 100,
        "wire_path": "/d/wire.jsonl",
        "windows": [(3, 40)],
        **more,
    }
    return build_shape(p, Span("cmp", context, **values), summary, SIZES)


def filler(tokens: int, label: str = "x") -> str:
    return label * (4 * (tokens - 4))


WORK = [
    user("u1", "build a parser"),
    assistant("a1", "reading", "c1"),
    tool("c1", filler(300)),
    user("u2", "use port 8081"),
    assistant("a2", "fixing", "c2"),
    tool("c2", filler(300)),
    assistant("a3", "done so far"),
]


# ---------------------------------------------------------------- handoff


def test_handoff_keeps_the_users_words_summary_continuation() -> None:
    made = shape(policy(preset="handoff"), entries(*WORK))
    assert ids(made.messages) == ["u1", "u2", "cmp.summary", "cmp.continuation"]
    assert made.replacement[:2] == (Kept("u1"), Kept("u2"))
    summary, continuation = made.messages[2:]
    assert summary.origin == Origin("compaction_summary")
    assert summary.role == "user"
    assert summary.text.startswith(words.SUMMARY_PREFIX)
    assert "It went well." in summary.text
    assert continuation.origin == Origin("injection", variant="compaction_continuation")
    assert continuation.text == words.CONTINUATION
    assert made.tokens == sum(map(SIZES.message, made.messages))
    assert made.shadows
    assert made.elided == 0


def test_only_real_user_input_is_kept() -> None:
    odd = [
        user("note", "date", origin=Origin("injection", variant="date")),
        user("shell", "$ ls", origin=Origin("shell_command")),
        user("cron", "tick", origin=Origin("cron_job")),
        user("hook", "ran", origin=Origin("hook_result")),
        user("auto", "skill", origin=Origin("skill_activation", trigger="model")),
        user("slash", "/review", origin=Origin("skill_activation", trigger="user_slash")),
    ]
    made = shape(policy(preset="handoff"), entries(*WORK, *odd))
    assert ids(made.messages) == ["u1", "u2", "slash", "cmp.summary", "cmp.continuation"]


def test_system_messages_of_the_context_stay() -> None:
    made = shape(policy(preset="handoff"), entries(system("s", "be brief"), *WORK))
    assert ids(made.messages)[0] == "s"


def test_images_of_the_user_stay_in_their_messages() -> None:
    made = shape(policy(preset="handoff"), entries(user("u0", "look", IMAGE), *WORK))
    assert made.messages[0].content[-1] is IMAGE


def test_head_note_and_tail_over_budget() -> None:
    context = entries(*(user(f"u{i}", filler(300, chr(97 + i))) for i in range(12)), assistant("a", "ok"))
    made = shape(policy(preset="handoff"), context)  # budget 2,000, head 200
    assert ids(made.messages)[:2] == ["cmp.head", "cmp.elision"]
    assert ids(made.messages)[-2:] == ["cmp.summary", "cmp.continuation"]
    kept = [m for m in made.messages if m.id.startswith("u") or m.id in ("cmp.head", "cmp.tail")]
    tokens = sum(map(SIZES.message, kept))
    assert 1_950 <= tokens <= 2_000
    assert made.elided == 3_600 - tokens
    note = made.messages[1]
    assert note.origin == Origin("injection", variant="compaction_elision")
    assert f"{made.elided} tokens" in note.text


def landed(made: Shaped, *more: Message) -> list[Entry]:
    """The context after a landing and some more messages."""
    return [*(Entry(m, 50) for m in made.messages), *entries(*more, first_line=60)]


def test_the_number_left_out_is_cumulative_and_nothing_is_stacked() -> None:
    p = policy(preset="handoff")
    context = entries(*(user(f"u{i}", filler(300, chr(97 + i))) for i in range(12)), assistant("a", "ok"))
    first = shape(p, context)
    again = landed(first, *(user(f"v{i}", filler(300, chr(65 + i))) for i in range(4)), assistant("b", "ok"))
    second = shape(p, again, "Newer.", elided=first.elided)
    assert second.elided > first.elided
    texts = [m.text for m in second.messages]
    assert sum(t.startswith(words.SUMMARY_PREFIX) for t in texts) == 1
    assert sum("left out to save space" in t for t in texts) == 1
    assert f"{second.elided} tokens" in "".join(texts)
    head = second.messages[0]
    assert head.text == first.messages[0].text
    assert ids(second.messages)[1] == "cmp.elision"


def test_a_gap_keeps_its_note_when_nothing_more_is_left_out() -> None:
    p = policy(preset="handoff")
    context = entries(*(user(f"u{i}", filler(300, chr(97 + i))) for i in range(12)), assistant("a", "ok"))
    first = shape(p, context)
    kept = len([m for m in first.messages if m.origin is None])
    roomy = shape(policy(20_000, preset="handoff"), landed(first, assistant("b", "ok")), elided=first.elided)
    assert roomy.elided == first.elided
    assert ids(roomy.messages).index("cmp.elision") == 1
    assert len([m for m in roomy.messages if m.origin is None]) == kept


def test_nothing_left_to_compact() -> None:
    p = policy(preset="handoff")
    first = shape(p, entries(*WORK))
    assert not shape(p, landed(first)).shadows
    assert not shape(p, landed(first, user("u3", "and now?"))).shadows
    assert shape(p, landed(first, assistant("a9", "well"))).shadows
    assert not shape(p, []).shadows
    assert shape(p, landed(first, user("u3", filler(5_000)))).shadows
    date = user("d", "<current-date>", origin=Origin("injection", variant="date"))
    assert not shape(p, landed(first, date, user("u3", "and now?"))).shadows, "the next turn tells it again"
    assert shape(p, landed(first, user("m", "recalled", origin=Origin("injection", variant="memory_recall")))).shadows


def test_user_text_shrinks_until_the_target_is_met_but_not_for_nothing() -> None:
    p = policy(preset="handoff")  # target 5,000
    context = entries(*(user(f"u{i}", filler(300, chr(97 + i))) for i in range(6)), assistant("a", "ok"))
    roomy = shape(p, context, filler(1_000, "s"))
    assert not any(m.id == "cmp.elision" for m in roomy.messages)
    tight = shape(p, context, filler(3_500, "s"))
    assert tight.tokens + 100 < p.target
    assert any(m.id == "cmp.elision" for m in tight.messages)
    assert tight.messages[0].text == "a" * len(tight.messages[0].text)
    hopeless = shape(p, context, filler(9_000, "s"))
    kept = [m for m in hopeless.messages if m.origin is None]
    assert sum(map(SIZES.message, kept)) >= 150


def test_inline_skills_are_pinned_after_the_summary_verbatim() -> None:
    skill = PinnedSkill("review", "1. Read.\n2. Judge.")
    made = shape(policy(preset="handoff"), entries(*WORK), skills=[skill])
    assert ids(made.messages) == ["u1", "u2", "cmp.summary", "cmp.skill-1", "cmp.continuation"]
    assert skill.body in made.messages[3].text
    again = shape(policy(preset="handoff"), landed(made, assistant("b", "x")), skills=[skill])
    assert sum(skill.body in m.text for m in again.messages) == 1


def test_a_skill_that_a_kept_message_shows_is_not_pinned_twice() -> None:
    skill = PinnedSkill("review", "1. Read.\n2. Judge.")
    slash = user("s", "/review\n" + skill.body, origin=Origin("skill_activation", trigger="user_slash"))
    made = shape(policy(preset="handoff"), entries(*WORK, slash), skills=[skill])
    assert sum(skill.body in m.text for m in made.messages) == 1


def test_todos_stand_in_the_summary() -> None:
    made = shape(policy(preset="handoff"), entries(*WORK), todos=[TodoItem("ship", "pending")])
    assert made.messages[2].text.endswith("## TODO List\n- [ ] ship")


# ---------------------------------------------------------------- span


def exchange(i: int, size: int = 100) -> list[Message]:
    return [assistant(f"a{i}", f"step {i}", f"c{i}"), tool(f"c{i}", filler(size))]


def long_work(steps: int, size: int = 100, first: str = "build a parser") -> list[Entry]:
    messages = [system("s", "be brief"), user("u1", first)]
    for i in range(steps):
        messages += exchange(i, size)
    return entries(*messages)


def test_span_keeps_system_first_user_and_a_raw_tail() -> None:
    made = shape(policy(preset="span"), long_work(10))
    assert ids(made.messages) == ["s", "u1", "cmp.summary", "a7", "r-c7", "a8", "r-c8", "a9", "r-c9"]
    assert_paired(made.messages)


def test_the_span_tail_widens_to_whole_pairs() -> None:
    made = shape(policy(preset="span", keep_last_messages=1), long_work(5))
    assert ids(made.messages) == ["s", "u1", "cmp.summary", "a4", "r-c4"]


def test_orphans_that_were_there_do_not_widen_it() -> None:
    context = [*long_work(6), *entries(tool("lost", "?"), assistant("z", "hm"), first_line=60)]
    made = shape(policy(preset="span", keep_last_messages=2), context)
    assert ids(made.messages) == ["s", "u1", "cmp.summary", "r-lost", "z"]


def test_an_earlier_summary_is_not_in_head_or_tail() -> None:
    p = policy(preset="span")
    first = shape(p, long_work(10))
    context = [*(Entry(m, 50) for m in first.messages), *entries(*exchange(11), first_line=60)]
    second = shape(p, context, "Newer.")
    assert sum(m.text.startswith(words.SUMMARY_PREFIX) for m in second.messages) == 1
    assert_paired(second.messages)


def test_the_tail_shrinks_first_then_the_first_user_message() -> None:
    p = policy(preset="span")  # target 5,000; trigger less margin 7,000
    made = shape(p, long_work(10, 1_900))
    assert made.tokens + 100 < p.target
    assert ids(made.messages)[-4:] == ["a8", "r-c8", "a9", "r-c9"]
    assert "u1" in ids(made.messages)
    made = shape(p, long_work(10, 1_900, first=filler(6_000, "f")))
    assert made.tokens + 100 < p.trigger_at - p.margin
    cut = next(m for m in made.messages if m.id == "cmp.head")
    assert set(cut.text) == {"f"}
    assert ids(made.messages)[-2:] == ["a9", "r-c9"]


def test_a_context_that_is_all_tail_has_nothing_to_compact() -> None:
    assert not shape(policy(preset="span"), long_work(2)).shadows
    assert shape(policy(preset="span"), long_work(9)).shadows


# ---------------------------------------------------------------- ladder


def test_ladder_puts_the_summary_in_tags_and_keeps_a_tail_of_tokens() -> None:
    p = policy(preset="ladder", tail_tokens=500)
    made = shape(p, long_work(10))
    assert ids(made.messages) == [
        "s", "u1", "cmp.summary", "a6", "r-c6", "a7", "r-c7", "a8", "r-c8", "a9", "r-c9",
    ]  # fmt: skip
    text = made.messages[2].text
    assert text.index("<compaction-summary>") < text.index("## Context Recovery") < text.index("</compaction-summary>")
    tail = made.messages[3:]
    assert sum(map(SIZES.message, tail)) <= 500


def test_ladder_keeps_a_long_first_message_out() -> None:
    p = policy(preset="ladder", tail_tokens=500)  # 15 % of 10,000 tokens is its bound
    assert "u1" in ids(shape(p, long_work(10, first=filler(1_500))).messages)
    assert "u1" not in ids(shape(p, long_work(10, first=filler(1_501))).messages)
    small = policy(6_000, preset="ladder", tail_tokens=300)
    assert "u1" not in ids(shape(small, long_work(10, first=filler(901))).messages)


def test_ladder_keeps_two_messages_however_large() -> None:
    p = policy(preset="ladder", tail_tokens=100)
    made = shape(p, long_work(10, 2_000))
    assert ids(made.messages) == ["s", "u1", "cmp.summary", "a9", "r-c9"]


def test_the_ladder_tail_shrinks_to_the_target() -> None:
    p = policy(preset="ladder", tail_tokens=5_000)
    made = shape(p, long_work(20, 400))
    assert made.tokens + 100 < p.target
    assert_paired(made.messages)


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("preset", ["handoff", "span", "ladder"])
def test_what_is_kept_is_kept_by_id_and_what_is_made_has_ids_of_its_own(preset: str) -> None:
    made = shape(policy(preset=preset, tail_tokens=500), long_work(10))
    for replacement, message in zip(made.replacement, made.messages, strict=True):
        if isinstance(replacement, Kept):
            assert replacement.message_id == message.id
        else:
            assert isinstance(replacement, New)
            assert replacement.message is message
            assert message.id.startswith("cmp.")
            assert message.time == 9


@pytest.mark.parametrize("preset", ["handoff", "span", "ladder"])
def test_equal_input_gives_equal_output(preset: str) -> None:
    assert shape(policy(preset=preset), long_work(10)) == shape(policy(preset=preset), long_work(10))


@pytest.mark.parametrize("preset", ["handoff", "span", "ladder"])
def test_what_was_appended_since_counts_towards_the_target(preset: str) -> None:
    p = policy(preset=preset, keep_last_messages=16, user_message_max_tokens=4_000)
    context = entries(*(m for i in range(30) for m in (user(f"u{i}", filler(200)), assistant(f"a{i}", filler(200)))))
    alone, along = (shape(p, context, around_tokens=100 + appended) for appended in (0, 2_500))
    assert alone.tokens + 100 < p.target
    assert along.tokens + 2_600 < p.target
    assert along.tokens < alone.tokens


def edited(id: str, text: str) -> Message:
    return user(id, text, origin=Origin("injection", variant="instructions_changed"))


def test_edits_of_the_instructions_are_pinned_where_no_tail_holds_them() -> None:
    context = entries(
        user("u1", "go"), edited("n1", "use tabs"), *WORK[1:], edited("n2", "use spaces"), user("u3", "on")
    )
    handoff = shape(policy(preset="handoff"), context)
    assert ids(handoff.messages) == ["u1", "u2", "u3", "cmp.summary", "n1", "n2", "cmp.continuation"]
    again = shape(policy(preset="handoff"), landed(handoff, assistant("a9", "well")))
    assert ids(again.messages) == ids(handoff.messages)
    assert not shape(policy(preset="handoff"), landed(handoff)).shadows
    span = shape(policy(preset="span", keep_last_messages=3), context)
    assert ids(span.messages) == ["u1", "cmp.summary", "n1", "a3", "n2", "u3"]


def test_only_the_newest_edits_are_pinned() -> None:
    context = entries(user("u1", "go"), *(edited(f"n{i}", filler(500)) for i in range(9)), assistant("a1", "well"))
    made = shape(policy(40_000, preset="handoff"), context)
    assert ids(made.messages) == ["u1", "cmp.summary", "n5", "n6", "n7", "n8", "cmp.continuation"]
