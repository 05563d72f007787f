"""The agent's own log and todo list, as its tools reach them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from anyio import to_thread

from protocol.events import TodoItem, TodoUpdated
from record_store.backend import Blobs, Journal
from record_store.records import TodoUpdate
from record_store.replay import typed
from sidecar.sessions.toolports import ToolDesk
from sidecar.tools.records import Stored, stored

BATCH = 256
"""Lines that are read at once."""


class LogRecords:
    """Implements `sidecar.tools.records.RecordSource`."""

    def __init__(self, journal: Journal, blobs: Blobs) -> None:
        self._journal = journal
        self._blobs = blobs

    @property
    def last_line(self) -> int:
        return self._journal.last_line

    async def newest_first(self) -> AsyncIterator[Sequence[Stored]]:
        last = self._journal.last_line
        while last >= 1:
            first = max(1, last - BATCH + 1)
            batch = await to_thread.run_sync(self._read, first, last)
            batch.reverse()
            yield batch
            last = first - 1

    async def at(self, line: int) -> Stored | None:
        found = await to_thread.run_sync(self._read, line, line)
        return found[0] if found else None

    def _read(self, first: int, last: int) -> list[Stored]:
        return [stored(record, line, self._blobs.get) for line, record in typed(self._journal.iterate(first, last))]


class LogTodos:
    """Implements `sidecar.tools.port.Todos`."""

    def __init__(self, desk: ToolDesk) -> None:
        self._desk = desk

    async def replace(self, todos: tuple[TodoItem, ...]) -> None:
        self._desk.append(TodoUpdate(time=self._desk.clock.now_ms(), todos=todos))
        self._desk.emit(TodoUpdated(todos=todos))
