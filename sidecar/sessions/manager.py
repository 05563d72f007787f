"""All sessions of the process: made, opened, found, unloaded, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import structlog
from msgspec.structs import replace

from protocol.info import ContextInfo, Recovered, SessionInfo
from protocol.messages import ToolSpec
from protocol.version import RECORD_VERSION, VERSION
from record_store.backend import MAIN_AGENT, OpenSession, StoredSession
from record_store.errors import StoreError
from record_store.fold import State
from record_store.records import ConfigUpdate, Metadata, ToolsSnapshot
from sidecar import ids
from sidecar.agent.model import ModelLink
from sidecar.approvals.rules import policy_of
from sidecar.compaction.policy import resolve_compaction_policy
from sidecar.errors import Fault
from sidecar.providers.port import Prefix
from sidecar.sessions.assembly import Desk, prefix_text, seat
from sidecar.sessions.context_info import context_info
from sidecar.sessions.engine import ContextEngine
from sidecar.sessions.events import EventHub
from sidecar.sessions.hosts import Hosts
from sidecar.sessions.ports import Client
from sidecar.sessions.prefix import PrefixMaker, SessionNotes
from sidecar.sessions.secrets import Secrets
from sidecar.sessions.services import Services
from sidecar.sessions.session import Session
from sidecar.store_errors import store_fault
from sidecar.tokens.estimator import BpeEstimator
from sidecar.tokens.measure import ContextMeter

_log = structlog.get_logger("sidecar.sessions")

FIRST_RECORDS = 3
"""Records that `create` writes: metadata, configuration, tools."""

SWEEP_S = 5.0
"""How often idle sessions are looked for."""


@dataclass(slots=True)
class Slot:
    """A session that this process created or resumed and has not closed. `loaded` is None while it is unloaded; who is
    attached, who brought which tool and what must not be stored outlive that."""

    session_id: str
    hub: EventHub
    hosts: Hosts
    secrets: Secrets
    loaded: Session | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class SessionManager:
    def __init__(self, services: Services, prefixes: PrefixMaker, engine: ContextEngine) -> None:
        self._services = services
        self._prefixes = prefixes
        self._engine = engine
        self._slots: dict[str, Slot] = {}
        self._ending = False

    # -- facts

    @property
    def count(self) -> int:
        return len(self._slots)

    @property
    def turns_running(self) -> int:
        return sum(s.loaded is not None and s.loaded.turns.running is not None for s in self._slots.values())

    def slot(self, session_id: str) -> Slot | None:
        return self._slots.get(session_id)

    # -- finding

    async def active(self, session_id: str) -> Session:
        """A session for `chat.*`: one that this process has; brought back if it was unloaded. Raises
        `session_closed`, `session_not_found`."""
        await self._services.registry.ready()
        slot = self._slots.get(session_id)
        if slot is None:
            await self.stored(session_id)
            raise Fault(
                "session_closed", "The session is closed in this process.", hint="call agent.session.resume first"
            )
        if self._ending:
            raise Fault("session_closed", "The daemon is ending.")
        session = slot.loaded or await self._load(slot)
        session.touch()
        return session

    def loaded(self, session_id: str) -> Session | None:
        slot = self._slots.get(session_id)
        return slot.loaded if slot is not None else None

    async def stored(self, session_id: str) -> StoredSession:
        """A session as it stands on disk, for reading. Raises `session_not_found`."""
        try:
            return await self._services.store.read(session_id)
        except StoreError as error:
            raise _named(error, session_id) from error

    async def info(self, session_id: str) -> SessionInfo:
        session = self.loaded(session_id)
        if session is not None:
            return session.info()
        try:
            return self._with_model(await (await self.stored(session_id)).info())
        except StoreError as error:
            raise _named(error, session_id) from error

    async def page(
        self, *, cwd: str | None, limit: int, cursor: str | None
    ) -> tuple[tuple[SessionInfo, ...], str | None]:
        """Newest first; what is loaded is told as it is now."""
        try:
            page = await self._services.store.list(cwd=cwd, limit=limit, cursor=cursor)
        except StoreError as error:
            raise store_fault(error) from error
        out = []
        for info in page.sessions:
            session = self.loaded(info.session_id)
            out.append(session.info() if session is not None else self._with_model(info))
        return tuple(out), page.next_cursor

    # -- making and opening

    async def create(
        self,
        client: Client,
        *,
        session_id: str | None,
        cwd: str,
        model: str | None,
        system_prompt: str | None,
        title: str | None,
        config: Mapping[str, Any] | None,
        tools: Sequence[ToolSpec] | None,
    ) -> Session:
        services = self._services
        layer = services.layers.check(config or {})
        settings = services.layers.settings(layer)
        policy_of(settings.approval, cwd)
        await services.registry.ready()
        if model is not None:
            services.registry.resolve(model, settings)
        name = session_id or ids.new("ses")
        slot = self._new_slot(name)
        now = services.clock.now_ms()
        standing = await self._prefixes.standing(Path(cwd), settings)
        host_tools = tuple(sorted(tools or (), key=lambda t: t.name))
        configuration = ConfigUpdate(
            time=now,
            title=title or None,
            cwd=cwd,
            model=model,
            system_prompt=system_prompt or None,
            standing=standing.text or None,
            config=slot.secrets.seal(layer),
        )
        info = SessionInfo(
            session_id=name,
            title=title or "",
            cwd=cwd,
            model=model,
            created_at=now,
            updated_at=now,
            state="idle",
            turns=0,
            agents=(MAIN_AGENT,),
            tools_builtin=settings.tools.builtin,
            used=0,
            window=0,
        )
        try:
            opened = await services.store.create(
                name, info, _metadata(name, now), configuration, ToolsSnapshot(time=now, tools=host_tools)
            )
        except StoreError as error:
            raise _named(error, name) from error
        self._slots[name] = slot
        session, _ = await self._seat(slot, opened, resumed=False)
        await session.attach(client, None)
        if tools is not None:
            session.desk.hosts.bring(client, host_tools, ())
        for notice in standing.notices:
            session.main.agent.emit(notice)
        await session.save_info()
        self._make_room(keep=slot)
        return session

    async def resume(self, session_id: str) -> tuple[Session, list[Recovered]]:
        """The session, open for input; what had to be mended."""
        await self._services.registry.ready()
        slot = self._slots.get(session_id)
        if slot is not None:
            return await self.active(session_id), []
        await self.stored(session_id)
        slot = self._slots.setdefault(session_id, self._new_slot(session_id))
        async with slot.lock:
            if slot.loaded is not None:
                return slot.loaded, []
            try:
                session, recovered = await self._open(slot)
                if session.state.closed:
                    await session.configure(reopen=True)
            except BaseException:
                self._slots.pop(session_id, None)
                raise
        self._make_room(keep=slot)
        return session, recovered

    async def fork(self, session_id: str, at_turn: str | None, client: Client) -> Session:
        """A new session with the same past, up to the end of `at_turn`, or as far as turns have ended."""
        services = self._services
        source = await self.stored(session_id)
        live = self.loaded(session_id)
        if live is not None:
            await live.main.agent.sync()
        info = await self.info(session_id)
        upto = await _last_line_to_copy(source, at_turn, live is not None and not live.turns.idle)
        name = ids.new("ses")
        now = services.clock.now_ms()
        metadata = replace(_metadata(name, now), forked_from=session_id, fork_line=upto)
        copied = replace(info, session_id=name, created_at=now, updated_at=now, state="idle")
        try:
            opened = await services.store.fork(session_id, name, upto, metadata, copied)
        except StoreError as error:
            raise _named(error, session_id) from error
        origin = self._slots.get(session_id)
        slot = self._new_slot(name, origin.secrets.copy() if origin is not None else None)
        self._slots[name] = slot
        session, _ = await self._seat(slot, opened)
        mine = live is not None and live.desk.hosts.owns(client.id, live.state.tools)
        tools = session.state.tools if mine else ()
        await session.attach(client, None)
        session.desk.hosts.bring(client, tools, ())
        await session.begin_fork(tools)
        self._make_room(keep=slot)
        return session

    async def close(self, session_id: str) -> None:
        slot = self._slots.get(session_id)
        if slot is None:
            # Not open here: only its state on disk changes.
            await self.stored(session_id)
            await self.resume(session_id)
            slot = self._slots[session_id]
        async with slot.lock:
            session_now = slot.loaded or await self._open_plain(slot)
            await session_now.end(close=True)
            self._drop(slot)

    async def delete(self, session_id: str) -> None:
        await self.stored(session_id)
        slot = self._slots.get(session_id)
        if slot is not None:
            async with slot.lock:
                if slot.loaded is not None:
                    await slot.loaded.end(close=False)
                self._drop(slot)
        try:
            await self._services.store.delete(session_id)
        except StoreError as error:
            raise _named(error, session_id) from error

    # -- life

    def capabilities_changed(self, client: Client) -> None:
        """A client said what it can do: open requests that it can answer now reach it."""
        for slot in self._slots.values():
            if client.id in slot.hub.clients:
                slot.hosts.attached(client)

    def refresh_all(self) -> None:
        """The process's configuration changed."""
        for slot in self._slots.values():
            if slot.loaded is not None:
                slot.loaded.main.refresh(slot.loaded.desk)

    def peer_gone(self, client_id: str) -> None:
        for slot in self._slots.values():
            slot.hub.detach(client_id)
            slot.hosts.gone(client_id)

    async def sweep(self) -> None:
        """Runs for the life of the daemon: unloads what was idle for long."""
        while True:
            await anyio.sleep(SWEEP_S)
            limit = self._services.layers.process.server.idle_unload_s
            now = self._services.clock.monotonic()
            for slot in tuple(self._slots.values()):
                session = slot.loaded
                if session is not None and not session.busy and now - session.last_active >= limit:
                    await self._unload(slot)

    async def shutdown(self) -> None:
        """Ends all turns as cancelled and lets all logs go."""
        self._ending = True
        async with anyio.create_task_group() as group:
            for slot in tuple(self._slots.values()):
                if slot.loaded is not None:
                    group.start_soon(self._end_quietly, slot.loaded)

    async def context_of(self, state: State) -> ContextInfo:
        """The context of a stored agent that is not loaded: measured by estimate or by its last report."""
        services = self._services
        settings = services.layers.settings(state.config)
        estimator = BpeEstimator(services.counter, None)
        link = ModelLink(services.registry, estimator, lambda _: None)
        reference = state.model or services.registry.default_reference(settings) or ""
        window, source = link.window(reference, state, settings)
        await estimator.warm(state.messages())
        meter = ContextMeter(estimator, services.calibration)
        prefix = Prefix(prefix_text(state), state.tools)
        policy = resolve_compaction_policy(reference, window, settings)
        return context_info(state, policy, used=meter.used(state, prefix, reference), source=source)

    # -- inside

    def _with_model(self, info: SessionInfo) -> SessionInfo:
        """A session for which no model was chosen is told with the one that it would ask, as a loaded one is."""
        if info.model is not None:
            return info
        services = self._services
        return replace(info, model=services.registry.default_reference(services.layers.process))

    def _new_slot(self, session_id: str, secrets: Secrets | None = None) -> Slot:
        hub = EventHub(session_id)
        return Slot(session_id, hub, Hosts(hub, self._services.request_ids), secrets or Secrets())

    async def _load(self, slot: Slot) -> Session:
        async with slot.lock:
            if slot.loaded is None:
                await self._open(slot)
                self._make_room(keep=slot)
            assert slot.loaded is not None
            return slot.loaded

    async def _open(self, slot: Slot) -> tuple[Session, list[Recovered]]:
        session, found = await self._seat(slot, await self._lease(slot.session_id))
        return session, await session.recover(found)

    async def _open_plain(self, slot: Slot) -> Session:
        return (await self._open(slot))[0]

    async def _lease(self, session_id: str) -> OpenSession:
        try:
            return await self._services.store.open(session_id)
        except StoreError as error:
            raise _named(error, session_id) from error

    async def _seat(self, slot: Slot, opened: OpenSession, *, resumed: bool = True) -> tuple[Session, list[Recovered]]:
        try:
            journal, found = await opened.open_agent(MAIN_AGENT)
        except StoreError as error:
            raise _named(error, slot.session_id) from error
        desk = Desk.of(self._services, opened, slot.hub, slot.hosts, slot.secrets)
        main = seat(desk, journal, MAIN_AGENT, resumed=resumed)
        session = Session(desk, main, SessionNotes(self._services), self._engine)
        slot.loaded = session
        return session, [*opened.recovered, *found]

    def _make_room(self, keep: Slot) -> None:
        """At most `server.max_loaded_sessions`: the longest idle go first, at once."""
        most = self._services.layers.process.server.max_loaded_sessions
        loaded = [s for s in self._slots.values() if s.loaded is not None]
        spare = [s for s in loaded if s is not keep and s.loaded is not None and not s.loaded.busy]
        spare.sort(key=lambda s: s.loaded.last_active if s.loaded is not None else 0.0)
        for slot in spare[: max(0, len(loaded) - most)]:
            self._services.group.start_soon(self._unload, slot)

    async def _unload(self, slot: Slot) -> None:
        async with slot.lock:
            session = slot.loaded
            if session is None or session.busy:
                return
            slot.loaded = None
            await session.end(close=False)
            slot.hub.forget()

    def _drop(self, slot: Slot) -> None:
        slot.loaded = None
        self._slots.pop(slot.session_id, None)

    async def _end_quietly(self, session: Session) -> None:
        try:
            await session.end(close=False)
        except Exception:
            _log.exception("session_end_failed", session_id=session.session_id)


def _metadata(session_id: str, now: int) -> Metadata:
    """The first line of a new session's log."""
    return Metadata(
        time=now,
        version=RECORD_VERSION,
        session_id=session_id,
        agent_id=MAIN_AGENT,
        created_at=now,
        server_version=VERSION,
    )


async def _last_line_to_copy(source: StoredSession, at_turn: str | None, running: bool) -> int:
    """The line that a fork ends with. Raises `invalid_params` for a turn that did not end in this session."""
    try:
        log = await source.log()
        if at_turn is None and not running:
            return log.last_line

        def scan() -> int | None:
            found = None
            for line, raw in log.iterate():
                ends = b'"type":"turn.end"' in raw[:64]
                if ends and (at_turn is None or f'"turn_id":"{at_turn}"'.encode() in raw):
                    found = line
            return found

        found = await anyio.to_thread.run_sync(scan)
    except StoreError as error:
        raise store_fault(error) from error
    if found is None and at_turn is not None:
        raise Fault("invalid_params", "at_turn names no turn that ended in this session", path="at_turn")
    return found or min(FIRST_RECORDS, log.last_line)


def _named(error: StoreError, session_id: str) -> Fault:
    fault = store_fault(error)
    if fault.reason == "session_not_found":
        return Fault("session_not_found", f"There is no session {session_id!r}.", hint="see agent.session.list")
    return fault
