"""Which sessions this process has, which of them are loaded, and when they are not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import structlog

from protocol.info import Recovered
from record_store.backend import MAIN_AGENT, OpenSession
from record_store.errors import StoreError
from sidecar.sessions.assembly import Desk, seat
from sidecar.sessions.engine import ContextEngine
from sidecar.sessions.events import EventHub, PastHubs
from sidecar.sessions.hosts import Hosts
from sidecar.sessions.ports import Client
from sidecar.sessions.prefix import SessionNotes
from sidecar.sessions.secrets import Secrets
from sidecar.sessions.services import Services
from sidecar.sessions.session import Session
from sidecar.store_errors import store_fault

_log = structlog.get_logger("sidecar.sessions")

SWEEP_S = 5.0
"""How often idle sessions are looked for."""


@dataclass(slots=True)
class Slot:
    """A session that this process created or resumed and has not closed. `loaded` is None while it is unloaded, and
    as soon as its end has begun; who is attached, who brought which tool and what must not be stored outlive an
    unloading. Whoever loads, unloads or ends the session holds `lock`."""

    session_id: str
    hub: EventHub
    hosts: Hosts
    secrets: Secrets = field(default_factory=Secrets)
    loaded: Session | None = None
    # Nobody comes between the one who made a slot and its lock.
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))


class Roster:
    """Loads sessions when they are needed and unloads them when they were idle for long or there are too many."""

    def __init__(self, services: Services, engine: ContextEngine) -> None:
        self._services = services
        self._engine = engine
        self._slots: dict[str, Slot] = {}
        self._past = PastHubs()
        self.ending = False
        """The daemon is ending: nothing is loaded any more."""

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots.values()))

    @property
    def turns_running(self) -> int:
        return sum(s.loaded is not None and s.loaded.turns.running is not None for s in self)

    def get(self, session_id: str) -> Slot | None:
        return self._slots.get(session_id)

    def loaded(self, session_id: str) -> Session | None:
        slot = self._slots.get(session_id)
        return slot.loaded if slot is not None else None

    # -- who is in it

    @asynccontextmanager
    async def hold(self, session_id: str) -> AsyncIterator[Slot]:
        """The session's place, for the caller alone: others who make, load, unload or end this session wait, and come
        in the order in which they asked. One that was made for this, and in which no session is loaded at the end, is
        gone again."""
        while True:
            slot = self._slots.get(session_id)
            made = slot is None
            if slot is None:
                hub = self._past.take(session_id)
                slot = self._slots[session_id] = Slot(session_id, hub, Hosts(hub, self._services.request_ids))
            async with slot.lock:
                if self._slots.get(session_id) is not slot:
                    continue  # it was ended while this one waited
                try:
                    yield slot
                finally:
                    if made and slot.loaded is None:
                        self.drop(slot)
                return

    def drop(self, slot: Slot) -> None:
        """This process has the session no more. If it comes back, its events are numbered on."""
        slot.loaded = None
        if self._slots.get(slot.session_id) is slot:
            del self._slots[slot.session_id]
            self._past.keep(slot.hub)

    # -- loading

    async def load(self, slot: Slot) -> Session | None:
        """The slot's session, brought back if it was unloaded; None if this process does not have it any more."""
        async with slot.lock:
            if self._slots.get(slot.session_id) is not slot:
                return None
            if slot.loaded is not None:
                return slot.loaded
            session, _ = await self.open(slot)
            if session.state.closed:
                # While it was unloaded another process had it, and closed it.
                with anyio.CancelScope(shield=True):
                    await end_quietly(session)
                    self.drop(slot)
                return None
            slot.loaded = session
        self.make_room(keep=slot)
        return session

    async def open(self, slot: Slot) -> tuple[Session, list[Recovered]]:
        """Reads a session from the store, with its lock; what had to be mended. It is not `loaded` yet."""
        try:
            opened = await self._services.store.open(slot.session_id)
        except StoreError as error:
            raise store_fault(error, slot.session_id) from error
        session, found = await self.seat(slot, opened, resumed=True)
        try:
            return session, await session.recover(found)
        except BaseException:
            await end_quietly(session)
            raise

    async def seat(self, slot: Slot, opened: OpenSession, *, resumed: bool) -> tuple[Session, list[Recovered]]:
        """The session of an open store, not `loaded` yet. `resumed`: it has a past in another process or before it was
        unloaded."""
        try:
            journal, found = await opened.open_agent(MAIN_AGENT)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await opened.close()
            if isinstance(error, StoreError):
                raise store_fault(error, slot.session_id) from error
            raise
        desk = Desk.of(self._services, opened, slot.hub, slot.hosts, slot.secrets)
        main = seat(desk, journal, MAIN_AGENT, resumed=resumed)
        session = Session(desk, main, SessionNotes(self._services), self._engine)
        return session, [*opened.recovered, *found]

    # -- unloading

    def make_room(self, keep: Slot) -> None:
        """At most `server.max_loaded_sessions`: the longest idle go first, at once."""
        most = self._services.layers.process.server.max_loaded_sessions
        sessions = [(slot, slot.loaded) for slot in self if slot.loaded is not None]
        spare = [(slot, session) for slot, session in sessions if slot is not keep and not session.busy]
        spare.sort(key=lambda pair: pair[1].last_active)
        for slot, _ in spare[: max(0, len(sessions) - most)]:
            self._services.group.start_soon(self._unload, slot)

    async def sweep(self) -> None:
        """Runs for the life of the daemon: unloads what was idle for long."""
        while True:
            await anyio.sleep(SWEEP_S)
            limit = self._services.layers.process.server.idle_unload_s
            now = self._services.clock.monotonic()
            for slot in self:
                session = slot.loaded
                if session is not None and not session.busy and now - session.last_active >= limit:
                    await self._unload(slot)

    async def _unload(self, slot: Slot) -> None:
        async with slot.lock:
            session = slot.loaded
            if session is None or session.busy:
                return
            slot.loaded = None
            await session.end(close=False)
            slot.hub.rest()

    async def shutdown(self) -> None:
        """Ends all turns as cancelled and lets all logs go; also of sessions that are just being loaded or ended."""
        self.ending = True
        async with anyio.create_task_group() as group:
            for slot in self:
                group.start_soon(self._end, slot)

    async def _end(self, slot: Slot) -> None:
        async with slot.lock:
            if slot.loaded is not None:
                await end_quietly(slot.loaded)

    # -- what concerns all of them

    def capabilities_changed(self, client: Client) -> None:
        """A client said what it can do: open requests that it can answer now reach it."""
        for slot in self:
            if client.id in slot.hub.clients:
                slot.hosts.attached(client)

    def refresh_all(self) -> None:
        """The process's configuration changed."""
        for slot in self:
            if slot.loaded is not None:
                slot.loaded.main.refresh(slot.loaded.desk)

    def peer_gone(self, client_id: str) -> None:
        for slot in self:
            slot.hub.detach(client_id)
            slot.hosts.gone(client_id)


async def end_quietly(session: Session) -> None:
    """Lets a session go whose caller has other worries. It is done even if the caller is cancelled."""
    with anyio.CancelScope(shield=True):
        try:
            await session.end(close=False)
        except Exception:
            _log.exception("session_end_failed", session_id=session.session_id)
