"""Ids of tool calls stand once in a session, whatever the model or a host's transcript counts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.client.host import HostCall, host_tool
from tests.support import strict_openai
from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.running import Sidecar, running_sidecar

pytestmark = pytest.mark.anyio


@host_tool("look", "Looks.", {"n": {"type": "integer"}})
async def look(call: HostCall) -> str:
    return "seen"


def counting_anew(request: dict[str, Any], n: int) -> Reply:
    """One call in each turn, always under the same id."""
    if request["messages"][-1]["role"] == "tool":
        return Reply("done " * 300)
    if "about to be compacted" in str(request["messages"][-1]["content"]):
        return Reply("What was said and done until now, told in enough words. " * 5)
    return Reply("", tool_calls=[call("look", {"n": n}, "call_0")])


def ids_of(sidecar: Sidecar, session_id: str) -> list[str]:
    messages = [r["message"] for r in sidecar.records(session_id) if r["type"] == "context.append_message"]
    return [c["id"] for m in messages for c in m.get("tool_calls", ())]


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_an_id_that_left_the_context_is_known_after_a_restart(end: str, tmp_path: Path) -> None:
    with FakeLLM(counting_anew) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[look])).session_id
            await client.chat.run(sid, "first")
            assert (await client.chat.compact(sid)).outcome == "landed"
            if end == "close":
                await client.sessions.close(sid)
            else:
                await sidecar.kill()
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            client = sidecar.client
            await client.sessions.resume(sid, tools=[look])
            await client.chat.run(sid, "second")
            await client.chat.uncompact(sid)
            await client.chat.run(sid, "third")
            used = ids_of(sidecar, sid)
            assert used[0] == "call_0"
            assert len(used) == len(set(used)) == 3
            strict_openai.check(llm.bodies[-1])


async def test_a_transcript_that_counts_its_calls_anew_is_sent_with_ids_of_their_own() -> None:
    def turn(n: int) -> list[dict[str, Any]]:
        asked = {"id": "call_0", "name": "look", "arguments": "{}"}
        return [
            {"role": "user", "content": f"question {n}"},
            {"role": "assistant", "content": "", "tool_calls": [asked, asked]},
            {"role": "tool", "content": f"one {n}", "tool_call_id": "call_0"},
            {"role": "tool", "content": f"two {n}", "tool_call_id": "call_0"},
            {"role": "assistant", "content": f"answer {n}"},
        ]

    with FakeLLM(counting_anew) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[look])).session_id
            for history in ([*turn(0), *turn(1)], [*turn(0), *turn(2)]):
                params = {"session_id": sid, "content": "now", "history": history, "wait": True}
                assert (await client.call("agent.chat.send", params))["stop_reason"] == "end_turn"
                for body in llm.bodies:
                    said = strict_openai.check(body)["messages"]
                    assert [m["content"] for m in said if m["role"] == "tool"][:2] == ["one 0", "two 0"]
                    assert not any("interrupted" in str(m["content"]) for m in said)


async def test_a_sub_agents_calls_differ_from_those_of_the_main_agent() -> None:
    calls: list[str] = []

    @host_tool("look", "Looks.", {})
    async def noting(call: HostCall) -> str:
        calls.append(call.tool_call_id)
        return "seen"

    def script(request: dict[str, Any], n: int) -> Reply:
        messages = request["messages"]
        below = "Do it" in str(messages[1:3])
        if messages[-1]["role"] == "tool":
            return Reply("done")
        if below:
            return Reply("", tool_calls=[call("look", {}, "call_0")])
        return Reply("", tool_calls=[call("run_skill", {"name": "deep"}, "call_0"), call("look", {}, "call_1")])

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            folder = sidecar.work / ".sidecar" / "skills" / "deep"
            folder.mkdir(parents=True)
            (folder / "SKILL.md").write_text("---\nname: deep\ndescription: d\nmode: subagent\n---\nDo it.\n")
            made = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), tools=[noting], config={"tools": {"builtin": "all"}}
            )
            for _ in range(2):
                await sidecar.client.chat.run(made.session_id, "go")
            assert not {"call_0"} & set(calls)
            assert len(set(calls)) == len(calls) == 4
