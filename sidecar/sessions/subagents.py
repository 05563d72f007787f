"""Agents that a skill starts: own log, own context, own compaction; only their answer comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from protocol.messages import TextPart, TurnResult
from protocol.version import RECORD_VERSION, VERSION
from record_store.records import AgentFinish, AgentSpawn, ConfigUpdate, Metadata, ToolsSnapshot
from sidecar import ids
from sidecar.sessions.assembly import Desk, Seat, seat
from sidecar.sessions.notes import NoNotes
from sidecar.sessions.turns import Turns
from sidecar.skills.definition import Skill
from sidecar.tools.port import ToolContext, ToolOutcome

if TYPE_CHECKING:
    from sidecar.sessions.engine import ContextEngine


class SubAgents:
    """The sub-agents of one session. Their number is bounded, and so is how deep they nest."""

    def __init__(self, desk: Desk, engine: ContextEngine, main: Callable[[], Seat]) -> None:
        self._desk = desk
        self._engine = engine
        self._main = main
        self.seats: dict[str, Seat] = {}
        self._depths: dict[str, int] = {}

    async def run(self, context: ToolContext, skill: Skill, prompt: str) -> ToolOutcome:
        """Implements `sidecar.skills.tools.SubagentRunner`."""
        parent = self.seats.get(context.agent_id) or self._main()
        limits = parent.agent.settings.skills
        depth = self._depths.get(context.agent_id, 0) + 1
        if depth > limits.max_depth:
            return ToolOutcome.error(f"Sub-agents may nest {limits.max_depth} deep, and this would be deeper.")
        if len(self.seats) >= limits.max_agents:
            return ToolOutcome.error(
                f"{limits.max_agents} sub-agents are running, which is the limit. Try again later."
            )
        agent_id = ids.new("agent")
        self._depths[agent_id] = depth
        try:
            child = await self._start(parent, agent_id, context, skill)
            result = await self._turn(child, prompt)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(agent_id)
        self._finish(parent, agent_id, result)
        return answer(skill, result)

    async def _start(self, parent: Seat, agent_id: str, context: ToolContext, skill: Skill) -> Seat:
        now = self._desk.services.clock.now_ms()
        state = parent.agent.state
        parent.agent.append(
            AgentSpawn(
                time=now,
                agent_id=agent_id,
                turn_id=context.turn_id,
                tool_call_id=context.tool_call_id,
                purpose=skill.name,
                model=skill.model,
            )
        )
        journal, _ = await self._desk.opened.open_agent(agent_id)
        journal.append(
            Metadata(
                time=now,
                version=RECORD_VERSION,
                session_id=context.session_id,
                agent_id=agent_id,
                created_at=now,
                server_version=VERSION,
                parent_agent_id=context.agent_id,
            ),
            ConfigUpdate(
                time=now,
                title=skill.name,
                cwd=state.cwd,
                model=skill.model or state.model,
                system_prompt=state.system_prompt or None,
                standing=state.standing or None,
                config=state.config,
            ),
            ToolsSnapshot(time=now, tools=state.tools),
        )
        child = seat(self._desk, journal, agent_id, resumed=False, only=skill.allowed_tools)
        child.toolbox.bring(mcp=parent.toolbox.server_tools)
        self._engine.equip(self._desk, child, self)
        self.seats[agent_id] = child
        return child

    async def _turn(self, child: Seat, prompt: str) -> TurnResult:
        turns = Turns(child.agent, self._desk.tasks, NoNotes(), lambda: None, _nothing)
        # The task is this agent's user input: a compaction keeps it word for word.
        handle = await turns.accept((TextPart(prompt),))
        try:
            return await handle.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await turns.cancel_all()
            raise

    async def _end(self, agent_id: str) -> None:
        child = self.seats.pop(agent_id, None)
        self._depths.pop(agent_id, None)
        if child is not None:
            await child.compaction.close()
            await child.journal.close()

    def _finish(self, parent: Seat, agent_id: str, result: TurnResult) -> None:
        parent.agent.append(
            AgentFinish(
                time=self._desk.services.clock.now_ms(),
                agent_id=agent_id,
                stop_reason=result.stop_reason,
                usage=result.usage,
            )
        )


def answer(skill: Skill, result: TurnResult) -> ToolOutcome:
    """What comes back to the parent: the answer, or why there is none."""
    if result.stop_reason == "end_turn":
        return ToolOutcome.text(result.text or "(the sub-agent gave no answer)")
    why = result.error.message if result.error is not None else result.stop_reason.replace("_", " ")
    partial = f"\n\nIts last words:\n{result.text}" if result.text else ""
    return ToolOutcome.error(f"The sub-agent for the skill {skill.name} did not finish: {why}.{partial}")


async def _nothing() -> None:
    return None
