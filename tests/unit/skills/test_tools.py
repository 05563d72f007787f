"""`run_skill` and `read_skill`, with the session's part played by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocol.skills import SkillMode
from sidecar.skills.definition import Skill
from sidecar.skills.discovery import Catalog
from sidecar.skills.render import render
from sidecar.skills.tools import read_skill_tool, run_skill_tool
from sidecar.tools.port import ToolContext, ToolOutcome
from tests.support.tools import context_in, text_of

pytestmark = pytest.mark.anyio


def skill(name: str, mode: SkillMode = "inline", body: str = "Look closely.") -> Skill:
    return Skill(name, "d", mode, "project", body, Path("/w"), f".claude/skills/{name}/SKILL.md", ("grep",))


@dataclass
class Session:
    catalog: Catalog
    activated: list[tuple[str, str, str]] = field(default_factory=list)
    agents: list[tuple[str, str, str]] = field(default_factory=list)

    async def load(self, context: ToolContext) -> Catalog:
        return self.catalog

    async def on_activate(self, context: ToolContext, skill: Skill, trigger: str, text: str) -> None:
        assert skill.body in text
        self.activated.append((context.agent_id, skill.name, trigger))

    async def run_subagent(self, context: ToolContext, skill: Skill, prompt: str) -> ToolOutcome:
        self.agents.append((context.agent_id, skill.name, prompt))
        return ToolOutcome.text("the answer")

    async def run(self, *, agents: bool = True, **arguments: Any) -> ToolOutcome:
        tool = run_skill_tool(self.load, self.run_subagent if agents else None, self.on_activate)
        return await tool.run(CONTEXT, arguments)


CONTEXT = context_in(Path("/w"))


@pytest.fixture
def session() -> Session:
    return Session(Catalog((skill("review"), skill("research", "subagent"))))


async def test_an_inline_skill_comes_back_as_its_text(session: Session) -> None:
    outcome = await session.run(name="review", arguments="the last commit")
    assert text_of(outcome) == (
        '<skill name="review" file=".claude/skills/review/SKILL.md">\n'
        "Look closely.\n\nArguments: the last commit\n</skill>"
    )
    assert session.activated == [("main", "review", "model")]
    assert session.agents == []


async def test_a_subagent_skill_comes_back_as_an_answer(session: Session) -> None:
    outcome = await session.run(name="research", arguments="cats")
    assert text_of(outcome) == "the answer"
    assert session.activated == [("main", "research", "model")]
    assert session.agents == [("main", "research", render(session.catalog.skills[1], "cats"))]


async def test_where_no_agent_can_be_started_it_is_refused_and_nothing_is_activated(session: Session) -> None:
    outcome = await session.run(agents=False, name="research")
    assert outcome.is_error
    assert session.activated == []
    assert not (await session.run(agents=False, name="review")).is_error


async def test_an_unknown_skill_names_those_that_there_are(session: Session) -> None:
    for outcome in (
        await session.run(name="nobody"),
        await read_skill_tool(session.load).run(CONTEXT, {"name": "nobody"}),
    ):
        assert outcome.is_error
        assert text_of(outcome) == "There is no skill named 'nobody'. There are: review, research."
    session.catalog = Catalog()
    assert text_of(await session.run(name="x")) == "There is no skill named 'x'. There are no skills here."


async def test_reading_uses_nothing(session: Session) -> None:
    outcome = await read_skill_tool(session.load).run(CONTEXT, {"name": "research"})
    assert text_of(outcome) == (
        "name: research\ndescription: d\nmode: subagent\nfile: .claude/skills/research/SKILL.md\n"
        "allowed-tools: grep\n\nLook closely."
    )
    assert session.activated == session.agents == []


async def test_arguments_go_where_the_skill_wants_them() -> None:
    assert "Fix cats now" in render(skill("x", body="Fix $ARGUMENTS now"), " cats ")
    assert "Arguments:" not in render(skill("x", body="Fix $ARGUMENTS now"), "cats")
    assert "Arguments:" not in render(skill("x"), " ")
