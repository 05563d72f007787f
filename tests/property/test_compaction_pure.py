"""Properties of the pure modules on any conversation: whole pairs, verbatim words, budgets, idempotence."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.messages import ImagePart, Message, Origin, TextPart, ToolCall
from record_store import records as r
from record_store.fold import Entry, State, apply
from sidecar.compaction import free_half, material, regions
from sidecar.compaction.free_half import READ_ONLY_LIMITS
from sidecar.compaction.shape import Span, build_shape
from sidecar.compaction.sizes import cut_text
from sidecar.compaction.summarizer import Material, first_attempt
from tests.support.compaction_agent import assert_paired
from tests.unit.compaction.build import SIZES, policy

ORIGINS = st.sampled_from(
    [None, None, Origin("user"), Origin("injection", variant="date"), Origin("skill_activation", trigger="user_slash")]
)
TEXTS = st.integers(0, 1_500).map(lambda n: "".join(f"{i:04d}·" for i in range(n // 5)))


@st.composite
def conversations(draw: Any) -> list[Entry]:
    """Well-paired conversations with images, injections, system messages and parallel calls."""
    messages: list[Message] = []

    def add(role: Any, text: str, **more: Any) -> None:
        images = (ImagePart("image/png", data="eA=="),) if draw(st.integers(0, 9)) == 0 else ()
        content = (TextPart(text), *images) if role != "assistant" else (TextPart(text),)
        messages.append(Message(id=f"m{len(messages)}", role=role, content=content, time=1, **more))

    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "exchange", "exchange", "system"]))
        text = draw(TEXTS)
        if kind != "exchange":
            add(kind, text, origin=draw(ORIGINS) if kind == "user" else None)
            continue
        calls = tuple(ToolCall(f"c{len(messages)}-{i}", "grep", "{}") for i in range(draw(st.integers(1, 3))))
        add("assistant", text, tool_calls=calls)
        for call in calls:
            add("tool", draw(TEXTS), tool_call_id=call.id, name="grep", is_error=draw(st.booleans()))
    return [Entry(m, line) for line, m in enumerate(messages, 2)]


def shaped_context(context: list[Entry], made: Any) -> State:
    """The context after the landing, by the fold."""
    state = State(entries=list(context))
    record = r.ApplyCompaction(
        1, "cmp", "handoff", "model", len(context), made.replacement, 2, 1, len(made.replacement), made.elided
    )
    apply(state, record, 99)
    return state


@run_settings(max_examples=250, deadline=None)
@given(
    context=conversations(),
    preset=st.sampled_from(["handoff", "span", "ladder"]),
    window=st.sampled_from([1_000, 3_000, 20_000]),
    summary=st.sampled_from(["short", "s" * 2_000]),
)
def test_every_shape_of_every_conversation(context: list[Entry], preset: str, window: int, summary: str) -> None:
    p = policy(window, preset=preset)
    span = Span("cmp", context, 9, 20, "/w", [(2, 9)])
    made = build_shape(p, span, summary, SIZES)
    state = shaped_context(context, made)
    assert state.messages() == list(made.messages), "the fold splices what was weighed"
    assert made.tokens == sum(map(SIZES.message, made.messages))
    assert_paired(made.messages)
    assert len({m.id for m in made.messages}) == len(made.messages)
    assert [m for m in made.messages if m.role == "system"] == [
        e.message for e in context if e.message.role == "system"
    ]
    said = [e.message.text for e in context if regions.is_real_user_input(e.message)]
    kept = [m for m in made.messages if regions.is_real_user_input(m)]
    for message in kept:
        assert any(message.text in text or message.text.startswith("[image left out") for text in said)
    if preset == "handoff":
        assert sum(map(SIZES.message, kept)) <= p.user_message_max_tokens
        assert not any(m.role in ("assistant", "tool") for m in made.messages)

    again = Span("cmp2", state.entries, 9, 20, "/w", [(2, 9), (10, 99)], elided=made.elided)
    second = build_shape(p, again, summary, SIZES)
    assert sum(map(regions.is_summary, second.messages)) == 1
    assert sum(map(regions.is_elision, second.messages)) <= 1
    assert second.elided >= made.elided
    assert_paired(second.messages)


@run_settings(max_examples=150, deadline=None)
@given(context=conversations(), excerpt=st.sampled_from([0, 30, 160]), keep_last=st.integers(0, 3))
def test_the_free_half_touches_results_and_images_only_and_once(
    context: list[Entry], excerpt: int, keep_last: int
) -> None:
    p = policy(fold_excerpt_chars=excerpt, keep_last_tool_results=keep_last)
    passes = (
        lambda c: free_half.prune_pass(p, c, SIZES, before=len(c)),
        lambda c: free_half.snip_pass(p, c, SIZES, lambda _: READ_ONLY_LIMITS, before=len(c)),
        lambda c: free_half.last_pass(p, c, SIZES, lambda _: READ_ONLY_LIMITS, enough=10**6),
    )
    for run in passes:
        now = context
        for _ in range(3):
            found = run(now)
            after = _edited(now, (*found.images.edits, *found.results.edits))
            freed = sum(SIZES.message(a.message) - SIZES.message(b.message) for a, b in zip(now, after, strict=True))
            assert freed == found.gain >= 0
            for a, b in zip(now, after, strict=True):
                if a is not b:
                    assert replace(b.message, content=a.message.content) == a.message
                    if a.message.role != "tool":
                        assert a.message.text in b.message.text
            now = after
        assert not run(now).gain, "idempotent"


def _edited(context: list[Entry], edits: tuple[r.Edit, ...]) -> list[Entry]:
    state = State(entries=list(context))
    for edit in edits:
        apply(state, r.Rewrite(1, "prune", 2, 1, edits=(edit,)), 50)
    return state.entries


@run_settings(max_examples=150, deadline=None)
@given(context=conversations(), count=st.integers(0, 9), budget=st.integers(0, 2_000))
def test_tails_are_whole(context: list[Entry], count: int, budget: int) -> None:
    messages = [e.message for e in context]
    for start in (
        regions.tail_by_messages(messages, count),
        regions.tail_by_tokens(messages, budget, SIZES),
        regions.tail_by_tokens(messages, budget, SIZES, at_least=2),
    ):
        assert_paired(messages[start:])
    assert len(messages) - regions.tail_by_messages(messages, count) >= min(count, len(messages))


@run_settings(max_examples=150, deadline=None)
@given(context=conversations(), room=st.integers(-10, 3_000), drops=st.integers(0, 12))
def test_every_summary_request_is_whole_and_never_empty(context: list[Entry], room: int, drops: int) -> None:
    if not context:
        return
    clean = material.without_images(context)
    span: Material = material.material_of(clean, SIZES, 5)
    _, ask = first_attempt(span, room)
    first = ask.first
    for _ in range(drops):
        first = span.after(first)
    shown = material.shown(clean, first, ask.cut, SIZES)
    assert shown
    assert_paired([e.message for e in shown])
    assert not any(isinstance(p, ImagePart) for e in shown for p in e.message.content)
    if ask.cut is None:
        assert sum(SIZES.message(e.message) for e in shown) <= max(room, sum(span.tokens[span.last_start :]))


@run_settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=3_000), budget=st.integers(0, 800), keep=st.sampled_from(["start", "end"]))
def test_cuts_are_ends_of_the_text(text: str, budget: int, keep: Any) -> None:
    cut = cut_text(text, budget, SIZES, keep)
    assert text.startswith(cut) if keep == "start" else text.endswith(cut)
    assert SIZES.text(cut) <= budget
    if SIZES.text(text) <= budget:
        assert cut == text
