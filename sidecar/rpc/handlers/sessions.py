"""`agent.session.*`"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from protocol.common import Empty, SessionParams
from protocol.messages import ToolSpec
from protocol.session import (
    AttachParams,
    AttachResult,
    ConfigureParams,
    CreateParams,
    ForkParams,
    ListParams,
    ListResult,
    MessagesParams,
    MessagesResult,
    ResumeParams,
    ResumeResult,
    SessionResult,
)
from sidecar.errors import Fault
from sidecar.rpc.bind import TypedHandler
from sidecar.rpc.clients import Clients
from sidecar.rpc.port import Peer
from sidecar.sessions.manager import SessionManager
from sidecar.sessions.reading import Reading


class SessionHandlers:
    def __init__(self, manager: SessionManager, reading: Reading, clients: Clients) -> None:
        self._manager = manager
        self._reading = reading
        self._clients = clients

    def table(self) -> dict[str, TypedHandler]:
        return {
            "agent.session.create": self.create,
            "agent.session.resume": self.resume,
            "agent.session.get": self.get,
            "agent.session.list": self.list,
            "agent.session.configure": self.configure,
            "agent.session.messages": self.messages,
            "agent.session.fork": self.fork,
            "agent.session.close": self.close,
            "agent.session.delete": self.delete,
            "agent.session.attach": self.attach,
            "agent.session.detach": self.detach,
        }

    async def create(self, peer: Peer, p: CreateParams) -> SessionResult:
        session = await self._manager.create(
            self._clients.of(peer),
            session_id=p.session_id,
            cwd=working_directory(p.cwd),
            model=p.model,
            system_prompt=p.system_prompt,
            title=p.title,
            config=p.config,
            tools=_distinct(p.tools),
        )
        return SessionResult(session=session.info())

    async def resume(self, peer: Peer, p: ResumeParams) -> ResumeResult:
        client = self._clients.of(peer)
        session, recovered = await self._manager.resume(
            p.session_id, host=client, model=p.model, config=p.config, tools=_distinct(p.tools)
        )
        replayed, resync = await session.attach(client, p.after_event)
        return ResumeResult(
            session=session.info(),
            recovered=tuple(recovered),
            events_replayed=replayed,
            resync_required=resync,
        )

    async def get(self, peer: Peer, p: SessionParams) -> SessionResult:
        return SessionResult(session=await self._manager.info(p.session_id))

    async def list(self, peer: Peer, p: ListParams) -> ListResult:
        cwd = _plain(p.cwd) if p.cwd is not None else None
        sessions, cursor = await self._manager.page(cwd=cwd, limit=p.limit, cursor=p.cursor)
        return ListResult(sessions=sessions, next_cursor=cursor)

    async def configure(self, peer: Peer, p: ConfigureParams) -> SessionResult:
        async with self._manager.using(p.session_id) as session:
            await session.configure(
                model=p.model, config=p.config, tools=_distinct(p.tools), title=p.title, host=self._clients.of(peer)
            )
            return SessionResult(session=session.info())

    async def messages(self, peer: Peer, p: MessagesParams) -> MessagesResult:
        return await self._reading.messages(p.session_id, p.agent_id, view=p.view, cursor=p.cursor, limit=p.limit)

    async def fork(self, peer: Peer, p: ForkParams) -> SessionResult:
        session = await self._manager.fork(p.session_id, p.at_turn, self._clients.of(peer))
        return SessionResult(session=session.info())

    async def close(self, peer: Peer, p: SessionParams) -> Empty:
        await self._manager.close(p.session_id)
        return Empty()

    async def delete(self, peer: Peer, p: SessionParams) -> Empty:
        await self._manager.delete(p.session_id)
        return Empty()

    async def attach(self, peer: Peer, p: AttachParams) -> AttachResult:
        async with self._manager.using(p.session_id) as session:
            replayed, resync = await session.attach(self._clients.of(peer), p.after_event)
            return AttachResult(session=session.info(), events_replayed=replayed, resync_required=resync)

    async def detach(self, peer: Peer, p: SessionParams) -> Empty:
        await self._manager.info(p.session_id)
        slot = self._manager.roster.get(p.session_id)
        if slot is not None:
            slot.hub.detach(peer.id)
            slot.hosts.gone(peer.id)
        return Empty()


def _distinct(tools: Sequence[ToolSpec] | None) -> Sequence[ToolSpec] | None:
    """The host's tools. Raises `invalid_params` for what no model could be offered, or no call could be sent to."""
    seen: set[str] = set()
    for number, tool in enumerate(tools or ()):
        where = f"tools[{number}]"
        if not tool.name or tool.name in seen:
            what = "is given twice" if tool.name else "is empty"
            raise Fault("invalid_params", f"{where}.name {what}", path=f"{where}.name")
        if tool.timeout_s is not None and tool.timeout_s <= 0:
            raise Fault("invalid_params", f"{where}.timeout_s must be more than 0", path=f"{where}.timeout_s")
        seen.add(tool.name)
    return tools


def _plain(cwd: str) -> str:
    """As `create` writes it, whether it is there or not."""
    return str(Path(os.path.expanduser(cwd)))


def working_directory(cwd: str | None) -> str:
    """An absolute path. Raises `invalid_params` for one that is not there."""
    if cwd is None:
        return str(Path.cwd())
    path = Path(os.path.expanduser(cwd))
    if not path.is_absolute() or not os.path.isdir(path):
        raise Fault("invalid_params", "cwd is not an absolute path of a directory", hint="create it first", path="cwd")
    return str(path)
