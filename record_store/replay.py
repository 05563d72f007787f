"""Lines to states, for whoever wants a past one: the same fold as everywhere, over any log of the port. Blocking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from record_store import decoder, fold
from record_store.backend import Line, LogReader
from record_store.fold import State
from record_store.records import Record


def typed(lines: Iterable[Line]) -> Iterator[tuple[int, Record]]:
    """The known records of these lines, each with its line; damage and unknown types are passed over."""
    for line, raw in lines:
        record = decoder.decode(raw)
        if record is not None:
            yield line, record
            continue
        for whole in decoder.decode_line(raw, line).records:
            if not isinstance(whole.record, decoder.Unknown):
                yield line, whole.record


def state_at(log: LogReader, to_line: int | None = None) -> State:
    """The state right after `to_line` (None: after the last one). Reads everything before it: for a thread."""
    state = State(session_id=log.session_id, agent_id=log.agent_id)
    for line, record in typed(log.iterate(1, to_line)):
        fold.apply(state, record, line)
    return state
