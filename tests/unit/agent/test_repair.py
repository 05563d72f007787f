"""What closes an abrupt end, and that nothing that was acknowledged is lost by it."""

from __future__ import annotations

from record_store import fold
from record_store.fold import State
from record_store.records import AppendMessage, Record, StepBegin, TurnBegin
from sidecar.agent.repair import records_to_settle
from tests.support.conversation import assistant, user


def folded(*records: Record) -> State:
    state = State()
    for line, record in enumerate(records, 1):
        fold.apply(state, record, line)
    return state


def settle(state: State, **options: object) -> list[str]:
    records, found = records_to_settle(state, 9, "restart", **options)  # type: ignore[arg-type]
    for record in records:
        fold.apply(state, record, state.seq + 1)
    return [f.kind for f in found]


def test_a_clean_end_needs_nothing() -> None:
    assert records_to_settle(folded(), 9, "restart") == ([], [])


def test_open_calls_and_the_open_turn_are_closed() -> None:
    state = folded(
        AppendMessage(1, user("go"), turn_id="t1", queued="turn"),
        TurnBegin(1, "t1", ("u-go",)),
        StepBegin(1, "t1", 1),
        AppendMessage(1, assistant("", "c1"), turn_id="t1"),
    )
    assert settle(state) == ["open_calls", "open_turn"]
    assert [e.message.role for e in state.entries] == ["user", "assistant", "tool"]
    assert state.entries[-1].message.is_error
    assert state.outcomes["t1"].stop_reason == "error"
    assert state.outcomes["t1"].error is not None
    assert state.outcomes["t1"].error.reason == "restart"
    assert settle(state) == []


def test_inputs_that_waited_enter_the_context_and_are_not_run() -> None:
    state = folded(
        AppendMessage(1, user("one"), turn_id="t1", queued="turn"),
        AppendMessage(1, user("two"), turn_id="t2", queued="turn"),
        AppendMessage(1, user("left"), queued="steer"),
    )
    assert settle(state) == ["open_turn", "open_turn"]
    assert [e.message.text for e in state.entries] == ["one", "two"]
    assert set(state.outcomes) == {"t1", "t2"}
    assert [p.kind for p in state.pending] == ["steer"]


def test_only_the_named_inputs_are_taken_in_while_the_session_lives() -> None:
    state = folded(
        AppendMessage(1, user("failed"), turn_id="t1", queued="turn"),
        AppendMessage(1, user("next"), turn_id="t2", queued="turn"),
    )
    settle(state, waiting={"t1"})
    assert [p.turn_id for p in state.pending] == ["t2"]
