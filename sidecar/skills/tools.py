"""The tools `run_skill` and `read_skill`. How a sub-agent runs and what is logged is the session's: handed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from protocol.messages import ToolSpec
from sidecar.skills.definition import Skill
from sidecar.skills.discovery import Catalog
from sidecar.skills.render import describe, render
from sidecar.tools.port import Tool, ToolContext, ToolOutcome

LoadCatalog = Callable[[ToolContext], Awaitable[Catalog]]
"""The skills as they are now: a skill that was edited is used as edited, whatever the frozen index says."""

OnActivate = Callable[[ToolContext, Skill, str, str], Awaitable[None]]
"""Called before an inline skill's body is returned and before a sub-agent starts; then the trigger, `model`, and the
skill's text with its arguments."""


class SubagentRunner(Protocol):
    async def __call__(self, context: ToolContext, skill: Skill, prompt: str) -> ToolOutcome:
        """Runs an agent of its own on `prompt`, the skill's text with its arguments; only its answer comes back.
        Limits on number and depth are outcomes too. Cancelling the call ends the agent."""
        ...


_NAME: Final = {"type": "string", "minLength": 1, "description": "The skill's name as it is listed."}

RUN_SKILL: Final = ToolSpec(
    name="run_skill",
    description=(
        "Use a skill. Its text comes back as instructions to follow; a skill that runs as a sub-agent comes back as "
        "that agent's answer."
    ),
    parameters={
        "type": "object",
        "properties": {
            "name": _NAME,
            "arguments": {"type": "string", "description": "What the skill is to be used on, in words."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)

READ_SKILL: Final = ToolSpec(
    name="read_skill",
    description="Show a skill's description and text without using it.",
    parameters={"type": "object", "properties": {"name": _NAME}, "required": ["name"], "additionalProperties": False},
)


def run_skill_tool(load: LoadCatalog, run_subagent: SubagentRunner | None, on_activate: OnActivate) -> Tool:
    """Without `run_subagent` skills of that mode are refused: the caller may start no more agents."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        catalog = await load(context)
        skill = catalog.get(str(arguments["name"]))
        if skill is None:
            return _unknown(str(arguments["name"]), catalog)
        text = render(skill, str(arguments.get("arguments") or ""))
        if skill.mode == "inline":
            await on_activate(context, skill, "model", text)
            return ToolOutcome.text(text)
        if run_subagent is None:
            return ToolOutcome.error(
                f"The skill {skill.name} runs as a sub-agent, and none can be started from here. "
                "read_skill shows what it would do."
            )
        await on_activate(context, skill, "model", text)
        return await run_subagent(context, skill, text)

    return Tool(spec=RUN_SKILL, run=run, main_argument="name")


def read_skill_tool(load: LoadCatalog) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        catalog = await load(context)
        skill = catalog.get(str(arguments["name"]))
        return _unknown(str(arguments["name"]), catalog) if skill is None else ToolOutcome.text(describe(skill))

    return Tool(spec=READ_SKILL, run=run, main_argument="name")


def _unknown(name: str, catalog: Catalog) -> ToolOutcome:
    known = ", ".join(skill.name for skill in catalog.skills[:50])
    there = f"There are: {known}." if known else "There are no skills here."
    return ToolOutcome.error(f"There is no skill named {name[:100]!r}. {there}")
