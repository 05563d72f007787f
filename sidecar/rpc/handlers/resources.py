"""`agent.context.get`, `tool.list`, `model.list`, `record.*`, `config.*`."""

from __future__ import annotations

from protocol.common import AgentParams, NoParams, SessionParams
from protocol.info import ContextInfo
from protocol.resources import (
    ConfigGetParams,
    ConfigResult,
    ConfigSetParams,
    ModelEntry,
    ModelListResult,
    QueryParams,
    QueryResult,
    ToolListResult,
    VerifyResult,
)
from sidecar.rpc.bind import TypedHandler
from sidecar.rpc.port import Peer
from sidecar.sessions.layers import nested
from sidecar.sessions.manager import SessionManager
from sidecar.sessions.reading import Reading
from sidecar.sessions.services import Services


class ResourceHandlers:
    def __init__(self, services: Services, manager: SessionManager, reading: Reading) -> None:
        self._services = services
        self._manager = manager
        self._reading = reading

    def table(self) -> dict[str, TypedHandler]:
        return {
            "agent.context.get": self.context,
            "tool.list": self.tools,
            "model.list": self.models,
            "record.query": self.query,
            "record.verify": self.verify,
            "config.get": self.config_get,
            "config.set": self.config_set,
        }

    async def context(self, peer: Peer, p: AgentParams) -> ContextInfo:
        return await self._reading.context(p.session_id, p.agent_id)

    async def tools(self, peer: Peer, p: SessionParams) -> ToolListResult:
        return ToolListResult(tools=await self._reading.tools(p.session_id))

    async def models(self, peer: Peer, p: NoParams) -> ModelListResult:
        found = await self._services.registry.models(self._services.layers.process)
        return ModelListResult(
            models=tuple(ModelEntry(m.name, m.provider, m.window, m.max_output, m.source) for m in found)
        )

    async def query(self, peer: Peer, p: QueryParams) -> QueryResult:
        return await self._reading.query(p)

    async def verify(self, peer: Peer, p: SessionParams) -> VerifyResult:
        return await self._reading.verify(p.session_id)

    async def config_get(self, peer: Peer, p: ConfigGetParams) -> ConfigResult:
        session = None if p.session_id is None else (await self._reading.state(p.session_id, "main")).config
        return self._services.layers.describe(session, p.key)

    async def config_set(self, peer: Peer, p: ConfigSetParams) -> ConfigResult:
        if p.session_id is None:
            self._services.layers.set_process(p.values)
            self._manager.roster.refresh_all()
            return self._services.layers.describe(None, None)
        async with self._manager.using(p.session_id) as session:
            await session.configure(config=nested(p.values))
            return self._services.layers.describe(session.state.config, None)
