"""`agent.chat.*` and the requests to hosts, against a real daemon: what the conformance of a turn does not say."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.chat import ApprovalParams, ApprovalResult
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.running import running_sidecar, until
from tests.support.wire import of_type

pytestmark = pytest.mark.anyio


async def test_undo_and_clear_need_an_idle_session_and_the_log_keeps_all() -> None:
    gate = Gate()
    with FakeLLM(sequence(Reply("a0"), Reply("a1"), Reply("held", gate=gate), Reply("after"))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            chat = sidecar.client.chat
            sid = (await sidecar.client.sessions.create(cwd=str(sidecar.work))).session_id
            await chat.run(sid, "q0")
            await chat.run(sid, "q1")
            assert (await chat.undo(sid)).removed_turns == 1
            await chat.send(sid, "q2")
            await until(lambda: len(llm.requests) == 3, what="the held request")
            for refused in (chat.undo(sid), chat.clear(sid)):
                with pytest.raises(SidecarError) as caught:
                    await refused
                assert caught.value.reason == "turn_active"
            gate.open()
            # The record is there a moment before the turn is over.
            while (await sidecar.client.sessions.get(sid)).state != "idle":
                await anyio.sleep(0.01)
            await chat.clear(sid)
            assert (await sidecar.client.sessions.messages(sid, view="context")).messages == ()
            full = [m.text for m in (await sidecar.client.sessions.messages(sid, view="full")).messages]
            assert "q0" in full
            assert "q1" not in full
            await chat.run(sid, "q3")
            assert [t for r, t in llm.requests[-1].texts if t.startswith("q")] == ["q3"]


async def test_an_approval_is_asked_and_its_answer_counts(tmp_path: Any) -> None:
    asked: list[ApprovalParams] = []

    async def approve(params: ApprovalParams) -> ApprovalResult:
        asked.append(params)
        return ApprovalResult(outcome="allow_session" if len(asked) == 1 else "reject")

    replies = sequence(
        Reply(tool_calls=[call("run_command", {"command": "echo one"}, "c1")]),
        Reply(tool_calls=[call("run_command", {"command": "echo two"}, "c2")]),
        Reply(tool_calls=[call("write_file", {"path": "x", "content": "y"}, "c3")]),
        Reply("done"),
    )
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm, approve=approve) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), config={"tools": {"builtin": "all"}})).session_id
            await client.chat.run(sid, "go")
            # approval.request went out for the first command and the write; the second command had the session's grant.
            assert [(p.name, p.tool_call_id) for p in asked] == [("run_command", "c1"), ("write_file", "c3")]
            assert asked[0].options == ("allow_once", "allow_session", "reject")
            tools = [m for m in (await client.sessions.messages(sid, view="context")).messages if m.role == "tool"]
            assert "one" in tools[0].text
            assert "two" in tools[1].text
            assert tools[2].is_error
            assert not (sidecar.work / "x").exists()
            decided = of_type(sidecar.records(sid), "tool.approval")
            assert [(d["outcome"], d["by"]) for d in decided] == [
                ("allow_session", "host"), ("allow_once", "session_grant"), ("reject", "host"),
            ]  # fmt: skip


async def test_nobody_to_ask_means_no() -> None:
    replies = sequence(Reply(tool_calls=[call("run_command", {"command": "touch made"}, "c1")]), Reply("done"))
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), config={"tools": {"builtin": "all"}})).session_id
            with anyio.fail_after(10):
                await client.chat.run(sid, "go")
            assert not (sidecar.work / "made").exists()
            assert of_type(sidecar.records(sid), "tool.approval")[0]["by"] == "nobody"


async def test_a_hung_tool_is_cancelled_with_tool_cancel_and_request_resolved() -> None:
    hung = anyio.Event()

    @host_tool("hang", "Hangs.", {})
    async def hang(call: HostCall) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            hung.set()
            raise
        return ""

    with FakeLLM(sequence(Reply(tool_calls=[call("hang", {}, "h1")]), Reply("done"))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[hang])).session_id
            with client.events(sid) as events:
                sent = await client.chat.send(sid, "go")
                await until(
                    lambda: of_type(sidecar.records(sid), "context.append_message")[-1]["message"].get("tool_calls")
                )
                assert await client.chat.cancel(sid)
                told = [x.event async for x in events.of_turn(sent.turn_id)]
            assert told[-1].stop_reason == "cancelled"
            with anyio.fail_after(5):
                await hung.wait()
            assert [x.is_error for x in told if isinstance(x, e.ToolResult)] == [True]


async def test_too_many_waiting_inputs_are_refused_and_none_is_lost() -> None:
    gate = Gate()
    with FakeLLM(lambda r, n: Reply(f"a{n}", gate=gate)) as llm:
        async with running_sidecar(llm=llm, config="[server]\nmax_queued_inputs = 2\n") as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            await client.chat.send(sid, "runs")
            await until(lambda: llm.requests, what="the request")
            for n in range(2):
                await client.chat.send(sid, f"waits {n}")
                await client.chat.steer(sid, f"steers {n}")
            for give in (client.chat.send, client.chat.steer):
                with pytest.raises(SidecarError) as caught:
                    await give(sid, "too many")
                assert caught.value.reason == "overloaded"
            gate.open()
            await until(lambda: len(of_type(sidecar.records(sid), "turn.end")) == 3, what="three turns")
            texts = [t for _, t in llm.requests[-1].texts]
            assert "too many" not in texts
            for kind in ("waits", "steers"):
                assert texts.index(f"{kind} 0") < texts.index(f"{kind} 1")


async def test_empty_input_is_refused_with_its_path() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = (await sidecar.client.sessions.create(cwd=str(sidecar.work))).session_id
            for content in ("", "  \n", []):
                with pytest.raises(SidecarError) as caught:
                    await sidecar.client.call("agent.chat.send", {"session_id": sid, "content": content})
                assert (caught.value.code, caught.value.data["path"]) == (-32602, "content")
            assert not llm.requests


async def test_a_long_result_is_spilled_and_can_be_read_back() -> None:
    whole = "".join(f"line {n} of the long result\n" for n in range(9000))

    @host_tool("long", "Long.", {})
    async def long(call: HostCall) -> str:
        return whole

    with FakeLLM(sequence(Reply(tool_calls=[call("long", {}, "l1")]), Reply("done"))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[long])).session_id
            await client.chat.run(sid, "go")
            shown = next(t for r, t in llm.requests[-1].texts if r == "tool")
            assert len(shown) < 20_000
            assert shown.startswith("line 0 of")
            assert str(len(whole.encode())) in shown
            assert "record_read(line=" in shown
            line = int(shown.split("record_read(line=")[1].split(",")[0])
            record = sidecar.records(sid)[line - 1]
            assert record["message"]["tool_call_id"] == "l1"
            assert {"record_read", "record_search"} <= {t.name for t in await client.tools.list(sid)}
            blobs = list((sidecar.home / "sessions" / sid / "blobs").iterdir())
            assert any(b.read_bytes() == whole.encode() for b in blobs)


async def test_images_become_blobs_and_reach_the_model() -> None:
    import base64

    data = base64.b64encode(b"\x89PNG\r\n" + bytes(range(256)) * 40).decode()
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            parts = [{"type": "text", "text": "look"}, {"type": "image", "media_type": "image/png", "data": data}]
            await client.call("agent.chat.send", {"session_id": sid, "content": parts, "wait": True})
            assert data in llm.requests[0].body.decode()
            assert data not in sidecar.wire(sid).read_text()
            bad = [{"type": "image", "media_type": "image/png", "data": "!!!"}]
            with pytest.raises(SidecarError) as caught:
                await client.call("agent.chat.send", {"session_id": sid, "content": bad})
            assert caught.value.data["path"] == "content[0].data"
