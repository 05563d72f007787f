"""Which inline skills are in use: those that the context shows."""

from __future__ import annotations

from protocol.messages import Message, TextPart
from record_store import pins
from record_store import records as r
from record_store.fold import State, apply
from record_store.pins import PinnedSkill

A1 = PinnedSkill("a", '<skill name="a" file="a.md">\n' + "Polish the shoes. " * 20 + "\n\nArguments: one\n</skill>")
A2 = PinnedSkill("a", A1.body.replace("one", "two"))
B = PinnedSkill("b", '<skill name="b" file="b.md">\nSweep.\n</skill>')


def message(id: str, text: str) -> Message:
    return Message(id=id, role="user", content=(TextPart(text),), time=1)


def folded(*records: r.Record) -> State:
    state = State()
    for line, record in enumerate(records, 1):
        apply(state, record, line)
    return state


def turn(n: int, *used: PinnedSkill) -> list[r.Record]:
    made: list[r.Record] = [r.TurnBegin(1, f"t{n}"), r.AppendMessage(1, message(f"u{n}", f"turn {n}"))]
    for skill in used:
        made.append(r.SkillActivate(1, skill.name, "inline", "model", skill.body))
        made.append(r.AppendMessage(1, message(f"m{n}{skill.body}", skill.body)))
    return made


def landing(count: int, *texts: str) -> r.ApplyCompaction:
    new = tuple(r.New(message(f"new{i}", text)) for i, text in enumerate(texts))
    return r.ApplyCompaction(
        1, "cmp", "handoff", "model", message_count=count, replacement=new, pre_tokens=9, post_tokens=1,
        replacement_count=len(new), elided_tokens=0,
    )  # fmt: skip


def test_the_last_activation_of_each_skill_is_in_use() -> None:
    state = folded(*turn(1, A1, B), *turn(2, A2))
    assert state.skills_in_use() == [B, A2]


def test_a_turn_that_is_undone_takes_its_skills_along() -> None:
    state = folded(*turn(1, B), *turn(2, A1), r.Undo(1, turns=1, keep=2))
    assert state.skills_in_use() == [B]
    assert state.skills == [B]


def test_the_activation_before_an_undone_one_is_in_use_again() -> None:
    state = folded(*turn(1, A1), *turn(2, A2), r.Undo(1, turns=1, keep=2))
    assert state.skills_in_use() == [A1]


def test_activations_that_differ_in_the_middle_are_told_apart() -> None:
    rest = "Look at it well. " * 9
    one = PinnedSkill("c", f'<skill name="c" file="c.md">\n{rest}Ship to one. {rest}\n</skill>')
    two = PinnedSkill("c", one.body.replace("one", "two"))
    state = folded(*turn(1, one), *turn(2, two), r.Undo(1, turns=1, keep=2))
    assert state.skills_in_use() == state.skills == [one]


def test_another_past_told_by_the_host_has_its_own_skills() -> None:
    told = (message("h1", "from the host"),)
    state = folded(*turn(1, B), *turn(2, A1), r.HostRevision(1, from_message=2, keep=2, messages=told))
    assert state.skills_in_use() == [B]


def test_one_whose_message_still_waits_is_not_forgotten() -> None:
    waiting = r.AppendMessage(1, message("w", B.body), queued="turn", turn_id="t2")
    activate = r.SkillActivate(1, "b", "inline", "user_slash", B.body)
    state = folded(*turn(1), activate, waiting, r.Undo(1, turns=1, keep=0))
    assert state.skills == state.skills_in_use() == [B]


def test_a_landing_pins_the_last_and_forgets_earlier_ones() -> None:
    state = folded(*turn(1, A1), *turn(2, A2, B), landing(5, "summary", f"in use: {A2.body}", f"in use: {B.body}"))
    assert state.skills == [A2, B]
    assert state.skills_in_use() == [A2, B]


def test_a_text_whose_middle_was_spilled_is_known_by_its_ends() -> None:
    cut = f"{A1.body[:80]}\n[spilled]\n{A1.body[-80:]}"
    assert pins.shown([A1, A2, B], [cut]) == [A1]
