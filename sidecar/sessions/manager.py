"""What hosts ask of sessions as a whole: made, found, resumed, forked, closed, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
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
from sidecar.sessions.assembly import prefix_text
from sidecar.sessions.context_info import context_info
from sidecar.sessions.ports import Client
from sidecar.sessions.prefix import PrefixMaker
from sidecar.sessions.roster import Roster, Slot, end_quietly
from sidecar.sessions.secrets import Secrets
from sidecar.sessions.services import Services
from sidecar.sessions.session import Session
from sidecar.store_errors import store_fault
from sidecar.tokens.estimator import BpeEstimator
from sidecar.tokens.measure import ContextMeter

_log = structlog.get_logger("sidecar.sessions")

FIRST_RECORDS = 3
"""Records that `create` writes: metadata, configuration, tools."""


class SessionManager:
    def __init__(self, services: Services, prefixes: PrefixMaker, roster: Roster) -> None:
        self._services = services
        self._prefixes = prefixes
        self.roster = roster

    # -- finding

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncIterator[Session]:
        """A session for `chat.*`, which stays loaded meanwhile: one that this process has; brought back if it was
        unloaded. Raises `session_closed`, `session_not_found`."""
        session = await self._active(session_id)
        session.users += 1
        try:
            yield session
        except Fault as fault:
            if session.ended and fault.reason == "store_write_failed":
                raise _closed() from None  # its log was let go meanwhile
            raise
        finally:
            session.users -= 1

    async def _active(self, session_id: str) -> Session:
        await self._services.registry.ready()
        while True:
            slot = self.roster.get(session_id)
            if slot is None:
                await self.stored(session_id)
                raise _closed()
            if self.roster.ending:
                raise _ending()
            session = slot.loaded or await self.roster.load(slot)
            if session is not None:
                session.touch()
                return session

    async def stored(self, session_id: str) -> StoredSession:
        """A session as it stands on disk, for reading. Raises `session_not_found`."""
        try:
            return await self._services.store.read(session_id)
        except StoreError as error:
            raise store_fault(error, session_id) from error

    async def info(self, session_id: str) -> SessionInfo:
        session = self.roster.loaded(session_id)
        if session is not None:
            return session.info()
        try:
            return self._with_model(await (await self.stored(session_id)).info())
        except StoreError as error:
            raise store_fault(error, session_id) from error

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
            session = self.roster.loaded(info.session_id)
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
        name = session_id or ids.new("ses")
        # From the first moment on: what its host sends right behind waits for it.
        async with self.roster.hold(name) as slot:
            await services.registry.ready()
            if model is not None:
                services.registry.resolve(model, settings)
            secrets = Secrets()
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
                config=secrets.seal(layer),
            )
            info = _first_info(name, configuration, settings.tools.builtin)
            try:
                opened = await services.store.create(
                    name, info, _metadata(name, now), configuration, ToolsSnapshot(time=now, tools=host_tools)
                )
            except StoreError as error:
                raise store_fault(error, name) from error
            slot.secrets = secrets
            async with self._made_whole(slot, opened, resumed=False) as session:
                await session.attach(client, None)
                if tools is not None:
                    session.desk.hosts.bring(client, host_tools, ())
                for notice in standing.notices:
                    session.main.agent.emit(notice)
                await session.save_info()
        self.roster.make_room(keep=slot)
        return session

    async def resume(
        self,
        session_id: str,
        *,
        host: Client | None = None,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        tools: Sequence[ToolSpec] | None = None,
    ) -> tuple[Session, list[Recovered]]:
        """The session, open for input and changed as `Session.configure` does; what had to be mended. If it cannot be
        changed so, it is as closed, unloaded or open as it was."""
        async with self.roster.hold(session_id) as slot:
            await self._services.registry.ready()
            await self.stored(session_id)
            if self.roster.ending:
                raise _ending()
            recovered: list[Recovered] = []
            session = slot.loaded
            if session is None:
                session, recovered = await self.roster.open(slot)
            try:
                await session.configure(model=model, config=config, tools=tools, host=host, reopen=session.state.closed)
            except BaseException:
                if slot.loaded is None:
                    await end_quietly(session)
                raise
            session.touch()
            slot.loaded = session
        self.roster.make_room(keep=slot)
        return session, recovered

    async def fork(self, session_id: str, at_turn: str | None, client: Client) -> Session:
        """A new session with the same past, up to the end of `at_turn`, or as far as turns have ended."""
        services = self._services
        source = await self.stored(session_id)
        live = self.roster.loaded(session_id)
        if live is not None:
            await live.main.agent.sync()
        info = await self.info(session_id)
        upto = await _last_line_to_copy(source, at_turn, live is not None and not live.turns.idle)
        name = ids.new("ses")
        now = services.clock.now_ms()
        metadata = replace(_metadata(name, now), forked_from=session_id, fork_line=upto)
        copied = replace(info, session_id=name, created_at=now, updated_at=now, state="idle")
        origin = self.roster.get(session_id)
        async with self.roster.hold(name) as slot:
            try:
                opened = await services.store.fork(session_id, name, upto, metadata, copied)
            except StoreError as error:
                await self.stored(session_id)  # it may have been deleted meanwhile
                raise store_fault(error, session_id) from error
            if origin is not None:
                slot.secrets = origin.secrets.copy()
            async with self._made_whole(slot, opened, resumed=True) as session:
                tools = origin.hosts.brought_by(client.id, session.state.tools) if origin is not None else ()
                await session.attach(client, None)
                session.desk.hosts.bring(client, tools, ())
                await session.begin_fork(tools)
        self.roster.make_room(keep=slot)
        return session

    async def close(self, session_id: str) -> None:
        """Of a session that is not open here only the state on disk changes."""
        async with self.roster.hold(session_id) as slot:
            await self.stored(session_id)
            session, slot.loaded = slot.loaded, None
            if session is None:
                session, _ = await self.roster.open(slot)
            with anyio.CancelScope(shield=True):
                try:
                    await session.end(close=True)
                finally:
                    self.roster.drop(slot)

    async def delete(self, session_id: str) -> None:
        async with self.roster.hold(session_id) as slot:
            await self.stored(session_id)
            session, slot.loaded = slot.loaded, None
            with anyio.CancelScope(shield=True):
                try:
                    if session is not None:
                        await end_quietly(session)
                    await self._services.store.delete(session_id)
                    slot.hub.forget()  # another session may get this id
                except StoreError as error:
                    raise store_fault(error, session_id) from error
                finally:
                    self.roster.drop(slot)

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

    @asynccontextmanager
    async def _made_whole(self, slot: Slot, opened: OpenSession, *, resumed: bool) -> AsyncIterator[Session]:
        """A new session, around its first steps: if they fail, or its host no longer wants it, there is none, not in
        the store either."""
        session = None
        try:
            session, _ = await self.roster.seat(slot, opened, resumed=resumed)
            yield session
        except BaseException:
            with anyio.CancelScope(shield=True):
                if session is not None:
                    await end_quietly(session)
                slot.hub.forget()
                try:
                    await self._services.store.delete(slot.session_id)
                except StoreError as error:
                    _log.warning("session_left_behind", session_id=slot.session_id, error=type(error).__name__)
            raise
        slot.loaded = session

    def _with_model(self, info: SessionInfo) -> SessionInfo:
        """A session for which no model was chosen is told with the one that it would ask, as a loaded one is."""
        if info.model is not None:
            return info
        services = self._services
        return replace(info, model=services.registry.default_reference(services.layers.process))


def _ending() -> Fault:
    return Fault("session_closed", "The daemon is ending.")


def _closed() -> Fault:
    return Fault("session_closed", "The session is closed in this process.", hint="call agent.session.resume first")


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


def _first_info(session_id: str, configuration: ConfigUpdate, tools_builtin: str) -> SessionInfo:
    """How a session is listed that has this first configuration and nothing else yet."""
    return SessionInfo(
        session_id=session_id,
        title=configuration.title or "",
        cwd=configuration.cwd or "",
        model=configuration.model,
        created_at=configuration.time,
        updated_at=configuration.time,
        state="idle",
        turns=0,
        agents=(MAIN_AGENT,),
        tools_builtin=tools_builtin,
        used=0,
        window=0,
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
