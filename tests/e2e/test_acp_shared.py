"""An editor through `sidecar acp --connect` and a shell on one session of one daemon."""

from __future__ import annotations

from typing import Any

import acp
import anyio

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.events import TurnEnded
from sidecar.client import SidecarClient
from tests.support.editor import Editor, editing
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.running import serving_sidecar, until


async def test_a_shell_and_an_editor_see_the_same_session() -> None:
    script = sequence(Reply("for the editor"), Reply("for the shell"))
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, daemon):
            editor = Editor()
            async with editing(place, editor, "--connect", str(path)) as (connection, agent):
                session = (await connection.new_session(cwd=str(place.work), mcp_servers=[])).session_id
                async with SidecarClient.connect(path, name="shell") as shell:
                    await shell.sessions.attach(session)
                    with shell.events(session) as seen:
                        await connection.prompt(session_id=session, prompt=[acp.text_block("from the editor")])
                        assert await _answer(seen) == "for the editor"
                        turn = await shell.chat.send(session, "from the shell")
                        assert turn.turn_id
                        assert await _answer(seen) == "for the shell"
                await editor.until(lambda: editor.said(session) == "for the editorfor the shell")
                shown = [u.content.text for u in editor.of("user_message_chunk", session)]
                assert shown == ["from the shell"]
            assert agent.returncode == 0, place.stderr()[-3000:]
            assert daemon.poll() is None
            async with SidecarClient.connect(path) as later:
                assert (await later.sessions.get(session)).turns == 2


async def _answer(events: Any) -> str:
    async for item in events:
        if isinstance(item.event, TurnEnded):
            return item.event.text
    raise AssertionError("no turn ended")


async def test_the_first_answer_to_an_approval_counts() -> None:
    asked = anyio.Event()

    async def approve(request: ApprovalParams) -> ApprovalResult:
        asked.set()
        return ApprovalResult(outcome="reject", reason="not from here")

    async def never() -> str:
        await anyio.sleep_forever()
        raise AssertionError

    script = sequence(
        Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "x"}, id="w1")]), Reply("done")
    )
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _):
            editor = Editor(permit=lambda request: never())  # type: ignore[arg-type, return-value]
            async with editing(place, editor, "--connect", str(path)) as (connection, _agent):
                session = (await connection.new_session(cwd=str(place.work), mcp_servers=[])).session_id
                async with SidecarClient.connect(path, name="shell", approve=approve) as shell:
                    await shell.sessions.attach(session)
                    await connection.prompt(session_id=session, prompt=[acp.text_block("write")])
            assert asked.is_set()
            assert not (place.work / "a.txt").exists()
            failed = [u.tool_call_id for u in editor.of("tool_call_update") if u.status == "failed"]
            assert failed == ["w1"]


async def test_a_prompt_that_waits_behind_another_turn_can_be_cancelled() -> None:
    gate = Gate()
    script = sequence(Reply("the first", gate=gate), Reply("never", gate=Gate()))
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _):
            editor = Editor()
            async with (
                editing(place, editor, "--connect", str(path)) as (connection, _agent),
                SidecarClient.connect(path, name="shell") as shell,
            ):
                session = (await connection.new_session(cwd=str(place.work), mcp_servers=[])).session_id
                await shell.sessions.attach(session)
                with shell.events(session) as seen:
                    first = await shell.chat.send(session, "long work")
                    await llm.wait_for(1)
                    ended: list[Any] = []
                    async with anyio.create_task_group() as tasks:

                        async def prompt() -> None:
                            block = acp.text_block("and this")
                            ended.append(await connection.prompt(session_id=session, prompt=[block]))

                        tasks.start_soon(prompt)
                        wire = place.wire(session)
                        await until(lambda: b"and this" in wire.read_bytes(), what="the queued prompt")
                        await connection.cancel(session_id=session)
                        await until(lambda: ended, what="the answer")
                    assert ended[0].stop_reason == "cancelled"
                    gate.open()
                    results = {}
                    async for item in seen:
                        if isinstance(item.event, TurnEnded):
                            results[item.turn_id] = item.event.stop_reason
                            if len(results) == 2:
                                break
                assert results.pop(first.turn_id) == "end_turn"
                assert list(results.values()) == ["cancelled"]
