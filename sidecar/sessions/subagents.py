"""Agents that a skill starts: own log, own context, own compaction; only their answer comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio
import structlog
from msgspec.structs import replace

from protocol.info import Recovered
from protocol.messages import StopReason, TextPart, TurnResult, Usage
from protocol.version import RECORD_VERSION, VERSION
from record_store import seen
from record_store.errors import StoreError
from record_store.records import AgentFinish, AgentSpawn, ConfigUpdate, Metadata, ToolsSnapshot
from sidecar import ids
from sidecar.agent.repair import records_to_settle
from sidecar.errors import Fault
from sidecar.sessions.assembly import Desk, Seat, seat
from sidecar.sessions.prefix import SessionNotes
from sidecar.sessions.turns import Turns
from sidecar.skills.definition import Skill
from sidecar.tools.port import ToolContext, ToolOutcome

if TYPE_CHECKING:
    from sidecar.sessions.engine import ContextEngine

_log = structlog.get_logger("sidecar.sessions")

NO_USAGE = Usage(0, 0, 0, 0)


class SubAgents:
    """The sub-agents of one session. Their number is bounded, and so is how deep they nest."""

    def __init__(self, desk: Desk, engine: ContextEngine, main: Callable[[], Seat]) -> None:
        self._desk = desk
        self._engine = engine
        self._main = main
        self.seats: dict[str, Seat] = {}
        self._depths: dict[str, int] = {}
        self._past_calls = bytearray()

    async def run(self, context: ToolContext, skill: Skill, prompt: str) -> ToolOutcome:
        """Implements `sidecar.skills.tools.SubagentRunner`."""
        parent = self.seats.get(context.agent_id) or self._main()
        limits = parent.agent.settings.skills
        depth = self._depths.get(context.agent_id, 0) + 1
        if depth > limits.max_depth:
            return ToolOutcome.error(f"Sub-agents may nest {limits.max_depth} deep, and this would be deeper.")
        if len(self._depths) >= limits.max_agents:
            return ToolOutcome.error(
                f"{limits.max_agents} sub-agents are running, which is the limit. Try again later."
            )
        agent_id = ids.new("agent")
        spawn = AgentSpawn(
            time=self._desk.services.clock.now_ms(),
            agent_id=agent_id,
            turn_id=context.turn_id,
            tool_call_id=context.tool_call_id,
            purpose=skill.name,
            model=skill.model,
        )
        self._note(parent, spawn)
        self._depths[agent_id] = depth
        stop_reason: StopReason = "error"
        usage = NO_USAGE
        try:
            child = await self._start(parent, agent_id, context, skill)
            result = await self._turn(child, prompt)
            stop_reason, usage = result.stop_reason, result.usage
        except anyio.get_cancelled_exc_class():
            stop_reason = "cancelled"
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(agent_id)
            self._note(parent, self._finish(agent_id, stop_reason, usage))
        return answer(skill, result)

    def call_ids(self) -> Iterable[bytearray]:
        """Ids of the session's calls (`record_store.seen`): a host is told of a call's end by its id alone."""
        agents = (self._main(), *self.seats.values())
        return (self._past_calls, *(seat.agent.state.call_ids for seat in agents))

    async def settle(self) -> list[Recovered]:
        """After an abrupt end: closes what the agents that were at work left open. Their answers are lost."""
        found: list[Recovered] = []
        present = await self._desk.opened.agents()
        for agent_id in tuple(self._main().agent.state.open_agents):
            if agent_id in present:
                try:
                    found += await self._settle(agent_id)
                except (Fault, StoreError) as error:
                    _log.warning("sub_agent_not_settled", agent_id=agent_id, error=str(error))
            self._note(self._main(), self._finish(agent_id, "error", NO_USAGE))
        return found

    async def _settle(self, agent_id: str) -> list[Recovered]:
        journal, found = await self._desk.opened.open_agent(agent_id)
        try:
            if journal.last_line == 0:
                return found
            child = seat(self._desk, journal, agent_id, resumed=True)
            records, settled = records_to_settle(child.agent.state, self._desk.services.clock.now_ms(), "restart")
            if records:
                child.agent.append(*records)
            compaction = await child.compaction.settle_on_resume()
            await child.compaction.close()
            found += [*settled, *([compaction] if compaction is not None else [])]
        finally:
            await journal.close()
        return [replace(r, detail=f"agent {agent_id}: {r.detail}") for r in found]

    def _note(self, parent: Seat, record: AgentSpawn | AgentFinish) -> None:
        """The parent's log tells of its agents, and the main log of all of them."""
        parent.agent.append(record)
        main = self._main()
        if parent is not main:
            main.agent.append(record)

    async def _start(self, parent: Seat, agent_id: str, context: ToolContext, skill: Skill) -> Seat:
        now = self._desk.services.clock.now_ms()
        state = parent.agent.state
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
        child.agent.call_ids = self.call_ids
        self.seats[agent_id] = child
        return child

    async def _turn(self, child: Seat, prompt: str) -> TurnResult:
        turns = Turns(
            child.agent, self._desk.tasks, SessionNotes(self._desk.services, for_user=False), lambda: None, _nothing
        )
        try:
            # The task is this agent's user input: a compaction keeps it word for word.
            handle = await turns.accept((TextPart(prompt),))
            return await handle.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await turns.cancel_all()
            raise

    async def _end(self, agent_id: str) -> None:
        child = self.seats.pop(agent_id, None)
        self._depths.pop(agent_id, None)
        if child is not None:
            seen.merge(self._past_calls, child.agent.state.call_ids)
            await child.compaction.close()
            await child.journal.close()

    def _finish(self, agent_id: str, stop_reason: StopReason, usage: Usage) -> AgentFinish:
        return AgentFinish(
            time=self._desk.services.clock.now_ms(), agent_id=agent_id, stop_reason=stop_reason, usage=usage
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
