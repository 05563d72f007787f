"""Events as a bounded async iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import anyio
from msgspec.structs import replace

from protocol.events import ChatEvent, ReasoningDelta, TextDelta, TurnEnded
from sidecar.client.errors import ConnectionLost, EventsLost

DEFAULT_CAPACITY = 4096
"""Events that a stream holds for a reader that lags."""


class EventStream:
    """Events of one session, or of all that the client is attached to, in the daemon's order.

    Nothing here waits: the connection is read whether or not this stream is. When it is full, deltas of one message
    are merged; when that does not help, what is held is dropped and the reader gets one `EventsLost`.
    """

    def __init__(self, session_id: str | None, capacity: int = DEFAULT_CAPACITY) -> None:
        self.session_id = session_id
        self._capacity = capacity
        self._events: deque[ChatEvent] = deque(maxlen=capacity)
        self._lost: EventsLost | None = None
        self._last_event_id: str | None = None
        self._closed = False
        self._cut_off: ConnectionLost | None = None
        self._news = anyio.Event()

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        """The next event. Raises `EventsLost` once after a gap; ends when the client is closed or lost its daemon."""
        while True:
            if self._lost is not None:
                lost, self._lost = self._lost, None
                raise lost
            if self._events:
                return self._events.popleft()
            if self._closed:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()

    async def of_turn(self, turn_id: str) -> AsyncIterator[ChatEvent]:
        """The events of one turn, its `turn_ended` last. Those of other turns in between are skipped.

        Raises `ConnectionLost` when the daemon is gone for good before the turn's end came.
        """
        async for event in self:
            if event.turn_id == turn_id:
                yield event
                if isinstance(event.event, TurnEnded):
                    return
        if self._cut_off is not None:
            raise self._cut_off

    # ---------------------------------------------------------------- the client's side

    def push(self, event: ChatEvent) -> None:
        if self.session_id is not None and event.session_id != self.session_id:
            return
        if len(self._events) == self._capacity:
            self._merge_deltas()
        if len(self._events) == self._capacity:
            self._events.clear()
            self._lost = EventsLost(self.session_id, self._last_event_id, "The reader of events was too slow")
        self._last_event_id = event.event_id
        self._events.append(event)
        self._news.set()

    def lose(self, session_id: str, message: str) -> None:
        """Tells the reader that events of this session were missed."""
        if self.session_id in (None, session_id):
            self._lost = EventsLost(session_id, self._last_event_id, message)
            self._news.set()

    def close(self, lost: ConnectionLost | None = None) -> None:
        """No more will come; `lost` is why, unless the host wanted it."""
        self._closed = True
        self._cut_off = self._cut_off or lost
        self._news.set()

    def _merge_deltas(self) -> None:
        merged: list[ChatEvent] = []
        for item in self._events:
            joined = _join(merged[-1], item) if merged else None
            if joined is None:
                merged.append(item)
            else:
                merged[-1] = joined
        self._events = deque(merged, maxlen=self._capacity)


def _join(first: ChatEvent, second: ChatEvent) -> ChatEvent | None:
    """One delta for two that follow each other in the same message; None for anything else."""
    a, b = first.event, second.event
    if isinstance(a, TextDelta) and isinstance(b, TextDelta):
        if (first.session_id, a.message_id, a.offset + len(a.text)) != (second.session_id, b.message_id, b.offset):
            return None
        return replace(second, event=TextDelta(message_id=a.message_id, text=a.text + b.text, offset=a.offset))
    if isinstance(a, ReasoningDelta) and isinstance(b, ReasoningDelta):
        if (first.session_id, a.message_id, a.offset + len(a.text)) != (second.session_id, b.message_id, b.offset):
            return None
        return replace(second, event=ReasoningDelta(message_id=a.message_id, text=a.text + b.text, offset=a.offset))
    return None
