"""What the daemon asks of its hosts, as raw frames: `approval.request`, `question.ask`, `tool.cancel`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.chat import QuestionParams
from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.raw_host import SocketHost
from tests.support.running import running_sidecar, serving_sidecar

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).resolve().parents[1] / "support" / "asking_mcp_server.py"


def with_server() -> dict[str, Any]:
    server = {"command": sys.executable, "args": [str(SERVER)]}
    return {"mcp": {"servers": {"asking": server}}, "approval": {"allow": ["mcp__asking__*"]}}


async def answer_of(answer: Any) -> str:
    replies = sequence(Reply(tool_calls=[call("mcp__asking__paint", {}, "p1")]), Reply("done"))
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm, answer=answer) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), config=with_server())).session_id
            with anyio.fail_after(30):
                assert (await client.chat.run(sid, "paint")).text == "done"
            messages = (await client.sessions.messages(sid, view="context")).messages
            return next(m.text for m in messages if m.role == "tool")


async def test_a_server_that_wants_to_know_something_reaches_the_user() -> None:
    """`question.ask` with the choices of the server's form; the answer goes back to the server."""
    asked: list[QuestionParams] = []

    async def answer(params: QuestionParams) -> str:
        asked.append(params)
        return "blue"

    assert await answer_of(answer) == "accept: blue"
    assert (asked[0].question, asked[0].options) == ("Which colour?", ("red", "blue"))
    assert asked[0].turn_id


async def test_an_answer_that_is_no_choice_and_nobody_to_ask_are_declined() -> None:
    async def green(params: QuestionParams) -> str:
        return "green"

    assert await answer_of(green) == "decline: None"
    assert await answer_of(None) == "decline: None"


async def test_the_frames_that_a_host_sees() -> None:
    """A host of its own making: `approval.request` names the call, `tool.cancel` follows a cancelled one."""
    replies = sequence(
        Reply(tool_calls=[call("run_command", {"command": "true"}, "r1")]),
        Reply(tool_calls=[call("hang", {}, "h1")]),
        Reply("done"),
    )
    with FakeLLM(replies) as llm:
        async with serving_sidecar(llm=llm) as (place, socket, _):
            await anyio.to_thread.run_sync(_as_a_host, str(socket), str(place.work))


def _as_a_host(socket: str, work: str) -> None:
    with SocketHost(socket) as host:
        hello = {"name": "raw", "version": "1"}
        host.call("system.initialize", {"protocol_version": 1, "client": hello, "capabilities": {"approvals": True}})
        tool = {"name": "hang", "description": "", "parameters": {"type": "object"}}
        params = {"cwd": work, "tools": [tool], "config": {"tools": {"builtin": "all"}}}
        sid = host.call("agent.session.create", params)["session"]["session_id"]
        host.call("agent.chat.send", {"session_id": sid, "content": "go"})
        approval = asked(host, "approval.request")
        assert approval["params"]["tool_call_id"] == "r1"
        assert approval["params"]["name"] == "run_command"
        assert approval["params"]["options"] == ["allow_once", "allow_session", "reject"]
        host.send({"jsonrpc": "2.0", "id": approval["id"], "result": {"outcome": "reject", "reason": "not today"}})
        hang = asked(host, "tool.call")
        assert host.call("agent.chat.cancel", {"session_id": sid}) == {"cancelled": True}
        assert host.wait_notified("tool.cancel") == {"session_id": sid, "tool_call_id": "h1"}
        assert host.wait_notified("request.resolved")["request_id"] == hang["id"]


def asked(host: SocketHost, method: str) -> Any:
    """The first request of the daemon with this method."""
    return host.wait(
        lambda frames: next((f for f in frames if f.get("method") == method and "id" in f), None), f"a {method}"
    )
