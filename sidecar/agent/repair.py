"""What an agent's log needs so that a turn can begin: records that close what an abrupt end left open. Pure."""

from __future__ import annotations

from collections.abc import Container

from protocol.errors import CODES
from protocol.info import Recovered
from protocol.messages import ErrorInfo, Usage
from record_store.fold import State
from record_store.records import AppendMessage, Record, TurnBegin, TurnEnd
from sidecar.agent.view import open_calls, synthetic_result


def records_to_settle(
    state: State, now_ms: int, reason: str, *, waiting: Container[str] | None = None
) -> tuple[list[Record], list[Recovered]]:
    """Records that answer open calls and end the open turn (`error`, with `reason`). Acknowledged inputs
    enter the context too, each as a turn that ended the same way: nothing is lost, nothing runs by itself; all of
    them, or those whose turn is in `waiting`."""
    records: list[Record] = []
    found: list[Recovered] = []
    calls = open_calls(state.entries)
    for call in calls:
        records.append(AppendMessage(time=now_ms, message=synthetic_result(call, now_ms), turn_id=state.open_turn))
    if calls:
        names = ", ".join(sorted({c.name for c in calls}))
        found.append(Recovered(kind="open_calls", detail=f"{len(calls)} calls without a result: {names}"))
    if state.open_turn is not None:
        records.append(_ended(state.open_turn, now_ms, reason))
        found.append(Recovered(kind="open_turn", detail=f"turn {state.open_turn} was running"))
    inputs: dict[str, list[str]] = {}
    for pending in state.pending:
        if pending.kind == "turn" and (waiting is None or pending.turn_id in waiting):
            inputs.setdefault(pending.turn_id, []).append(pending.entry.message.id)
    for turn_id, queued in inputs.items():
        records.append(TurnBegin(time=now_ms, turn_id=turn_id, queued=tuple(queued)))
        records.append(_ended(turn_id, now_ms, reason))
        found.append(Recovered(kind="open_turn", detail=f"turn {turn_id} was waiting to run"))
    return records, found


def _ended(turn_id: str, now_ms: int, reason: str) -> TurnEnd:
    message = {
        "restart": "The daemon ended while this turn was running.",
        "store_write_failed": "The event log could not be written.",
    }.get(reason, "The turn was interrupted.")
    code = CODES.get(reason, CODES["internal"])
    return TurnEnd(
        time=now_ms,
        turn_id=turn_id,
        stop_reason="error",
        usage=Usage(0, 0, 0, 0),
        error=ErrorInfo(code=code, reason=reason, message=message),
    )
