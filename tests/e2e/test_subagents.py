"""Sub-agents as a host sees them: whose events, whose log, who is asked, and what is left after an end of any kind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.chat import ApprovalParams, ApprovalResult
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import of_type

pytestmark = pytest.mark.anyio

ALL = {"tools": {"builtin": "all"}}


def skill(work: Path, name: str, more: str = "mode: subagent\n", body: str = "") -> None:
    folder = work / ".sidecar" / "skills" / name
    folder.mkdir(parents=True)
    text = body or f"MARK-{name} work on $ARGUMENTS."
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: does {name}\n{more}---\n{text}\n")


def marked(request: dict[str, Any], name: str) -> bool:
    """Whether this is a request of the agent whose task is the skill of that name."""
    users = [m for m in request["messages"] if m["role"] == "user"]
    return any(f"MARK-{name}" in str(m["content"]) for m in users)


def last_is_result(request: dict[str, Any]) -> bool:
    return bool(request["messages"][-1]["role"] == "tool")


async def create(sidecar: Sidecar, **more: Any) -> str:
    made = await sidecar.client.sessions.create(cwd=str(sidecar.work), **{"config": ALL, **more})
    return made.session_id


async def child_of(sidecar: Sidecar, sid: str, n: int = 1) -> str:
    return (await sidecar.client.sessions.get(sid)).agents[n]


async def test_calls_and_approvals_of_a_sub_agent_carry_its_id() -> None:
    asked: list[ApprovalParams] = []
    called: list[HostCall] = []

    async def approve(params: ApprovalParams) -> ApprovalResult:
        asked.append(params)
        return ApprovalResult(outcome="allow_once")

    @host_tool("lookup", "Looks up.", {"x": {"type": "string"}})
    async def lookup(call_: HostCall) -> str:
        called.append(call_)
        return "FOUND"

    fact = {"name": "n", "description": "about n", "type": "project", "body": "B"}

    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig"):
            if last_is_result(request):
                return Reply("ANSWER")
            return Reply(
                tool_calls=[
                    call("lookup", {"x": "1"}, "l1"),
                    call("write_file", {"path": "a.txt", "content": "hi"}, "w1"),
                    call("remember", fact, "r1"),
                ]
            )
        return Reply("end") if last_is_result(request) else Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, approve=approve) as sidecar:
            skill(sidecar.work, "dig")
            sid = await create(sidecar, tools=[lookup])
            assert (await sidecar.client.chat.run(sid, "go")).text == "end"
            child = await child_of(sidecar, sid)
            assert [c.agent_id for c in called] == [child]
            assert {(a.name, a.agent_id) for a in asked} == {("write_file", child), ("remember", child)}
            assert (sidecar.work / "a.txt").read_text() == "hi"
            below = sidecar.records(sid, child)
            assert [w["by"] for w in of_type(below, "memory.write")] == ["approved"]
            assert not of_type(sidecar.records(sid), "memory.write")
            assert {a["name"] for a in of_type(below, "tool.approval")} == {"write_file", "remember"}


async def test_one_that_runs_can_be_read_and_compacted() -> None:
    gate = Gate()

    def script(request: dict[str, Any], n: int) -> Reply:
        if "about to be compacted" in str(request["messages"][-1]["content"]):
            return Reply("SUMMARY of what was done below, in more than enough words for anybody who asks. " * 4)
        if marked(request, "dig"):
            if sum(m["role"] == "tool" for m in request["messages"]) >= 1:
                return Reply("ANSWER")
            if any("SUMMARY" in str(m["content"]) for m in request["messages"]):
                return Reply("ANSWER")
            return Reply("INNER " * 2_000, gate=gate, tool_calls=[call("list_dir", {}, "d1")])
        return Reply("end") if last_is_result(request) else Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig")
            sid = await create(sidecar, config={**ALL, "compaction": {"preset": "handoff"}})
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "go")
                await until(lambda: len(llm.requests) == 2, what="the sub-agent's request")
                child = await child_of(sidecar, sid)
                below = (await sidecar.client.sessions.messages(sid, view="context", agent_id=child)).messages
                assert any("MARK-dig" in m.text for m in below)
                full = (await sidecar.client.sessions.messages(sid, view="full", agent_id=child)).messages
                assert any("MARK-dig" in m.text for m in full)
                assert (await sidecar.client.context.get(sid, child)).used > 0
                rows = (await sidecar.client.records.query(sid, agent_id=child, types=["turn.begin"])).records
                assert len(rows) == 1
                with pytest.raises(SidecarError) as busy:
                    await sidecar.client.chat.compact(sid, agent_id=child)
                assert busy.value.reason == "turn_active"
                queued = await sidecar.client.chat.compact(sid, agent_id=child, when="next_step")
                assert queued.outcome == "queued"
                gate.open()
                told = [x async for x in events.of_turn(turn.turn_id)]
            assert isinstance(told[-1].event, e.TurnEnded)
            landed = of_type(sidecar.records(sid, child), "context.apply_compaction")
            assert len(landed) == 1
            assert not of_type(sidecar.records(sid), "compaction.start")
            done = await sidecar.client.context.get(sid, child)
            assert done.last_landing is not None
            with pytest.raises(SidecarError) as unknown:
                await sidecar.client.context.get(sid, "nobody")
            assert unknown.value.reason == "session_not_found"


async def test_a_cancel_ends_the_whole_tree_and_says_so_in_every_log() -> None:
    gate = Gate()

    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "deeper"):
            return Reply("never", hold_after=(2, gate), chunks=6)
        if marked(request, "dig"):
            return Reply(tool_calls=[call("run_skill", {"name": "deeper"}, "s2")])
        if any("again" in str(m["content"]) for m in request["messages"]):
            return Reply("fine")
        return Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig")
            skill(sidecar.work, "deeper")
            sid = await create(sidecar)
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "go")
                await until(lambda: len(llm.requests) == 3, what="the sub-agent's sub-agent")
                await anyio.sleep(0.1)
                with anyio.fail_after(3):
                    assert await sidecar.client.chat.cancel(sid)
                    ended = [x.event async for x in events.of_turn(turn.turn_id)][-1]
            assert ended.stop_reason == "cancelled"
            agents = (await sidecar.client.sessions.get(sid)).agents
            assert len(agents) == 3
            for agent_id in agents[1:]:
                assert [r["stop_reason"] for r in of_type(sidecar.records(sid, agent_id), "turn.end")] == ["cancelled"]
            finished = of_type(sidecar.records(sid), "agent.finish")
            assert {(r["agent_id"], r["stop_reason"]) for r in finished} == {(a, "cancelled") for a in agents[1:]}
            assert (await sidecar.client.records.verify(sid)).ok
            assert (await sidecar.client.chat.run(sid, "again")).text == "fine"
            gate.open()


async def test_depth_and_number_are_bounded_and_the_model_is_told() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig") or marked(request, "wide"):
            if last_is_result(request):
                return Reply("BELOW: " + str(request["messages"][-1]["content"])[:80])
            return (
                Reply(tool_calls=[call("run_skill", {"name": "dig"}, f"d{n}")])
                if marked(request, "dig")
                else Reply("w")
            )
        if last_is_result(request):
            return Reply("end")
        if "wide" in str(request["messages"][-1]["content"]):
            return Reply(tool_calls=[call("run_skill", {"name": "wide"}, f"x{i}") for i in range(6)])
        return Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    config = {**ALL, "skills": {"max_agents": 3, "max_depth": 2}}
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig")
            skill(sidecar.work, "wide")
            sid = await create(sidecar, config=config)
            await sidecar.client.chat.run(sid, "deep")
            assert len((await sidecar.client.sessions.get(sid)).agents) == 3
            told = [m for r in llm.requests for m in r.messages if m["role"] == "tool"]
            assert any("2 deep" in str(m["content"]) for m in told)
            await sidecar.client.chat.run(sid, "wide")
            last = [m for m in llm.requests[-1].messages if m["role"] == "tool"][-6:]
            assert sum(str(m["content"]) == "w" for m in last) == 3
            assert sum("limit" in str(m["content"]) for m in last) == 3
            assert len((await sidecar.client.sessions.get(sid)).agents) == 6
            assert (await sidecar.client.records.verify(sid)).ok


async def test_killed_at_work_it_is_settled_by_the_resume() -> None:
    gate = Gate()

    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig"):
            if last_is_result(request):
                return Reply("never", gate=gate)
            return Reply("INNER", tool_calls=[call("list_dir", {}, "d1")])
        if any("again" in str(m["content"]) for m in request["messages"]):
            return Reply("fine")
        return Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm, tempfile.TemporaryDirectory() as home:
        async with running_sidecar(llm=llm, home=Path(home)) as sidecar:
            skill(sidecar.work, "dig")
            sid = await create(sidecar)
            await sidecar.client.chat.send(sid, "go")
            await until(lambda: len(llm.requests) == 3, what="the sub-agent's second request")
            child = await child_of(sidecar, sid)
            await anyio.sleep(0.2)
            await sidecar.kill()
        async with running_sidecar(llm=llm, home=Path(home)) as sidecar:
            resumed = await sidecar.client.sessions.resume(sid)
            assert {"open_calls", "open_turn"} <= {r.kind for r in resumed.recovered}
            assert resumed.session.agents == ("main", child)
            ends = of_type(sidecar.records(sid, child), "turn.end")
            assert [(r["stop_reason"], r["error"]["reason"]) for r in ends] == [("error", "restart")]
            assert [r["stop_reason"] for r in of_type(sidecar.records(sid), "agent.finish")] == ["error"]
            below = (await sidecar.client.sessions.messages(sid, view="context", agent_id=child)).messages
            assert any(m.text == "INNER" for m in below)
            assert (await sidecar.client.records.verify(sid)).ok
            assert (await sidecar.client.chat.run(sid, "again")).text == "fine"
        async with running_sidecar(llm=llm, home=Path(home)) as sidecar:
            assert (await sidecar.client.sessions.resume(sid)).recovered == ()
        gate.open()


async def test_a_fork_takes_them_along_and_they_answer_from_there() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig"):
            return Reply("ANSWER FROM BELOW")
        return (
            Reply("end") if last_is_result(request) else Reply(tool_calls=[call("run_skill", {"name": "dig"}, f"s{n}")])
        )

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig")
            sid = await create(sidecar)
            first = await sidecar.client.chat.run(sid, "go")
            await sidecar.client.chat.run(sid, "go on with it")
            one, two = (await sidecar.client.sessions.get(sid)).agents[1:]
            fork = (await sidecar.client.sessions.fork(sid, at_turn=first.turn_id)).session_id
            assert (await sidecar.client.sessions.get(fork)).agents == ("main", one)
            below = (await sidecar.client.sessions.messages(fork, view="context", agent_id=one)).messages
            assert below[-1].text == "ANSWER FROM BELOW"
            with pytest.raises(SidecarError):
                await sidecar.client.sessions.messages(fork, view="context", agent_id=two)
            assert (await sidecar.client.records.verify(fork)).ok
            assert (await sidecar.client.chat.run(fork, "more")).text == "end"
            assert len((await sidecar.client.sessions.get(fork)).agents) == 3


async def test_what_a_sub_agent_starts_from() -> None:
    """Its task, the standing instructions, the tools that its skill allows, its skill's model; nothing of the parent's
    conversation."""

    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig"):
            if last_is_result(request):
                return Reply("ANSWER")
            return Reply(tool_calls=[call("write_file", {"path": "x", "content": "y"}, "w1")])
        return (
            Reply("end")
            if last_is_result(request)
            else Reply(tool_calls=[call("run_skill", {"name": "dig", "arguments": "ARG7"}, "s1")])
        )

    with FakeLLM(script, models=("fake-model", "other")) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig", "context: fork\nallowed-tools: Read, Grep(*)\nmodel: openai/other\n")
            (sidecar.work / "AGENTS.md").write_text("RULE-ONE")
            sid = await create(sidecar, system_prompt="HOST-PROMPT")
            await sidecar.client.chat.run(sid, "a secret of the parent")
            inner = next(r for r in llm.requests if marked(r.json, "dig"))
            assert inner.json["model"] == "other"
            assert [t["function"]["name"] for t in inner.json["tools"]] == ["grep", "read_file"]
            body = inner.body.decode()
            assert "ARG7" in body
            assert "RULE-ONE" in body
            assert "HOST-PROMPT" in body
            assert "a secret of the parent" not in body
            refused = [m for r in llm.requests for m in r.messages if m["role"] == "tool" and m["tool_call_id"] == "w1"]
            assert refused
            assert not (sidecar.work / "x").exists()
            assert llm.requests[-1].json["model"] == "fake-model"


async def test_a_sub_agent_that_fails_is_an_error_result_and_the_turn_goes_on() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if marked(request, "dig"):
            return Reply(status=401, error={"message": "no", "type": "auth"})
        return Reply("end") if last_is_result(request) else Reply(tool_calls=[call("run_skill", {"name": "dig"}, "s1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig")
            skill(sidecar.work, "lost", "mode: subagent\nmodel: nowhere/x\n")
            sid = await create(sidecar)
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "go")
                told = [x async for x in events.of_turn(turn.turn_id)]
            results = [x.event for x in told if isinstance(x.event, e.ToolResult)]
            assert [r.is_error for r in results] == [True]
            assert told[-1].event.stop_reason == "end_turn"
            assert [r["stop_reason"] for r in of_type(sidecar.records(sid), "agent.finish")] == ["error"]
