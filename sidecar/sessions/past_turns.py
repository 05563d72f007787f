"""How turns of the past ended: as the state remembers the newest of them, else as the log says."""

from __future__ import annotations

from anyio import to_thread

from protocol.errors import CODES
from protocol.messages import ErrorInfo, TurnResult, Usage
from record_store.backend import Journal
from record_store.errors import StoreError
from record_store.fold import State
from record_store.records import AppendMessage, TurnEnd
from record_store.replay import typed
from sidecar.store_errors import store_fault


def remembered(state: State, turn_id: str) -> TurnResult | None:
    past = state.outcomes.get(turn_id)
    if past is None:
        return None
    return TurnResult(turn_id=turn_id, stop_reason=past.stop_reason, text=past.text, usage=past.usage, error=past.error)


async def past_turn(journal: Journal, turn_id: str) -> TurnResult:
    """The result of a turn that is over, however long ago; `store_damaged` if the log lost it. Older turns cost one
    reading of the log, in a thread."""
    known = remembered(journal.state, turn_id)
    if known is not None:
        return known
    try:
        await journal.sync()
        found = await to_thread.run_sync(_in_log, journal, turn_id)
    except StoreError as error:
        raise store_fault(error) from error
    if found is not None:
        return found
    lost = ErrorInfo(
        code=CODES["store_damaged"], reason="store_damaged", message="The log does not say how this turn ended."
    )
    return TurnResult(turn_id=turn_id, stop_reason="error", text="", usage=Usage(), error=lost)


def _in_log(journal: Journal, turn_id: str) -> TurnResult | None:
    needle = turn_id.encode()
    text = ""
    for _, record in typed(line for line in journal.iterate() if needle in line.raw):
        match record:
            case AppendMessage(turn_id=of) if of == turn_id and record.message.role == "assistant":
                text = record.message.text
            case TurnEnd() if record.turn_id == turn_id:
                return TurnResult(
                    turn_id=turn_id, stop_reason=record.stop_reason, text=text, usage=record.usage, error=record.error
                )
            case _:
                pass
    return None
