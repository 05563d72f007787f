"""The fold: live and replayed state are equal, whatever the records are, and none makes it raise."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import TextPart, Usage
from record_store import fold
from record_store import records as r
from record_store.fold import State
from tests.support.conversation import assistant, result, user

ids = st.sampled_from(["u-0", "u-1", "u-2", "a-x-", "r-c1", "gone"])
texts = st.sampled_from(["0", "1", "2"])
messages = st.one_of(
    st.builds(user, texts), st.just(assistant("x")), st.just(assistant("", "c1")), st.just(result("c1"))
)
small = st.integers(0, 6)
usage = st.just(Usage(5, 1, 2, 1))
replacements = st.lists(st.one_of(st.builds(r.Kept, ids), st.builds(r.New, messages)), max_size=4).map(tuple)

record = st.one_of(
    st.builds(r.ConfigUpdate, time=st.just(1), title=texts, model=st.sampled_from(["a/x", "a/y", None])),
    st.builds(r.TurnBegin, time=st.just(1), turn_id=texts, queued=st.lists(ids, max_size=2).map(tuple)),
    st.builds(r.TurnEnd, time=st.just(1), turn_id=texts, stop_reason=st.just("end_turn"), usage=usage),
    st.builds(r.StepBegin, time=st.just(1), turn_id=texts, step=small, steers=st.lists(ids, max_size=2).map(tuple)),
    st.builds(
        r.AppendMessage,
        time=st.just(1),
        message=messages,
        turn_id=st.none() | texts,
        queued=st.sampled_from([None, None, "turn", "steer"]),
        client_message_id=st.none() | texts,
    ),
    st.builds(
        r.Rewrite,
        time=st.just(1),
        action=st.sampled_from(["snip", "prune", "quarantine"]),
        pre_tokens=small,
        post_tokens=small,
        edits=st.lists(st.builds(r.Edit, ids, st.just((TextPart("cut"),))), max_size=3).map(tuple),
    ),
    st.builds(
        r.CompactionStart,
        time=st.just(1),
        compaction_id=texts,
        trigger=st.just("auto"),
        mode=st.just("background"),
        span=st.just((1, 2)),
        message_count=small,
        pre_tokens=small,
    ),
    st.builds(
        r.ApplyCompaction,
        time=st.just(1),
        compaction_id=texts,
        shape=st.just("handoff"),
        summary_kind=st.just("model"),
        message_count=small,
        replacement=replacements,
        pre_tokens=small,
        post_tokens=small,
        replacement_count=small,
    ),
    st.builds(r.CompactionCancel, time=st.just(1), compaction_id=texts, reason=st.just("stale")),
    st.builds(r.Undo, time=st.just(1), turns=small, keep=small),
    st.builds(r.Clear, time=st.just(1)),
    st.builds(
        r.HostRevision,
        time=st.just(1),
        from_message=small,
        keep=small,
        messages=st.lists(messages, max_size=2).map(tuple),
    ),
    st.builds(
        r.LlmUsage,
        time=st.just(1),
        kind=st.sampled_from(["step", "compaction"]),
        model=st.just("a/x"),
        prompt_tokens=small,
        cached_tokens=small,
        completion_tokens=small,
    ),
    st.builds(r.WindowLearned, time=st.just(1), model=st.just("a/x"), window=small, source=st.just("named")),
)


def fold_all(records: list[r.Record], state: State | None = None, first: int = 1) -> State:
    state = State() if state is None else state
    for line, one in enumerate(records, first):
        fold.apply(state, one, line)
    return state


@given(st.lists(record, max_size=25), st.integers(0, 25))
@settings(max_examples=300)
def test_a_state_that_went_through_a_checkpoint_goes_on_like_one_that_did_not(
    records: list[r.Record], cut: int
) -> None:
    straight = fold_all(records)
    half = fold_all(records[:cut])
    restored = msgspec.json.decode(msgspec.json.encode(half), type=State)
    assert restored == half
    resumed = fold_all(records[cut:], restored, len(records[:cut]) + 1)
    assert msgspec.json.encode(resumed) == msgspec.json.encode(straight)


@given(st.lists(record, max_size=25))
@settings(max_examples=200)
def test_marks_and_anchors_stay_inside_the_context(records: list[r.Record]) -> None:
    state = State()
    for line, one in enumerate(records, 1):
        before, rewrites = list(state.entries), state.rewrites
        fold.apply(state, one, line)
        assert all(0 <= m.start <= len(state.entries) for m in state.turn_marks)
        if state.anchor_tokens is not None:
            assert state.anchor_count <= len(state.entries)
        if state.rewrites == rewrites:
            assert len(state.entries) >= len(before)
            assert all(a is b for a, b in zip(before, state.entries, strict=False))


@given(st.lists(record, max_size=25))
def test_records_survive_their_own_encoding(records: list[r.Record]) -> None:
    for one in records:
        assert msgspec.json.decode(msgspec.json.encode(one), type=r.AnyRecord) == one
