"""Instructions, memory, skills and sub-agents in a real daemon: the ways that a session meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.chat import ApprovalParams, ApprovalResult
from protocol.memory import FactInput
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import of_type, prefix_bytes

pytestmark = pytest.mark.anyio

SKILL = (
    "---\nname: {name}\ndescription: {description}\n{more}---\n\nDo {name} with $ARGUMENTS carefully.\nMARK-{name}\n"
)


def skill(work: Path, name: str, description: str = "a skill", more: str = "") -> None:
    folder = work / ".sidecar" / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format(name=name, description=description, more=more))


def system_of(request: Any) -> str:
    return next(t for r, t in request.texts if r in ("system", "developer"))


ALL = {"tools": {"builtin": "all"}}


async def create(sidecar: Sidecar, **more: Any) -> str:
    made = await sidecar.client.sessions.create(cwd=str(sidecar.work), **{"config": ALL, **more})
    return made.session_id


async def test_instructions_stand_frozen_in_the_prefix_and_edits_come_in_the_tail() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            (sidecar.work / ".git").mkdir()
            rules = sidecar.work / "AGENTS.md"
            rules.write_text("Rule one: be kind.\n@extra.md\n@../outside.md\n")
            (sidecar.work / "extra.md").write_text("Rule two: be quick.\n")
            (sidecar.work.parent / "outside.md").write_text("SECRET OUTSIDE")
            sid = await create(sidecar, system_prompt="You are a host's agent.")
            await sidecar.client.chat.run(sid, "first")
            system = system_of(llm.requests[0])
            assert system.index("You are a host's agent.") < system.index("Rule one") != -1
            assert "Rule two: be quick." in system
            assert "SECRET OUTSIDE" not in llm.requests[0].body.decode()
            rules.write_text("Rule one: be kind.\nRule three: be brief.\n@extra.md\n")
            skill(sidecar.work, "late")
            await sidecar.client.memory.save(
                FactInput(name="n", description="about n", type="user", body="B", scope="global"), session_id=sid
            )
            await sidecar.client.chat.run(sid, "second")
            await sidecar.client.chat.run(sid, "third")
            assert system_of(llm.requests[1]) == system
            assert prefix_bytes(llm.requests[2].body) == prefix_bytes(llm.requests[0].body)
            notes = [t for r, t in llm.requests[2].texts if r == "user" and "Rule three" in t]
            assert len(notes) == 1
            assert "Rule one" not in notes[0]
            assert not any("current-date" in system_of(r) for r in llm.requests)


async def test_memory_is_recalled_into_the_tail_and_says_that_it_may_be_wrong() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await create(sidecar)
            memory = sidecar.client.memory
            saved = await memory.save(
                FactInput(
                    name="deploy port",
                    description="the staging deploy listens on a port",
                    type="project",
                    body="The staging deploy listens on port 8081 behind <nginx>.",
                ),
                session_id=sid,
            )
            assert saved.revision == 1
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "which port does the staging deploy use?")
                told = [x.event async for x in events.of_turn(turn.turn_id)]
            recalled = [x for x in told if isinstance(x, e.MemoryRecalled)]
            assert [h.id for h in recalled[0].hits] == [saved.id]
            block = next(t for r, t in llm.requests[-1].texts if "<memory-recall" in t)
            assert "8081" in block
            assert "<nginx>" not in block
            assert "8081" not in system_of_or_empty(llm.requests[-1])
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "continue")
                told = [x.event async for x in events.of_turn(turn.turn_id)]
            assert [x.suppressed for x in told if isinstance(x, e.MemoryRecalled)] == ["generic_turn"]
            with pytest.raises(SidecarError) as stale:
                await memory.save(
                    FactInput(name="deploy port", description="d", type="project", body="x"),
                    id=saved.id,
                    expected_revision=7,
                    session_id=sid,
                )
            assert (stale.value.reason, stale.value.data["current"]) == ("stale_revision", 1)
            assert (await memory.get(saved.id, session_id=sid)).body is not None
            assert [f.id for f in (await memory.list(session_id=sid)).facts] == [saved.id]
            hits = (await memory.recall("staging deploy port", session_id=sid)).hits
            assert [h.fact.id for h in hits] == [saved.id]
            await memory.forget(saved.id, session_id=sid)
            assert (await memory.list(session_id=sid)).facts == ()


def system_of_or_empty(request: Any) -> str:
    return next((t for r, t in request.texts if r in ("system", "developer")), "")


async def test_remember_writes_unasked_only_what_is_harmless() -> None:
    asked: list[ApprovalParams] = []

    async def approve(params: ApprovalParams) -> ApprovalResult:
        asked.append(params)
        return ApprovalResult(outcome="reject")

    harmless = {"name": "build tool", "description": "how it is built", "type": "project", "body": "It uses make."}
    secret = {
        **harmless,
        "name": "key",
        "description": "a key",
        "body": "token ghp_0123456789abcdefghijABCDEFGHIJ012345",
    }
    personal = {**harmless, "name": "likes", "description": "what they like", "type": "user", "body": "Likes tea."}
    replies = sequence(
        Reply(tool_calls=[call("remember", harmless, "m1")]),
        Reply(tool_calls=[call("remember", harmless, "m2")]),
        Reply(tool_calls=[call("remember", secret, "m3")]),
        Reply(tool_calls=[call("remember", personal, "m4")]),
        Reply("done"),
    )
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm, approve=approve) as sidecar:
            sid = await create(sidecar, config={"tools": {"builtin": "all"}, "approval": {"mode": "auto"}})
            await sidecar.client.chat.run(sid, "remember things")
            assert [p.tool_call_id for p in asked] == ["m2", "m3", "m4"]
            assert all("allow_session" not in p.options for p in asked)
            facts = (await sidecar.client.memory.list(session_id=sid)).facts
            assert [f.name for f in facts] == ["build tool"]
            writes = of_type(sidecar.records(sid), "memory.write")
            assert [(w["op"], w["by"]) for w in writes] == [("create", "auto")]


async def test_an_inline_skill_comes_as_a_result_and_survives_a_compaction() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        last = str(request["messages"][-1]["content"])
        if "compacted" in last and n > 1:
            return Reply("SUMMARY of what was done so far, in enough words to be more than trivial for anybody. " * 3)
        if n == 0:
            return Reply(tool_calls=[call("run_skill", {"name": "shine", "arguments": "the shoes"}, "s1")])
        return Reply("word " * 300)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "shine", "polishes")
            sid = await create(sidecar)
            listed = await sidecar.client.skills.list(sid)
            assert [(s.name, s.mode) for s in listed.skills] == [("shine", "inline")]
            await sidecar.client.chat.run(sid, "please shine")
            assert "shine: polishes" in system_of(llm.requests[0])
            result = next(t for r, t in llm.requests[1].texts if r == "tool")
            assert "MARK-shine" in result
            assert "the shoes" in result
            await sidecar.client.chat.run(sid, "and more")
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            await sidecar.client.chat.run(sid, "after")
            assert any("MARK-shine" in t for _, t in llm.requests[-1].texts)
            started = await sidecar.client.skills.run(sid, "shine", "the floor")
            await until(lambda: any("the floor" in t for _, t in llm.requests[-1].texts), what="the user's activation")
            assert started.turn_id
            with pytest.raises(SidecarError) as unknown:
                await sidecar.client.skills.run(sid, "nope")
            assert unknown.value.data["path"] == "name"


async def test_a_sub_agent_has_a_log_of_its_own_and_leaves_only_its_answer() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        texts = [str(m.get("content")) for m in request["messages"]]
        if any("MARK-dig" in t for t in texts):
            if request["messages"][-1]["role"] == "tool":
                return Reply("ANSWER FROM BELOW")
            return Reply("INNER WORDS", tool_calls=[call("list_dir", {}, "d1")])
        if request["messages"][-1]["role"] == "tool":
            return Reply("the end")
        return Reply(tool_calls=[call("run_skill", {"name": "dig", "arguments": "deep"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig", more="mode: subagent\nallowed-tools: list_dir\n")
            sid = await create(sidecar)
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "dig")
                told = []
                async for x in events:
                    told.append(x)
                    if x.turn_id == turn.turn_id and isinstance(x.event, e.TurnEnded):
                        break
            agents = {x.agent_id for x in told}
            assert len(agents) == 2
            child = (agents - {"main"}).pop()
            assert (await sidecar.client.sessions.get(sid)).agents == ("main", child)
            context = (await sidecar.client.sessions.messages(sid, view="context")).messages
            whole = "\n".join(m.text for m in context)
            assert "ANSWER FROM BELOW" in whole
            assert "INNER WORDS" not in whole
            below = (await sidecar.client.sessions.messages(sid, view="context", agent_id=child)).messages
            assert any("INNER WORDS" in m.text for m in below)
            assert sidecar.records(sid, child)[0]["type"] == "metadata"
            assert [r["type"] for r in of_type(sidecar.records(sid), "agent.spawn", "agent.finish")] == [
                "agent.spawn", "agent.finish",
            ]  # fmt: skip
            inner = next(r for r in llm.requests if any("MARK-dig" in t for _, t in r.texts))
            assert [t["function"]["name"] for t in inner.json["tools"]] == ["list_dir"]
            assert (await sidecar.client.records.verify(sid)).ok
            assert (await sidecar.client.context.get(sid, child)).used > 0


async def test_cancelling_the_turn_ends_its_sub_agent() -> None:
    gate = Gate()

    def script(request: dict[str, Any], n: int) -> Reply:
        if any("MARK-dig" in str(m.get("content")) for m in request["messages"]):
            return Reply("never", gate=gate)
        if request["messages"][-1]["role"] == "tool":
            return Reply("the end")
        if any("next" in str(m.get("content")) for m in request["messages"]):
            return Reply("fine")
        return Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig", more="mode: subagent\n")
            sid = await create(sidecar)
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "dig")
                await until(lambda: len(llm.requests) == 2, what="the sub-agent's request")
                with anyio.fail_after(5):
                    assert await sidecar.client.chat.cancel(sid)
                    ended = [x.event async for x in events.of_turn(turn.turn_id)][-1]
            assert ended.stop_reason == "cancelled"
            child = (await sidecar.client.sessions.get(sid)).agents[1]
            ends = of_type(sidecar.records(sid, child), "turn.end")
            assert [x["stop_reason"] for x in ends] == ["cancelled"]
            assert (await sidecar.client.chat.run(sid, "next")).text == "fine"
            gate.open()


async def test_a_sub_agent_compacts_twice_and_leaves_only_its_answer() -> None:
    steps = 34
    done = {"n": 0}

    @host_tool("page", "Returns a page.", {"n": {"type": "integer"}})
    async def page(call_: HostCall) -> str:
        return f"PAGE {call_.arguments['n']} " + "lorem ipsum dolor " * 200

    def script(request: dict[str, Any], n: int) -> Reply:
        messages = request["messages"]
        last = str(messages[-1]["content"])
        if messages[-1]["role"] == "user" and "about to be compacted" in last:
            return Reply("SUMMARY of the pages that were read so far, and what is to be done next with them. " * 4)
        if any("MARK-dig" in str(m.get("content")) for m in messages):
            if done["n"] >= steps:
                return Reply("ANSWER FROM BELOW")
            done["n"] += 1
            return Reply("reading", tool_calls=[call("page", {"n": done["n"]}, f"p{n}")])
        if messages[-1]["role"] == "tool":
            return Reply("the end")
        return Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    config = {**ALL, "model": {"window": 12_000}, "compaction": {"preset": "handoff"}}
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig", more="mode: subagent\nallowed-tools: page\n")
            sid = await create(sidecar, tools=[page], config=config)
            result = await sidecar.client.chat.run(sid, "dig")
            assert result.text == "the end"
            child = (await sidecar.client.sessions.get(sid)).agents[1]
            landed = of_type(sidecar.records(sid, child), "context.apply_compaction")
            assert len(landed) >= 2
            assert not of_type(sidecar.records(sid), "context.apply_compaction")
            parent = (await sidecar.client.sessions.messages(sid, view="context")).messages
            assert [m.text for m in parent if m.role == "tool"] == ["ANSWER FROM BELOW"]
            assert (await sidecar.client.records.verify(sid)).ok
