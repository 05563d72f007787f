"""Hosts that go away while the daemon waits for them, and come back; and who is let in."""

from __future__ import annotations

import socket
import tempfile

import anyio
import pytest
from anyio.abc import SocketAttribute

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.events import TurnEnded
from sidecar.client import HostCall, SidecarClient, SidecarError, host_tool
from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.running import serving_sidecar, until
from tests.support.wire import of_type


def cut(client: SidecarClient) -> None:
    """As when the other end dies."""
    link = client._connection.link
    assert link is not None
    link.stream.extra(SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)


async def test_an_open_approval_is_asked_again_and_never_taken_as_given() -> None:
    """The same `approval.request` comes again over the new connection."""
    asked: list[str] = []
    answers = anyio.Event()

    async def approve(request: ApprovalParams) -> ApprovalResult:
        asked.append(request.tool_call_id)
        await answers.wait()
        return ApprovalResult(outcome="allow_once")

    script = sequence(
        Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "x"}, id="w1")]), Reply("done")
    )
    with FakeLLM(script) as llm:
        async with (
            serving_sidecar(llm=llm) as (place, path, _),
            SidecarClient.connect(path, name="shell", approve=approve) as shell,
        ):
            session = await shell.sessions.create(cwd=str(place.work), config={"tools": {"builtin": "all"}})
            with shell.events(session.session_id) as events:
                turn = await shell.chat.send(session.session_id, "write")
                await until(lambda: asked == ["w1"], what="the approval request")
                cut(shell)
                await until(lambda: asked == ["w1", "w1"], what="the same request again")
                assert not (place.work / "a.txt").exists()
                answers.set()
                ended = [e.event async for e in events.of_turn(turn.turn_id)][-1]
            assert isinstance(ended, TurnEnded)
            assert ended.stop_reason == "end_turn"
            assert (place.work / "a.txt").read_text() == "x"
            decisions = of_type(place.records(session.session_id), "tool.approval")
            assert [(d["outcome"], d["by"]) for d in decisions] == [("allow_once", "host")]


async def test_an_approval_whose_host_stays_away_is_denied() -> None:
    asked = anyio.Event()

    async def approve(request: ApprovalParams) -> ApprovalResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    script = sequence(Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "x"})]), Reply("done"))
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _), SidecarClient.connect(path) as watcher:
            async with SidecarClient.connect(path, approve=approve, reconnect=False) as shell:
                config = {"tools": {"builtin": "all"}, "approval": {"wait_s": 0.2}}
                session = await shell.sessions.create(cwd=str(place.work), config=config)
                await watcher.sessions.attach(session.session_id)
                with watcher.events(session.session_id) as events:
                    turn = await shell.chat.send(session.session_id, "write")
                    await asked.wait()
                    cut(shell)
                    ended = [e.event async for e in events.of_turn(turn.turn_id)][-1]
            assert isinstance(ended, TurnEnded)
            assert not (place.work / "a.txt").exists()
            decisions = of_type(place.records(session.session_id), "tool.approval")
            assert [d["outcome"] for d in decisions] == ["reject"]


async def test_a_tool_that_is_not_wanted_any_more_is_cancelled_at_its_host() -> None:
    """`tool.cancel` ends the function, and nothing it would have said reaches the conversation."""
    began, ended = anyio.Event(), anyio.Event()

    @host_tool("lookup", "Looks something up")
    async def lookup(tool_call: HostCall) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    with FakeLLM(sequence(Reply("", tool_calls=[call("lookup", {})]), Reply("usable"))) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _), SidecarClient.connect(path) as shell:
            session = await shell.sessions.create(cwd=str(place.work), tools=[lookup])
            await shell.chat.send(session.session_id, "look")
            await began.wait()
            assert await shell.chat.cancel(session.session_id)
            with anyio.fail_after(5):
                await ended.wait()
            assert (await shell.chat.run(session.session_id, "go on")).text == "usable"
            assert "Cancelled" in next(t for role, t in llm.requests[-1].texts if role == "tool")


async def test_a_host_tool_is_called_again_when_its_host_is_back() -> None:
    calls: list[str] = []
    answers = anyio.Event()

    @host_tool("lookup", "Looks something up", {"q": {"type": "string"}})
    async def lookup(tool_call: HostCall) -> str:
        calls.append(tool_call.tool_call_id)
        await answers.wait()
        return f"found {tool_call.arguments['q']}"

    script = sequence(Reply("", tool_calls=[call("lookup", {"q": "it"}, id="l1")]), Reply("done"))
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _), SidecarClient.connect(path, name="shell") as shell:
            session = await shell.sessions.create(cwd=str(place.work), tools=[lookup])
            with shell.events(session.session_id) as events:
                turn = await shell.chat.send(session.session_id, "look")
                await until(lambda: calls == ["l1"], what="tool.call")
                cut(shell)
                await until(lambda: calls == ["l1", "l1"], what="the same call again")
                answers.set()
                ended = [e.event async for e in events.of_turn(turn.turn_id)][-1]
            assert isinstance(ended, TurnEnded)
            assert ended.text == "done"
            assert llm.requests[-1].texts[-1] == ("tool", "found it")


async def test_tcp_wants_the_token() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".token") as token:
        token.write("let-me-in\n")
        token.flush()
        arguments = ("--tcp", f"127.0.0.1:{port}", "--token-file", token.name)
        async with serving_sidecar(arguments=arguments):
            with pytest.raises(SidecarError) as caught:
                async with SidecarClient.connect(tcp=("127.0.0.1", port), token="wrong"):
                    pass
            assert caught.value.reason == "unauthorized"
            async with SidecarClient.connect(tcp=("127.0.0.1", port), token="let-me-in") as client:
                assert (await client.system.ping()).ok
