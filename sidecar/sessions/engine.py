"""What the context engine brings to an agent: tools for memory and skills, and the skills that a user activates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.chat import ApprovalParams
from protocol.messages import Origin
from protocol.skills import SkillListResult
from record_store.records import MemoryWrite, SkillActivate, ToolApproval
from sidecar.errors import Fault
from sidecar.memory.section import entries_in
from sidecar.memory.tools import WriteAnswer, WriteRequest, Written, recall_tool, remember_tool
from sidecar.sessions.assembly import Desk, Seat
from sidecar.sessions.prefix import PrefixMaker
from sidecar.sessions.services import Services
from sidecar.sessions.subagents import SubAgents
from sidecar.skills.definition import Skill
from sidecar.skills.discovery import Catalog
from sidecar.skills.render import render
from sidecar.skills.tools import read_skill_tool, run_skill_tool
from sidecar.tools.port import ToolContext


@dataclass(frozen=True, slots=True)
class Activation:
    """A skill that the user activated: the text that becomes the turn's input, and where it came from. With `skill`
    an agent of its own follows it, on `prompt`, before the turn's first step."""

    text: str
    origin: Origin
    skill: Skill | None = None
    prompt: str = ""


class ContextEngine:
    """One per process."""

    def __init__(self, services: Services, prefixes: PrefixMaker) -> None:
        self._services = services
        self._prefixes = prefixes

    def equip(self, desk: Desk, seat: Seat, agents: SubAgents) -> None:
        """Gives an agent its memory and skill tools."""
        memory = self._services.memory

        async def ask(context: ToolContext, request: WriteRequest) -> WriteAnswer:
            return await _ask(desk, seat, context, request)

        async def on_written(context: ToolContext, written: Written) -> None:
            seat.agent.append(
                MemoryWrite(
                    time=seat.agent.clock.now_ms(),
                    fact_id=written.fact.id,
                    revision=written.fact.revision,
                    scope=written.fact.scope,
                    op=written.operation,
                    by=written.by,
                )
            )

        async def load(context: ToolContext) -> Catalog:
            return await self._prefixes.skills(context.cwd)

        async def on_activate(context: ToolContext, skill: Skill, trigger: str, text: str) -> None:
            activate(seat, skill, trigger, text)

        seat.toolbox.bring(
            extra=(
                remember_tool(
                    memory,
                    ask,
                    on_written=on_written,
                    automatic=lambda _: seat.agent.settings.memory.auto_write,
                ),
                recall_tool(memory, in_prefix=lambda _: entries_in(seat.agent.state.standing)),
                run_skill_tool(load, agents.run, on_activate),
                read_skill_tool(load),
            )
        )
        seat.refresh(desk)

    async def list_skills(self, cwd: Path) -> SkillListResult:
        catalog = await self._prefixes.skills(cwd)
        return SkillListResult(skills=tuple(s.info() for s in catalog.skills), problems=catalog.problems)

    async def activation(self, seat: Seat, name: str, arguments: str) -> Activation:
        """What a user's activation of a skill puts into the conversation. Raises `invalid_params`."""
        catalog = await self._prefixes.skills(Path(seat.agent.state.cwd))
        skill = catalog.get(name)
        if skill is None:
            known = ", ".join(s.name for s in catalog.skills[:20]) or "none"
            raise Fault("invalid_params", f"There is no skill {name!r}.", hint=f"skills here: {known}", path="name")
        text = render(skill, arguments)
        origin = Origin("skill_activation", trigger="user_slash", variant=skill.name)
        activate(seat, skill, "user_slash", text)
        if skill.mode == "subagent":
            return Activation(f"/{skill.name} {arguments}".strip(), origin, skill, text)
        return Activation(text, origin)


def activate(seat: Seat, skill: Skill, trigger: str, text: str) -> None:
    """Writes down that a skill came into use; an inline one is pinned by it, as `text`, which the model was shown."""
    body = text if skill.mode == "inline" else None
    seat.agent.append(
        SkillActivate(time=seat.agent.clock.now_ms(), name=skill.name, mode=skill.mode, trigger=trigger, body=body)
    )


async def _ask(desk: Desk, seat: Seat, context: ToolContext, request: WriteRequest) -> WriteAnswer:
    """A person decides about a fact, and nobody else: no approval mode stands in."""
    params = ApprovalParams(
        session_id=context.session_id,
        agent_id=context.agent_id,
        turn_id=context.turn_id,
        tool_call_id=context.tool_call_id,
        name="remember",
        arguments=request.arguments,
        options=("allow_once", "reject"),
        preview=request.preview,
    )
    answer = await desk.hosts.ask_approval(params, wait_s=seat.agent.settings.approval.wait_s)
    value = answer.value if isinstance(answer.value, dict) else {}
    allowed = answer.failure is None and value.get("outcome") == "allow_once"
    reason = value.get("reason") if isinstance(value.get("reason"), str) else None
    seat.agent.append(
        ToolApproval(
            time=seat.agent.clock.now_ms(),
            tool_call_id=context.tool_call_id,
            name="remember",
            outcome="allow_once" if allowed else "reject",
            by="host" if answer.failure is None else "nobody",
            reason=reason,
        )
    )
    return WriteAnswer(allowed, reason)
