"""`memory.*` and `skill.*`"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from protocol import memory
from protocol.common import SessionParams
from protocol.skills import SkillListResult, SkillRunParams, SkillRunResult
from sidecar.errors import Fault
from sidecar.memory.service import MemoryService
from sidecar.rpc.bind import TypedHandler
from sidecar.rpc.handlers.sessions import working_directory
from sidecar.rpc.port import Peer
from sidecar.sessions.engine import ContextEngine
from sidecar.sessions.manager import SessionManager


class ContextHandlers:
    def __init__(self, service: MemoryService, engine: ContextEngine, manager: SessionManager) -> None:
        self._memory = service
        self._engine = engine
        self._manager = manager

    def table(self) -> dict[str, TypedHandler]:
        return {
            "memory.list": self.list,
            "memory.get": self.get,
            "memory.save": self.save,
            "memory.forget": self.forget,
            "memory.recall": self.recall,
            "skill.list": self.skills,
            "skill.run": self.run_skill,
        }

    async def list(self, peer: Peer, p: memory.ListParams) -> memory.ListResult:
        return await self._memory.list(await self._cwd(p), type=p.type, scope=p.scope)

    async def get(self, peer: Peer, p: memory.GetParams) -> memory.FactResult:
        return await self._memory.get(await self._cwd(p), p.id)

    async def save(self, peer: Peer, p: memory.SaveParams) -> memory.FactResult:
        saved = await self._memory.save(await self._cwd(p), p.fact, fact_id=p.id, expected_revision=p.expected_revision)
        await self._note(p, saved.fact, "create" if p.id is None else "update")
        return saved

    async def forget(self, peer: Peer, p: memory.ForgetParams) -> memory.ForgetResult:
        cwd = await self._cwd(p)
        fact = (await self._memory.get(cwd, p.id)).fact
        result = await self._memory.forget(cwd, p.id, expected_revision=p.expected_revision)
        await self._note(p, fact, "forget")
        return result

    async def recall(self, peer: Peer, p: memory.RecallParams) -> memory.RecallResult:
        return await self._memory.recall(await self._cwd(p), p.query, limit=p.limit)

    async def skills(self, peer: Peer, p: SessionParams) -> SkillListResult:
        return await self._engine.list_skills(Path((await self._manager.info(p.session_id)).cwd))

    async def run_skill(self, peer: Peer, p: SkillRunParams) -> SkillRunResult:
        async with self._manager.using(p.session_id) as session:
            return SkillRunResult(turn_id=(await session.run_skill(p.name, p.arguments or "")).turn_id)

    async def _note(
        self, p: memory.ProjectParams, fact: memory.Fact, op: Literal["create", "update", "forget"]
    ) -> None:
        """The log of a session that is open here tells of what was changed through it."""
        if p.session_id is not None and self._manager.roster.get(p.session_id) is not None:
            try:
                async with self._manager.using(p.session_id) as session:
                    session.note_memory(fact, op)
            except Fault:
                return

    async def _cwd(self, p: memory.ProjectParams) -> Path:
        """The directory whose memory is meant. Raises `invalid_params`, `session_not_found`."""
        if p.session_id is not None:
            return Path((await self._manager.info(p.session_id)).cwd)
        if p.cwd is None:
            raise Fault(
                "invalid_params", "session_id or cwd is missing", hint="say whose memory is meant", path="session_id"
            )
        return Path(working_directory(p.cwd))
