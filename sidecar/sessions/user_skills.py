"""Skills that the user activates: what one says becomes a turn, and one with an agent of its own is answered in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.messages import Message, Origin, TextPart
from record_store.backend import MAIN_AGENT
from record_store.records import AppendMessage
from sidecar import ids
from sidecar.agent.turn import Turn
from sidecar.sessions.assembly import Desk, Seat
from sidecar.sessions.engine import Activation
from sidecar.sessions.subagents import SubAgents
from sidecar.tools.port import ToolContext


class UserSkills:
    """Of one session: which of its accepted turns have a sub-agent to ask before their first step."""

    def __init__(self, desk: Desk, main: Seat, agents: SubAgents) -> None:
        self._desk = desk
        self._main = main
        self._agents = agents
        self._to_ask: dict[str, Activation] = {}

    @contextmanager
    def belongs_to(self, turn_id: str, active: Activation) -> Iterator[None]:
        """Around the acceptance of the turn: its sub-agent is asked when the turn begins, unless that fails."""
        if active.skill is not None:
            self._to_ask[turn_id] = active
        try:
            yield
        except BaseException:
            self._to_ask.pop(turn_id, None)
            raise

    async def before_first_step(self, turn: Turn) -> None:
        """Asks the sub-agent of a turn that has one: its answer stands in the context on return."""
        active = self._to_ask.pop(turn.turn_id, None)
        if active is None or active.skill is None:
            return
        agent = self._main.agent
        context = ToolContext(
            session_id=self._desk.opened.session_id,
            agent_id=MAIN_AGENT,
            turn_id=turn.turn_id,
            tool_call_id=ids.new("call"),
            cwd=Path(agent.state.cwd),
            roots=(),
            settings=agent.settings.tools,
            environment={},
        )
        outcome = await self._agents.run(context, active.skill, active.prompt)
        said = "\n".join(part.text for part in outcome.content if isinstance(part, TextPart))
        now = agent.clock.now_ms()
        message = Message(
            id=ids.new("msg"),
            role="user",
            content=(TextPart(f'<skill-answer name="{active.skill.name}">\n{said}\n</skill-answer>'),),
            time=now,
            origin=Origin("injection", variant="skill_answer"),
        )
        agent.append(AppendMessage(time=now, message=message, turn_id=turn.turn_id))
