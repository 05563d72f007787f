"""The typed client against a scripted daemon behind a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.chat import ApprovalParams, ApprovalResult, QuestionParams
from protocol.events import Notice, TextDelta, TurnEnded
from sidecar.client import ConnectionLost, EventsLost, HostCall, SidecarClient, SidecarError, ToolFailed, host_tool
from tests.support.fake_daemon import SESSION, FakeDaemon, fake_daemon

ENDED = {
    "type": "turn_ended",
    "turn_id": "t1",
    "stop_reason": "end_turn",
    "text": "done",
    "usage": {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 1, "requests": 1},
}


def delta(text: str, offset: int) -> dict[str, Any]:
    return {"type": "text_delta", "message_id": "m1", "text": text, "offset": offset}


def notice(text: str) -> dict[str, Any]:
    return {"type": "notice", "kind": "test", "message": text}


@host_tool("add", "Adds", {"a": {"type": "number"}, "b": {"type": "number"}}, required=["a", "b"])
async def add(call: HostCall) -> str:
    return str(call.arguments["a"] + call.arguments["b"])


def tool_call(name: str, arguments: dict[str, Any], id: str = "s-1", call_id: str = "c1") -> dict[str, Any]:
    params = {"session_id": "s1", "agent_id": "main", "turn_id": "t1", "tool_call_id": call_id}
    return {"id": id, "method": "tool.call", "params": {**params, "name": name, "arguments": arguments}}


def answer_to(id: str) -> Any:
    return lambda frame: frame.get("id") == id and "method" not in frame


async def test_initializes_with_what_the_host_can_do() -> None:
    async def approve(request: ApprovalParams) -> ApprovalResult:
        return ApprovalResult(outcome="reject")

    async with fake_daemon() as daemon:
        async with SidecarClient.connect(daemon.socket, name="shell", version="3", approve=approve) as client:
            assert client.server.server.name == "fake"
        params = daemon.calls("system.initialize")[0]["params"]
        assert params["client"] == {"name": "shell", "version": "3"}
        assert params["capabilities"] == {
            "tools": True,
            "approvals": True,
            "questions": False,
            "files": False,
            "terminal": False,
        }


async def test_an_error_has_code_reason_data_and_hint() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        data = {"reason": "undo_blocked", "cause": "does_not_fit", "hint": "compact first"}
        daemon.results["agent.chat.undo"] = {"error": {"code": -32032, "message": "no", "data": data}}
        with pytest.raises(SidecarError) as caught:
            await client.chat.undo("s1")
    assert (caught.value.code, caught.value.reason, caught.value.hint) == (-32032, "undo_blocked", "compact first")
    assert caught.value.data["cause"] == "does_not_fit"


async def test_a_refused_initialize_is_the_error_of_connect() -> None:
    async with fake_daemon() as daemon:
        error = {"code": -32011, "message": "no", "data": {"reason": "unauthorized"}}
        daemon.results["system.initialize"] = {"error": error}
        with pytest.raises(SidecarError, match="unauthorized"):
            async with SidecarClient.connect(daemon.socket):
                pass


async def test_no_daemon_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost, match="No daemon answers"):
        async with SidecarClient.connect("/nowhere/at/all"):
            pass


async def test_a_child_that_ends_at_once_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost):
        async with SidecarClient.spawn(["true"]):
            pass


async def test_tools_answer_fail_and_crash_without_telling_why() -> None:
    @host_tool("refuse")
    async def refuse(call: HostCall) -> str:
        raise ToolFailed("there is no such file")

    @host_tool("crash")
    async def crash(call: HostCall) -> str:
        raise RuntimeError("secret-path")

    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        await client.sessions.create(tools=[add, refuse, crash])
        sent = daemon.calls("agent.session.create")[0]["params"]["tools"]
        assert sent[0]["parameters"]["required"] == ["a", "b"]
        for i, (name, expected, is_error) in enumerate(
            [
                ("add", "5", False),
                ("refuse", "there is no such file", True),
                ("crash", "crash failed: RuntimeError", True),
                ("other", "This host has no tool named other", True),
            ]
        ):
            await daemon.send(tool_call(name, {"a": 2, "b": 3}, id=f"s-{i}"))
            frame = await daemon.wait_for(answer_to(f"s-{i}"))
            result = frame["result"]
            assert (result["content"], result.get("is_error", False)) == (expected, is_error)


async def test_a_cancelled_tool_call_stops_the_function() -> None:
    stopped = anyio.Event()

    @host_tool("forever")
    async def forever(call: HostCall) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        await client.sessions.create(tools=[forever])
        await daemon.send(tool_call("forever", {}))
        await daemon.send({"method": "tool.cancel", "params": {"session_id": "s1", "tool_call_id": "c1"}})
        with anyio.fail_after(5):
            await stopped.wait()


async def test_a_resolved_request_ends_the_approval_and_gets_no_answer() -> None:
    asked, gone = anyio.Event(), anyio.Event()

    async def approve(request: ApprovalParams) -> ApprovalResult:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        raise AssertionError

    async def answer(question: QuestionParams) -> str:
        return f"about {question.question}"

    async with fake_daemon() as daemon:
        async with SidecarClient.connect(daemon.socket, approve=approve, answer=answer):
            approval = {
                "session_id": "s1",
                "agent_id": "main",
                "turn_id": "t1",
                "tool_call_id": "c1",
                "name": "write_file",
                "arguments": {"path": "a"},
                "options": ["allow_once", "reject"],
            }
            await daemon.send({"id": "s-1", "method": "approval.request", "params": approval})
            await asked.wait()
            await daemon.send({"method": "request.resolved", "params": {"request_id": "s-1", "reason": "cancelled"}})
            with anyio.fail_after(5):
                await gone.wait()
            question = {"session_id": "s1", "turn_id": "t1", "question": "what"}
            await daemon.send({"id": "s-2", "method": "question.ask", "params": question})
            frame = await daemon.wait_for(answer_to("s-2"))
            assert frame["result"] == {"answer": "about what"}
        assert not [f for f in daemon.received if f.get("id") == "s-1"]


async def test_cancelling_a_call_tells_the_daemon() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        with anyio.move_on_after(0.05):
            await client.chat.run("s1", "hello")
        sent = await daemon.wait_for(lambda f: f.get("method") == "agent.chat.send")
        cancel = await daemon.wait_for(lambda f: f.get("method") == "$/cancel_request")
        assert cancel["params"] == {"id": sent["id"]}


async def test_events_of_a_turn_come_in_order_and_end_with_it() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.chat.send"] = {"turn_id": "t1"}
        with client.events("s1") as events:
            sent = await client.chat.send("s1", "hi")
            await daemon.event(1, notice("another turn"), turn_id="t0")
            await daemon.event(1, notice("another session"), session_id="s2")
            await daemon.event(1, delta("he", 0))
            await daemon.event(1, delta("llo", 2))
            await daemon.event(2, ENDED)
            got = [e.event async for e in events.of_turn(sent.turn_id)]
    assert [type(e) for e in got] == [TextDelta, TextDelta, TurnEnded]


async def test_a_slow_reader_gets_merged_deltas_and_then_one_loss() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        with client.events("s1", capacity=4) as events:
            for i in range(12):
                await daemon.event(1, delta("x", i))
            await _settled(daemon, client)
            first = await anext(events)
            assert isinstance(first.event, TextDelta)
            text = first.event.text
            assert len(text) > 1
            while len(text) < 12:
                more = (await anext(events)).event
                assert isinstance(more, TextDelta)
                assert more.offset == len(text)
                text += more.text
            for i in range(6):
                await daemon.event(2 + i, notice(str(i)))
            await _settled(daemon, client)
            with pytest.raises(EventsLost) as caught:
                await anext(events)
            assert caught.value.last_event_id == "0a0b0c0d-5"
            after = (await anext(events)).event
            assert isinstance(after, Notice)
            assert after.message == "4"


async def test_a_lost_connection_is_made_again_with_tools_and_the_last_event() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        daemon.results["system.ping"] = {
            "ok": True, "version": "0", "uptime_s": 1, "sessions": 1, "turns_running": 0
        }  # fmt: skip
        daemon.results["agent.session.resume"] = {
            "session": SESSION, "recovered": [], "events_replayed": 0, "resync_required": True
        }  # fmt: skip
        await client.sessions.create(tools=[add])
        with client.events("s1") as events:
            await daemon.event(7, notice("seen"))
            await anext(events)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_lost_call, client)
                await daemon.wait_for(lambda f: f.get("method") == "agent.chat.clear")
                await daemon.drop()
            assert (await client.system.ping()).ok
            assert daemon.connections == 2
            resumed = daemon.calls("agent.session.resume")[0]["params"]
            assert resumed["after_event"] == "0a0b0c0d-7"
            assert resumed["tools"][0]["name"] == "add"
            with pytest.raises(EventsLost):
                await anext(events)
            await daemon.event(1, notice("and on"))
            assert isinstance((await anext(events)).event, Notice)


async def test_without_reconnect_a_loss_ends_calls_and_streams() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket, reconnect=False) as client:
        with client.events() as events:
            await daemon.drop()
            with anyio.fail_after(5):
                assert [e async for e in events] == []
        with pytest.raises(ConnectionLost):
            await client.system.ping()


async def test_a_call_at_once_after_a_loss_waits_for_the_new_connection() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.get"] = {"session": SESSION}
        async with anyio.create_task_group() as tasks:
            answers: list[str] = []

            async def again() -> None:
                with pytest.raises(ConnectionLost):
                    await client.chat.clear("s1")
                answers.append((await client.sessions.get("s1")).session_id)

            tasks.start_soon(again)
            await daemon.wait_for(lambda f: f.get("method") == "agent.chat.clear")
            await daemon.drop()
        assert answers == ["s1"]


async def test_a_turn_whose_daemon_has_gone_is_not_a_turn_that_ended() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket, reconnect=False) as client:
        with client.events("s1") as events:
            await daemon.event(1, notice("on"))
            got = events.of_turn("t1")
            assert isinstance((await anext(got)).event, Notice)
            await daemon.drop()
            with anyio.fail_after(5), pytest.raises(ConnectionLost):
                await anext(got)


async def test_a_refused_resume_leaves_the_session_as_it_was() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        refused = {"error": {"code": -32080, "message": "no", "data": {"reason": "config_invalid"}}}
        daemon.results |= {"agent.session.resume": refused, "agent.session.attach": refused}
        await client.sessions.create(tools=[add])
        with pytest.raises(SidecarError):
            await client.sessions.resume("s1", tools=[], config={"nope": 1})
        with pytest.raises(SidecarError):
            await client.sessions.attach("s1", "not-an-event")
        await daemon.send(tool_call("add", {"a": 1, "b": 2}))
        assert (await daemon.wait_for(answer_to("s-1")))["result"] == {"content": "3"}


async def test_the_tools_of_a_session_serve_its_fork_also_after_a_reconnect() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        daemon.results["agent.session.fork"] = {"session": {**SESSION, "session_id": "s2"}}
        await client.sessions.create(tools=[add])
        fork = await client.sessions.fork("s1")
        call = tool_call("add", {"a": 1, "b": 2})
        await daemon.send({**call, "params": {**call["params"], "session_id": fork.session_id}})
        assert (await daemon.wait_for(answer_to("s-1")))["result"] == {"content": "3"}
        await daemon.drop()
        of_fork = lambda f: f.get("method") == "agent.session.resume" and f["params"]["session_id"] == "s2"
        daemon.results["agent.session.resume"] = {
            "session": SESSION, "recovered": [], "events_replayed": 0, "resync_required": False
        }  # fmt: skip
        assert [t["name"] for t in (await daemon.wait_for(of_fork))["params"]["tools"]] == ["add"]


async def test_a_folder_is_a_path_or_a_text() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.create"] = {"session": SESSION}
        for cwd in (Path("/work"), "/work"):
            await client.sessions.create(cwd=cwd)
        assert [c["params"]["cwd"] for c in daemon.calls("agent.session.create")] == ["/work", "/work"]


async def test_what_a_function_of_the_host_raises_is_logged_there(caplog: pytest.LogCaptureFixture) -> None:
    @host_tool("broken")
    async def broken(call: HostCall) -> str:
        raise LookupError("the drawer is empty")

    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        client.bring([broken])
        await daemon.send(tool_call("broken", {}))
        answer = await daemon.wait_for(answer_to("s-1"))
    assert answer["result"] == {"content": "broken failed: LookupError", "is_error": True}
    assert "the drawer is empty" in caplog.text


async def test_an_error_of_the_host_itself_comes_through_unwrapped() -> None:
    async with fake_daemon() as daemon:
        with pytest.raises(LookupError, match="mine"):
            async with SidecarClient.connect(daemon.socket):
                raise LookupError("mine")


async def test_garbage_from_the_daemon_is_skipped() -> None:
    async with fake_daemon() as daemon, SidecarClient.connect(daemon.socket) as client:
        daemon.results["agent.session.get"] = {"session": SESSION}
        await daemon.send_raw(b"not json\n\n[]\n5\n" + b'{"id": 999, "result": {}}\n')
        assert (await client.sessions.get("s1")).session_id == "s1"
        daemon.results["agent.session.get"] = {"session": {}}
        with pytest.raises(SidecarError, match="unexpected_result"):
            await client.sessions.get("s1")


async def _lost_call(client: SidecarClient) -> None:
    with pytest.raises(ConnectionLost):
        await client.chat.clear("s1")


async def _settled(daemon: FakeDaemon, client: SidecarClient) -> None:
    """Everything sent before has been read."""
    daemon.results["agent.session.get"] = {"session": SESSION}
    await client.sessions.get("s1")
