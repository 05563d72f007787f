"""A session's events: numbered, kept for replay, sent to those that are attached."""

from __future__ import annotations

import secrets
from collections import deque
from itertools import islice

import msgspec

from protocol.events import DELTAS, AnyEvent, ChatEvent
from sidecar.sessions.ports import Client

EPOCH = secrets.token_hex(4)
"""Names this process in event ids: numbers of another process mean nothing here."""

KEPT_EVENTS = 4096
"""Durable events per session that can be replayed."""

RESTING_BYTES = 32_768
"""What the kept events of a session that is not loaded may take, as JSON."""

PAST_HUBS = 256
"""Sessions that were closed in this process and of which the last events are still known."""

REPLAY_BATCH = 64
"""Events that are looked up at once."""


class EventHub:
    """Owned by one session; outlives its unloading, with the newest of the kept events."""

    def __init__(self, session_id: str, after: int = 0) -> None:
        """The first event has the number that follows `after`."""
        self.session_id = session_id
        self.clients: dict[str, Client] = {}
        self._n = after
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
                sent += 1
                await client.writable()
        if not client.closed:
            self.clients[client.id] = client
        return sent, resync

    def detach(self, client_id: str) -> None:
        self.clients.pop(client_id, None)

    @property
    def number(self) -> int:
        """Of the last durable event."""
        return self._n

    @property
    def is_blank(self) -> bool:
        """Whether nothing can be replayed."""
        return not self._kept

    def forget(self) -> None:
        """Nothing of what was told can be replayed any more. Numbers go on."""
        self._kept.clear()

    def rest(self) -> None:
        """The session leaves memory: of the kept events the newest stay, `RESTING_BYTES` of them. Numbers go on."""
        size, resting = 0, 0
        for told in reversed(self._kept):
            size += len(msgspec.json.encode(told))
            if size > RESTING_BYTES:
                break
            resting += 1
        while len(self._kept) > resting:
            self._kept.popleft()

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


class PastHubs:
    """The hubs of sessions that this process has no more: an event id is never given to two events of a session, and
    who resumes it can catch up. Of those that are too long ago only the highest number is remembered, for all."""

    def __init__(self) -> None:
        self._hubs: dict[str, EventHub] = {}
        self._highest = 0

    def keep(self, hub: EventHub) -> None:
        hub.clients.clear()
        hub.rest()
        self._hubs.pop(hub.session_id, None)
        if hub.is_blank and hub.number <= self._highest:
            return  # a new one goes on as well; names of sessions that never were push no others out
        self._hubs[hub.session_id] = hub
        if len(self._hubs) > PAST_HUBS:
            oldest = self._hubs.pop(next(iter(self._hubs)))
            self._highest = max(self._highest, oldest.number)

    def take(self, session_id: str) -> EventHub:
        """The hub to go on with, or a new one."""
        hub = self._hubs.pop(session_id, None)
        return EventHub(session_id, self._highest) if hub is None else hub


class AgentEvents:
    """The events of one agent of a session."""

    def __init__(self, hub: EventHub, agent_id: str) -> None:
        self._hub = hub
        self._agent_id = agent_id

    def emit(self, event: AnyEvent, turn_id: str | None = None) -> None:
        self._hub.emit(self._agent_id, event, turn_id)

    async def writable(self) -> None:
        await self._hub.writable()
