"""A session's events: numbered, kept for replay, sent to those that are attached."""

from __future__ import annotations

import secrets
from collections import deque
from itertools import islice

from protocol.events import DELTAS, AnyEvent, ChatEvent
from sidecar.sessions.ports import Client

EPOCH = secrets.token_hex(4)
"""Names this process in event ids: numbers of another process mean nothing here."""

KEPT_EVENTS = 4096
"""Durable events per session that can be replayed."""

REPLAY_BATCH = 64
"""Events that are sent before the client's pace is looked at."""


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

    async def attach(self, client: Client, after_event: str | None) -> tuple[int, bool]:
        """Sends what follows `after_event`, then everything new. Returns (events replayed, resync required).

        A long replay goes at the client's pace; what happens meanwhile follows in order, without its deltas.
        """
        self.clients.pop(client.id, None)
        start = self._number_of(after_event)
        sent, resync = 0, after_event is not None and start is None
        while start is not None and start + sent < self._n:
            batch = self._kept_after(start + sent)
            if batch is None:
                resync = True
                break
            for told in batch:
                client.event(told)
            sent += len(batch)
            await client.writable()
        self.clients[client.id] = client
        return sent, resync

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

    def _number_of(self, event_id: str | None) -> int | None:
        """The number in an id of this process; None for any other text, and for None."""
        epoch, _, number = (event_id or "").rpartition("-")
        known = epoch == EPOCH and number.isascii() and number.isdigit() and len(number) < 19
        return int(number) if known and int(number) <= self._n else None

    def _kept_after(self, number: int) -> list[ChatEvent] | None:
        """The next kept events, at most `REPLAY_BATCH`; None if some of them are gone."""
        skip = number - (self._n - len(self._kept))
        return None if skip < 0 else list(islice(self._kept, skip, skip + REPLAY_BATCH))


class AgentEvents:
    """The events of one agent of a session."""

    def __init__(self, hub: EventHub, agent_id: str) -> None:
        self._hub = hub
        self._agent_id = agent_id

    def emit(self, event: AnyEvent, turn_id: str | None = None) -> None:
        self._hub.emit(self._agent_id, event, turn_id)

    async def writable(self) -> None:
        await self._hub.writable()
