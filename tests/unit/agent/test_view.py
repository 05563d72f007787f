"""What a provider is sent: every call answered, every result behind its call, and nothing else touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Message
from record_store.fold import Entry, State
from sidecar.agent.view import WellFormed, open_calls
from tests.support.conversation import assistant, result, state_of, user


def sent(*messages: Message) -> list[Message]:
    return [e.message for e in WellFormed().follow(state_of(*messages))]


def test_a_well_formed_context_passes_through_as_the_same_objects() -> None:
    state = state_of(user("q"), assistant("look", "c1", "c2"), result("c1"), result("c2"), assistant("done"))
    entries = WellFormed().follow(state)
    assert all(a is b for a, b in zip(entries, state.entries, strict=True))


def test_an_orphan_result_is_left_out() -> None:
    assert [m.id for m in sent(user("q"), result("c9"), assistant("a"))] == ["u-q", "a-a-"]


def test_a_call_that_nothing_answered_is_closed_before_the_next_message() -> None:
    messages = sent(user("q"), assistant("", "c1", "c2"), result("c2"), user("next"))
    assert [(m.role, m.tool_call_id) for m in messages] == [
        ("user", None), ("assistant", None), ("tool", "c2"), ("tool", "c1"), ("user", None),
    ]  # fmt: skip
    assert messages[3].is_error


def test_a_blank_assistant_message_is_left_out() -> None:
    assert [m.role for m in sent(user("q"), assistant(" "), user("again"))] == ["user", "user"]


def test_a_second_result_for_the_same_call_is_left_out() -> None:
    twice = result("c1", "second")
    assert len(sent(user("q"), assistant("", "c1"), result("c1"), twice, user("n"))) == 4


def test_it_follows_an_append_and_starts_anew_after_a_rewrite() -> None:
    state = state_of(user("q"), assistant("a"))
    view = WellFormed()
    view.follow(state)
    state.entries.append(Entry(user("n"), 3))
    assert len(view.follow(state)) == 3
    state.entries[:] = state.entries[2:]
    state.rewrites += 1
    assert [e.message.id for e in view.follow(state)] == ["u-n"]


def test_open_calls_are_those_of_the_last_assistant_message() -> None:
    entries = state_of(user("q"), assistant("", "c1", "c2", "c3"), result("c2")).entries
    assert [c.id for c in open_calls(entries)] == ["c1", "c3"]
    assert open_calls(state_of(user("q"), assistant("", "c1"), result("c1"), assistant("x")).entries) == []


step = st.one_of(
    st.builds(user, st.text(min_size=1, max_size=3)),
    st.lists(st.integers(0, 6).map(lambda n: f"c{n}"), max_size=3, unique=True).map(lambda ids: assistant("", *ids)),
    st.integers(0, 6).map(lambda n: result(f"c{n}")),
)


@given(st.lists(step, max_size=20), st.integers(1, 5))
def test_whatever_the_log_holds_the_request_is_paired_and_grows_by_appending(steps: list[Message], chunk: int) -> None:
    state = State()
    view = WellFormed()
    before: list[Entry] = []
    for start in range(0, len(steps), chunk):
        state.entries += [Entry(m, i) for i, m in enumerate(steps[start : start + chunk], start)]
        # A request is built only where no call is open.
        if open_calls(state.entries):
            continue
        now = view.follow(state)
        assert now[: len(before)] == before
        before = list(now)
        waiting: list[str] = []
        for entry in now:
            message = entry.message
            if message.role == "tool":
                waiting.remove(message.tool_call_id or "")
                continue
            assert not waiting
            waiting = [c.id for c in message.tool_calls or ()]
        assert not waiting
