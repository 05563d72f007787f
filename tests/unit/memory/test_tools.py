"""`remember` asks unless all seven conditions hold; `recall` tells what there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from protocol.memory import FactInput
from sidecar.memory.gate import MAX_AUTOMATIC_CHARS
from sidecar.memory.tools import REMEMBER, WriteAnswer, WriteRequest, Written, recall_tool, remember_tool
from sidecar.tools.port import Tool, ToolContext, ToolOutcome
from tests.support.memory import World
from tests.support.tools import context_in, text_of

pytestmark = pytest.mark.anyio

FACT = {"name": "Deploy window", "description": "When to deploy", "type": "project", "body": "Fridays, never Mondays."}


@dataclass
class Host:
    """Answers questions as it was told to, and keeps them."""

    world: World
    allowed: bool = True
    asked: list[WriteRequest] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    automatic: bool = True
    before_answer: Any = None

    async def ask(self, context: ToolContext, request: WriteRequest) -> WriteAnswer:
        self.asked.append(request)
        if self.before_answer is not None:
            await self.before_answer()
        return WriteAnswer(self.allowed, None if self.allowed else "not now")

    async def on_written(self, context: ToolContext, written: Written) -> None:
        self.written.append(written)

    def remember(self) -> Tool:
        return remember_tool(
            self.world.service,
            self.ask,
            on_written=self.on_written,
            session_cwd=lambda context: self.world.work,
            automatic=lambda context: self.automatic,
        )

    async def call(self, agent_id: str = "main", cwd: Path | None = None, **arguments: Any) -> ToolOutcome:
        given = {**FACT, **arguments}
        jsonschema.validate(given, REMEMBER.parameters)
        return await self.remember().run(context_in(cwd or self.world.work, agent_id=agent_id), given)

    async def facts(self) -> list[str]:
        return [f.name for f in (await self.world.service.list(self.world.work)).facts]


@pytest.fixture
def host(world: World) -> Host:
    return Host(world)


async def test_all_conditions_met_is_one_write_and_no_question(host: Host) -> None:
    outcome = await host.call(keywords=["release"], scope="project")
    assert (text_of(outcome), outcome.is_error) == ("Remembered for this project: Deploy window", False)
    assert host.asked == []
    assert [(w.operation, w.by, w.fact.revision) for w in host.written] == [("create", "auto", 1)]
    assert await host.facts() == ["Deploy window"]
    assert host.written[0].fact.keywords == ("release",)


VIOLATIONS: dict[str, dict[str, Any]] = {
    "sub-agent": {"agent_id": "agent_2"},
    "type user": {"type": "user"},
    "type feedback": {"type": "feedback"},
    "global": {"scope": "global"},
    "too long": {"body": "long enough " * (MAX_AUTOMATIC_CHARS // 12 + 1)},
    "credential": {"body": "The password is hunter2"},
    "e-mail in a keyword": {"keywords": ["bob@example.com"]},
    "private key": {"description": "-----BEGIN RSA PRIVATE " + "KEY-----"},
}


@pytest.mark.parametrize("violation", VIOLATIONS)
@pytest.mark.parametrize("allowed", [True, False])
async def test_each_condition_violated_alone_is_a_question(host: Host, violation: str, allowed: bool) -> None:
    host.allowed = allowed
    outcome = await host.call(**VIOLATIONS[violation])
    (asked,) = host.asked
    assert len(asked.reasons) == 1
    assert asked.options == ("allow_once", "reject")
    assert outcome.is_error is not allowed
    assert [w.by for w in host.written] == (["approved"] if allowed else [])
    assert len(await host.facts()) == allowed


async def test_a_workspace_that_is_not_the_sessions_is_a_question(host: Host) -> None:
    await host.call(cwd=host.world.other)
    assert host.asked[0].reasons == ("only the main agent of a session in this project writes by itself",)


@pytest.mark.parametrize("same", ["name", "title", "description"])
@pytest.mark.parametrize("scope", ["project", "global"])
async def test_an_equal_name_title_or_description_is_a_question(host: Host, same: str, scope: str) -> None:
    there = {"name": "n", "title": "t", "description": "d", same: "Equal, words"}
    await host.world.save(scope=scope, **there)
    host.allowed = False
    new = {"name": "m", "title": "u", "description": "e", same: "equal WORDS"}
    outcome = await host.call(**new)
    assert outcome.is_error
    assert "there is a fact of an equal name, title or description" in host.asked[0].reasons
    assert len(await host.facts()) == 1


async def test_switched_off_is_a_question(host: Host) -> None:
    host.automatic = False
    await host.call()
    assert host.asked[0].reasons == ("automatic writing is switched off",)


async def test_an_equal_name_is_replaced_by_consent(host: Host) -> None:
    await host.call()
    outcome = await host.call(body="Thursdays.")
    assert text_of(outcome) == "Updated for this project: Deploy window"
    assert "Replace revision 1 of a fact for this project" in host.asked[0].preview
    assert [(w.operation, w.by, w.fact.revision) for w in host.written] == [
        ("create", "auto", 1),
        ("update", "approved", 2),
    ]
    assert await host.facts() == ["Deploy window"]


async def test_the_preview_shows_everything_and_why(host: Host) -> None:
    host.allowed = False
    outcome = await host.call(type="user", scope="global", title="Window")
    assert host.asked[0].preview == (
        "Remember for every project (type user): Deploy window (Window)\nWhen to deploy\n\nFridays, never Mondays.\n\n"
        "Asked because the type is not project or reference; it would hold in every project."
    )
    assert "not given (not now)" in text_of(outcome)


async def test_a_fact_that_changed_while_a_person_thought_is_not_overwritten(host: Host) -> None:
    await host.call()
    (made,) = (await host.world.service.list(host.world.work)).facts

    async def meanwhile() -> None:
        newer = msgspec.convert({**FACT, "body": "meanwhile"}, FactInput)
        await host.world.service.save(host.world.work, newer, fact_id=made.id, expected_revision=1)

    host.before_answer = meanwhile
    outcome = await host.call(body="mine")
    assert outcome.is_error
    assert (await host.world.service.get(host.world.work, made.id)).fact.body == "meanwhile"


async def test_blank_text_is_an_error_for_the_model(host: Host) -> None:
    outcome = await host.call(body=" ")
    assert outcome.is_error
    assert "body: must not be blank" in text_of(outcome)
    assert host.asked == []


async def test_recall_tells_what_there_is(host: Host) -> None:
    await host.call()
    tool = recall_tool(host.world.service, in_prefix=lambda context: {})
    found = await tool.run(context_in(host.world.work), {"query": "deploy window"})
    assert "Fridays, never Mondays." in text_of(found)
    nothing = await tool.run(context_in(host.world.work), {"query": "weather"})
    assert text_of(nothing).startswith("Nothing is remembered about that.")
    assert not nothing.is_error
