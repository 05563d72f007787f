"""`sidecar acp` and the ACP package's own client: conversations with tools, permissions, plans, modes, restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import ImageContentBlock, McpServerStdio, ResourceContentBlock

from tests.support.editor import Editor, editing
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, failure, sequence
from tests.support.running import Place, a_place
from tests.support.wire import of_type


def text(value: str) -> list[Any]:
    return [acp.text_block(value)]


async def new(connection: Any, place: Place, **more: Any) -> str:
    made = await connection.new_session(cwd=str(place.work), mcp_servers=[], **more)
    return str(made.session_id)


async def refused(request: Any) -> acp.RequestError:
    with pytest.raises(acp.RequestError) as caught:
        await request
    return caught.value


# ---------------------------------------------------------------- a conversation


async def test_a_prompt_streams_its_answer_before_it_ends() -> None:
    with FakeLLM(sequence(Reply("Hello there.", reasoning="I greet."), Reply("Again."))) as llm, a_place(llm) as place:
        editor = Editor()
        async with editing(place, editor, initialize=False) as (connection, _):
            said = await connection.initialize(protocol_version=1)
            can = said.agent_capabilities
            assert (said.protocol_version, said.agent_info.name, can.load_session) == (1, "sidecar", True)
            assert can.prompt_capabilities.image
            assert can.prompt_capabilities.embedded_context
            offered = can.session_capabilities
            assert None not in (offered.list, offered.resume, offered.close, offered.fork, offered.delete)

            session = await new(connection, place)
            ended = await connection.prompt(session_id=session, prompt=text("hi"))
            assert ended.stop_reason == "end_turn"
            assert editor.said(session) == "Hello there."
            assert "".join(u.content.text for u in editor.of("agent_thought_chunk")) == "I greet."
            assert ended.usage.output_tokens > 0
            used = editor.of("usage_update")[-1]
            assert 0 < used.used < used.size
            assert [u.title for u in editor.of("session_info_update")] == ["hi"]
            await connection.prompt(session_id=session, prompt=text("again"))
            assert [t for _, t in llm.requests[-1].texts][-3:] == ["hi", "Hello there.", "again"]

            blocks = [
                acp.text_block("look"),
                acp.resource_block(acp.embedded_text_resource("file:///a.py", "x = 1")),
                ResourceContentBlock(type="resource_link", name="b.py", uri="file:///b.py"),
                ImageContentBlock(type="image", data="aGVsbG8=", mime_type="image/png"),
            ]
            await connection.prompt(session_id=session, prompt=blocks)
            sent = llm.requests[-1].messages[-1]["content"]
            assert sent[0]["text"].startswith('look\n\n<resource uri="file:///a.py">\nx = 1\n</resource>')
            assert "[b.py](file:///b.py)" in sent[0]["text"]
            assert "aGVsbG8=" in str(sent[1])
            sound = [acp.audio_block("aGk=", "audio/wav")]
            assert (await refused(connection.prompt(session_id=session, prompt=sound))).code == -32602


async def test_how_turns_end() -> None:
    script = sequence(
        Reply("cut", finish_reason="length"),
        Reply("no", finish_reason="content_filter"),
        *[Reply("", tool_calls=[call("list_dir", {"path": "."})])] * 2,
        failure(401, "bad key sk-test-key-of-the-fake-model"),
    )
    with FakeLLM(script) as llm, a_place(llm, config="[loop_control]\nmax_steps = 2\n") as place:
        async with editing(place, Editor()) as (connection, _):
            session = await new(connection, place)
            reasons = [(await connection.prompt(session_id=session, prompt=text("go"))).stop_reason for _ in range(3)]
            assert reasons == ["max_tokens", "refusal", "max_turn_requests"]
            error = await refused(connection.prompt(session_id=session, prompt=text("hi")))
    assert error.code == -32000
    assert error.data["reason"] == "provider_auth"
    assert "sk-test" not in f"{error} {error.data}"
    assert "Traceback" not in f"{error} {error.data}"


async def test_no_model_is_said_when_a_session_is_made() -> None:
    with a_place() as place:
        async with editing(place, Editor()) as (connection, _):
            try:
                session = await new(connection, place)
                error = await refused(connection.prompt(session_id=session, prompt=text("hi")))
            except acp.RequestError as early:
                error = early
    assert error.code == -32000
    assert error.data["reason"] == "no_provider"


# ---------------------------------------------------------------- tools and permissions


def replayed(model: Callable[[], FakeLLM]) -> Any:
    """The script of a model, from its start, for a server that has answered before."""
    with model() as other:
        script, start = other.script, None

    def shifted(request: dict[str, Any], n: int) -> Any:
        nonlocal start
        start = n if start is None else start
        return script(request, n - start)

    return shifted


def edits(path: str = "a.txt") -> FakeLLM:
    return FakeLLM(
        sequence(
            Reply("", tool_calls=[call("write_file", {"path": path, "content": "new\n"}, id="w1")]),
            Reply("", tool_calls=[call("edit_file", {"path": path, "old_text": "new", "new_text": "newer"}, id="e1")]),
            Reply("done"),
        )
    )


async def test_calls_are_shown_with_places_and_changes_and_asked_for() -> None:
    with edits() as llm, a_place(llm) as place:
        editor = Editor()
        async with editing(place, editor) as (connection, _):
            session = await new(connection, place)
            assert (await connection.prompt(session_id=session, prompt=text("write"))).stop_reason == "end_turn"
        path = str(place.work / "a.txt")
        assert Path(path).read_text() == "newer\n"
        asked = [p[0] for p in editor.permissions]
        assert [p.tool_call_id for p in asked] == ["w1", "e1"]
        assert (asked[0].content[0].type, asked[0].content[0].path) == ("diff", path)
        assert (asked[1].content[0].old_text, asked[1].content[0].new_text) == ("new", "newer")
        assert [o.kind for o in editor.permissions[0][1]] == ["allow_once", "allow_always", "reject_once"]
        started = {u.tool_call_id: u for u in editor.of("tool_call")}
        assert (started["w1"].kind, started["w1"].title) == ("edit", "Write a.txt")
        assert [p.path for p in started["w1"].locations] == [path]
        ended = {u.tool_call_id: u for u in editor.of("tool_call_update") if u.status == "completed"}
        assert ended["e1"].content[0].type == "diff"
        assert ended["e1"].content[0].new_text.startswith("newer")


async def test_a_no_is_a_no_and_a_yes_for_the_session_is_asked_once() -> None:
    with edits() as llm, a_place(llm) as place:
        editor = Editor()
        async with editing(place, editor) as (connection, _):
            for choice in ("reject", None):
                llm.script = replayed(edits)
                editor.permit = lambda request, choice=choice: choice
                session = await new(connection, place)
                await connection.prompt(session_id=session, prompt=text("write"))
                failed = [u.tool_call_id for u in editor.of("tool_call_update", session) if u.status == "failed"]
                assert failed == ["w1", "e1"]
                decisions = of_type(place.records(session), "tool.approval")
                assert [d["outcome"] for d in decisions] == ["reject", "reject"]
            assert not (place.work / "a.txt").exists()

            editor.permissions.clear()
            editor.permit = lambda request: "allow_session"
            files = [Reply("", tool_calls=[call("write_file", {"path": f"{n}.txt", "content": "x"})]) for n in range(3)]
            command = Reply("", tool_calls=[call("run_command", {"command": "echo here"})])
            llm.script = replayed(lambda: FakeLLM(sequence(*files, command, Reply("done"))))
            await connection.prompt(session_id=await new(connection, place), prompt=text("write"))
            assert (place.work / "2.txt").exists()
            assert [p[0].kind for p in editor.permissions] == ["edit", "execute"]
            assert "here" in llm.requests[-1].texts[-1][1]


async def test_modes_are_approval_modes_and_the_todo_list_is_the_plan() -> None:
    with edits() as llm, a_place(llm) as place:
        editor = Editor()
        async with editing(place, editor) as (connection, _):
            made = await connection.new_session(cwd=str(place.work), mcp_servers=[])
            assert made.modes.current_mode_id == "ask"
            assert [m.id for m in made.modes.available_modes] == ["ask", "auto_edit", "auto", "deny"]
            await connection.set_session_mode(session_id=made.session_id, mode_id="auto_edit")
            await connection.prompt(session_id=made.session_id, prompt=text("write"))
            assert editor.permissions == []
            assert (place.work / "a.txt").read_text() == "newer\n"
            error = await refused(connection.set_session_mode(session_id=made.session_id, mode_id="yolo"))
            assert error.code == -32602
            loaded = await connection.load_session(cwd=str(place.work), session_id=made.session_id, mcp_servers=[])
            assert loaded.modes.current_mode_id == "auto_edit"

            todos = [{"content": "look", "status": "done"}, {"content": "write", "status": "in_progress"}]
            listed = Reply("", tool_calls=[call("todo_write", {"todos": todos})])
            llm.script = replayed(lambda: FakeLLM(sequence(listed, Reply("done"))))
            await connection.prompt(session_id=made.session_id, prompt=text("plan"))
            shown = [[(e.content, e.status) for e in u.entries] for u in editor.of("plan")]
            assert shown == [[("look", "completed"), ("write", "in_progress")]]


# ---------------------------------------------------------------- the editor's own files and terminal


async def test_files_and_commands_go_through_the_editor() -> None:
    files = [
        Reply("", tool_calls=[call("read_file", {"path": "a.txt"})]),
        Reply("", tool_calls=[call("edit_file", {"path": "a.txt", "old_text": "unsaved", "new_text": "changed"})]),
        Reply("", tool_calls=[call("read_file", {"path": "b.txt"})]),
        Reply("done"),
    ]
    command = [
        Reply("", tool_calls=[call("run_command", {"command": "echo from the terminal; exit 3"}, id="c1")]),
        Reply("done"),
        Reply("", tool_calls=[call("run_command", {"command": "sleep 60"})]),
    ]
    with FakeLLM(sequence(*files, *command)) as llm, a_place(llm) as place:
        (place.work / "a.txt").write_text("on disk\n")
        (place.work / "b.txt").write_text("only on disk\n")
        path = str(place.work / "a.txt")
        editor = Editor(files={path: "unsaved\n"}, terminals=True)
        async with editing(place, editor) as (connection, _):
            session = await new(connection, place)
            await connection.prompt(session_id=session, prompt=text("edit"))
            assert editor.written == {path: "changed\n"}
            assert (place.work / "a.txt").read_text() == "on disk\n"
            results = [t for role, t in llm.requests[-1].texts if role == "tool"]
            assert results[0].startswith("unsaved")
            assert results[2].startswith("only on disk")

            editor.updates.clear()
            await connection.prompt(session_id=session, prompt=text("run"))
            assert editor.commands == ["bash -c echo from the terminal; exit 3"]
            assert editor.released == ["term-1"]
            shown = [u.content[0].terminal_id for u in editor.of("tool_call_update") if u.content]
            assert shown == ["term-1"]
            assert llm.requests[-1].texts[-1] == ("tool", "from the terminal\n[exit code 3]")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when, connection, session, editor, lambda: len(editor.commands) == 2)
                ended = await connection.prompt(session_id=session, prompt=text("run long"))
            assert ended.stop_reason == "cancelled"
            await editor.until(lambda: editor.killed == ["term-2"] and editor.released[1:] == ["term-2"])


async def _cancel_when(connection: Any, session: str, editor: Editor, condition: Any) -> None:
    await editor.until(condition)
    await connection.cancel(session_id=session)


# ---------------------------------------------------------------- cancel


async def test_cancel_ends_a_turn_wherever_it_is() -> None:
    async def never() -> str:
        await anyio.sleep_forever()
        raise AssertionError

    write = Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "x"})])
    with FakeLLM(sequence(Reply("never", gate=Gate()), Reply("usable"), write)) as llm, a_place(llm) as place:
        editor = Editor(permit=lambda request: never())  # type: ignore[arg-type, return-value]
        async with editing(place, editor) as (connection, _):
            session = await new(connection, place)

            async def cancelled(prompt: str, when: Callable[[], Any]) -> bool:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_when, connection, session, editor, when)
                    with anyio.fail_after(10):
                        ended = await connection.prompt(session_id=session, prompt=text(prompt))
                return bool(ended.stop_reason == "cancelled")

            assert await cancelled("hi", lambda: llm.count)
            assert (await connection.prompt(session_id=session, prompt=text("go on"))).stop_reason == "end_turn"
            assert editor.said(session) == "usable"
            assert await cancelled("write", lambda: editor.permissions)
        assert not (place.work / "a.txt").exists()


# ---------------------------------------------------------------- sessions


async def test_load_replays_before_it_answers_and_resume_does_not() -> None:
    todos = [{"content": "one", "status": "pending"}]
    script = sequence(
        Reply("Looking.", tool_calls=[call("todo_write", {"todos": todos}, id="t1")], reasoning="Hm."),
        Reply("Found it."),
        Reply("Still here."),
    )
    with FakeLLM(script) as llm, a_place(llm) as place:
        async with editing(place, Editor()) as (connection, _):
            session = await new(connection, place)
            await connection.prompt(session_id=session, prompt=text("find"))
        loader = Editor()
        async with editing(place, loader) as (connection, _):
            await connection.load_session(cwd=str(place.work), session_id=session, mcp_servers=[])
            assert loader.kinds(session)[:7] == [
                "user_message_chunk",
                "agent_thought_chunk",
                "agent_message_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk",
                "plan",
            ]
            assert loader.said(session) == "Looking.Found it."
            await connection.prompt(session_id=session, prompt=text("more"))
            assert loader.said(session) == "Looking.Found it.Still here."
            assert len(loader.of("user_message_chunk")) == 1
        resumer = Editor()
        async with editing(place, resumer) as (connection, _):
            await connection.resume_session(cwd=str(place.work), session_id=session)
            await resumer.until(lambda: resumer.of("available_commands_update"))
            assert "user_message_chunk" not in resumer.kinds(session)
            assert (await connection.prompt(session_id=session, prompt=text("x"))).stop_reason == "end_turn"


async def test_sessions_are_listed_forked_closed_and_deleted() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        async with editing(place, Editor()) as (connection, _):
            relative = connection.new_session(cwd="relative", mcp_servers=[])
            assert (await refused(relative)).code == -32602
            first = await new(connection, place)
            await connection.prompt(session_id=first, prompt=text("the first"))
            fork = (await connection.fork_session(cwd=str(place.work), session_id=first)).session_id
            listed = (await connection.list_sessions(cwd=str(place.work))).sessions
            assert {s.session_id for s in listed} == {first, fork}
            assert "the first" in [s.title for s in listed]
            assert (await connection.list_sessions(cwd="/nowhere")).sessions == []

            await connection.close_session(session_id=first)
            for request in (
                connection.prompt(session_id=first, prompt=text("x")),
                connection.close_session(session_id=first),
                connection.set_session_mode(session_id=first, mode_id="auto"),
                connection.prompt(session_id="never-was", prompt=text("x")),
                connection.load_session(cwd=str(place.work), session_id="never-was", mcp_servers=[]),
                connection.resume_session(cwd=str(place.work), session_id="never-was"),
            ):
                assert (await refused(request)).code == -32002
            await connection.resume_session(cwd=str(place.work), session_id=first)
            await connection.prompt(session_id=first, prompt=text("open again"))

            await connection._conn.send_request("session/delete", {"sessionId": fork})
            assert [s.session_id for s in (await connection.list_sessions()).sessions] == [first]


async def test_mcp_servers_and_more_folders_become_configuration() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        more = place.home.parent / "more"
        more.mkdir()
        (more / "x.txt").write_text("elsewhere")
        llm.script = sequence(Reply("", tool_calls=[call("read_file", {"path": str(more / "x.txt")})]), Reply("ok"))
        server = McpServerStdio(name="my server", command="false", args=["x"], env=[])
        async with editing(place, Editor()) as (connection, _):
            made = await connection.new_session(
                cwd=str(place.work), mcp_servers=[server], additional_directories=[str(more)]
            )
            await connection.prompt(session_id=made.session_id, prompt=text("read"))
        assert "elsewhere" in llm.requests[-1].texts[-1][1]
        config = of_type(place.records(made.session_id), "config.update")[0]["config"]
        assert config["mcp"]["servers"]["my_server"]["command"] == "false"
        assert config["tools"]["builtin"] == "all"


# ---------------------------------------------------------------- commands


async def test_commands_are_offered_after_the_answer_that_made_the_session() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        skill = place.work / ".sidecar" / "skills" / "review"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: review\ndescription: Reviews a change\n---\nReview like this.\n")
        editor = Editor()
        async with editing(place, editor) as (connection, _):
            session = await new(connection, place)
            await editor.until(lambda: editor.of("available_commands_update", session))
            names = [c.name for c in editor.of("available_commands_update")[0].available_commands]
            assert names[0] == "compact"
            assert "review" in names
            ended = await connection.prompt(session_id=session, prompt=text("/review the last commit"))
            assert ended.stop_reason == "end_turn"
            assert any("Review like this." in t and "the last commit" in t for _, t in llm.requests[-1].texts)


async def test_compact_says_what_came_of_it() -> None:
    with FakeLLM(lambda request, n: Reply(f"answer {n} " + "word " * 400)) as llm, a_place(llm) as place:
        editor = Editor()
        async with editing(place, editor) as (connection, _):
            session = await new(connection, place)
            await connection.prompt(session_id=session, prompt=text("/compact"))
            assert "nothing to compact" in editor.said(session)
            await connection.prompt(session_id=session, prompt=text("/etc/hosts is a file"))
            assert llm.requests[-1].texts[-1] == ("user", "/etc/hosts is a file")
            for n in range(4):
                await connection.prompt(session_id=session, prompt=text(f"question {n}"))
            llm.script = lambda request, n: Reply("The user asked four questions and got four long answers. " * 3)
            ended = await connection.prompt(session_id=session, prompt=text("/compact keep the numbers"))
            assert ended.stop_reason == "end_turn"
            assert "Compacted: " in editor.said(session)
            assert "keep the numbers" in llm.requests[-1].texts[-1][1]
        assert of_type(place.records(session), "context.apply_compaction")
        bracket = [u for u in editor.of("tool_call") if u.title.startswith("Compact")]
        assert len(bracket) == 1
        assert [u.status for u in editor.of("tool_call_update") if u.tool_call_id == bracket[0].tool_call_id] == [
            "completed"
        ]
