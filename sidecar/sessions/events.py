"""A session's events: numbered, kept for replay, sent to those that are attached."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable

from protocol.events import DELTAS, AnyEvent, ChatEvent
from sidecar.sessions.ports import Client

EPOCH = secrets.token_hex(4)
"""Names this process in event ids: numbers of another process mean nothing here."""

KEPT_EVENTS = 4096
"""Durable events per session that can be replayed."""


class EventHub:
    """Owned by one session; outlives its unloading, without the kept events."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.clients: dict[str, Client] = {}
        self._n = 0
        self._kept: deque[ChatEvent] = deque(maxlen=KEPT_EVENTS)

    def emit(self, agent_id: str, event: AnyEvent, turn_id: str | None) -> None:
        """Numbers an event and sends it. A delta carries the last durable number and is not kept."""
        durable = not isinstance(event, DELTAS)
        if durable:
            self._n += 1
        elif not self.clients:
            return
        told = ChatEvent(
            session_id=self.session_id,
            agent_id=agent_id,
            event_id=f"{EPOCH}-{self._n}",
            event=event,
            turn_id=turn_id,
        )
        if durable:
            self._kept.append(told)
        for client in tuple(self.clients.values()):
            client.event(told)

    def attach(self, client: Client, after_event: str | None) -> tuple[int, bool]:
        """Sends what follows `after_event`, then everything new. Returns (events replayed, resync required)."""
        missed, resync = self._after(after_event)
        count = 0
        for told in missed:
            client.event(told)
            count += 1
        self.clients[client.id] = client
        return count, resync

    def detach(self, client_id: str) -> None:
        self.clients.pop(client_id, None)

    def forget(self) -> None:
        """Drops the kept events; numbers go on."""
        self._kept.clear()

    async def writable(self) -> None:
        """Waits for clients that must not miss a word."""
        for client in tuple(self.clients.values()):
            if client.congested:
                await client.writable()

    def _after(self, event_id: str | None) -> tuple[Iterable[ChatEvent], bool]:
        if event_id is None:
            return (), False
        epoch, _, number = event_id.rpartition("-")
        if epoch != EPOCH or not (number.isascii() and number.isdigit()) or int(number) > self._n:
            return (), True
        after = int(number)
        first_kept = self._n - len(self._kept) + 1
        if after + 1 < first_kept:
            return (), True
        return tuple(self._kept)[after - first_kept + 1 :], False


class AgentEvents:
    """The events of one agent of a session."""

    def __init__(self, hub: EventHub, agent_id: str) -> None:
        self._hub = hub
        self._agent_id = agent_id

    def emit(self, event: AnyEvent, turn_id: str | None = None) -> None:
        self._hub.emit(self._agent_id, event, turn_id)

    async def writable(self) -> None:
        await self._hub.writable()
