"""May a finished compaction be applied? By identity of the span, and by what came after it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from protocol.messages import Message, Origin
from record_store import records as r
from record_store.fold import Entry, State, apply
from sidecar.compaction.landing import has_gain, history_safe_to_compact
from tests.unit.compaction.build import assistant, entries, tool, user

ORIGINAL = entries(user("u1", "go"), assistant("a1", "", "c1"), tool("c1", "one"))


def safe(added: list[Message], mode: Any) -> bool:
    return history_safe_to_compact([*ORIGINAL, *entries(*added, first_line=50)], ORIGINAL, mode)


def test_an_unchanged_history_is_safe() -> None:
    assert safe([], "strict")
    assert safe([], "rebase")


def test_user_input_only_lands_in_both_modes() -> None:
    assert safe([user("u2", "hurry")], "strict")
    assert safe([user("u2", "hurry")], "rebase")


def test_anything_else_appended_lands_by_rebase_only() -> None:
    for added in (
        [assistant("a2", "more", "c2"), tool("c2", "two")],
        [replace(assistant("a2", "par"), partial=True)],
        [user("n", "note", origin=Origin("injection"))],
    ):
        assert safe(added, "rebase")
        assert not safe(added, "strict")


def test_a_change_inside_makes_it_stale_even_if_it_looks_the_same() -> None:
    copy = Entry(ORIGINAL[1].message, ORIGINAL[1].line)
    assert not history_safe_to_compact([ORIGINAL[0], copy, ORIGINAL[2]], ORIGINAL, "rebase")
    assert not history_safe_to_compact(ORIGINAL[:2], ORIGINAL, "rebase")
    assert not history_safe_to_compact([], ORIGINAL, "rebase")
    assert not history_safe_to_compact(ORIGINAL[::-1], ORIGINAL, "rebase")


def state() -> State:
    s = State()
    for line, message in enumerate([user("u1", "go"), assistant("a1", "x"), user("u2", "on"), assistant("a2", "y")], 1):
        apply(s, r.AppendMessage(1, message), line)
    return s


def test_what_the_fold_does_to_the_span_is_seen() -> None:
    changes: list[r.Record] = [
        r.Undo(1, 1, 2),
        r.Clear(1),
        r.HostRevision(1, 1, 1, (user("h", "other"),)),
        r.Rewrite(1, "quarantine", 9, 8, edits=(r.Edit("u1", ()),)),
    ]
    for change in changes:
        s = state()
        original = tuple(s.entries)
        apply(s, change, 9)
        assert not history_safe_to_compact(s.entries, original, "rebase"), change


def test_what_leaves_the_span_alone_is_no_reason() -> None:
    s = state()
    original = tuple(s.entries[:2])
    for change in (r.Undo(1, 1, 2), r.TurnBegin(1, "t"), r.StepEnd(1, "t", 1, 5), r.WindowLearned(1, "m", 9, "named")):
        apply(s, change, 9)
        assert history_safe_to_compact(s.entries, original, "rebase")


def test_no_gain() -> None:
    assert has_gain(10, 9)
    assert not has_gain(10, 10)
