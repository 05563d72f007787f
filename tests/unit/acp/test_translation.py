"""What the ACP agent translates, without a process: prompts, calls, events, stored conversations, errors."""

from __future__ import annotations

from typing import Any

import acp
import pytest
from acp.schema import HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from protocol.events import (
    ChatEvent,
    CompactionFailed,
    CompactionStarted,
    Event,
    MessageEvent,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    TodoItem,
    TodoUpdated,
    ToolCallStarted,
    ToolResult,
    TurnStarted,
)
from protocol.messages import ImagePart, Message, Origin, TextPart, ToolCall
from protocol.skills import SkillInfo
from sidecar.acp import commands, content, errors, servers, toolviews
from sidecar.acp.replay import replay
from sidecar.acp.updates import RESTARTED, Projection
from sidecar.client import SidecarError


def event(inner: Event, agent_id: str = "main") -> ChatEvent:
    return ChatEvent(session_id="s", agent_id=agent_id, event_id="00000000-1", event=inner, turn_id="t")  # type: ignore[arg-type]


def shown(updates: list[Any]) -> list[tuple[str, str]]:
    return [(u.session_update, u.content.text) for u in updates]


# ---------------------------------------------------------------- prompts and commands


def test_text_blocks_are_joined_and_images_stay_apart() -> None:
    image = acp.image_block("QUJD", "image/png")
    parts = content.parts_of([acp.text_block("a"), acp.text_block("b"), image, acp.text_block("c")])
    assert parts == (TextPart("a\n\nb"), ImagePart("image/png", data="QUJD"), TextPart("c"))


def test_a_resource_cannot_break_out_of_its_tag() -> None:
    block = acp.resource_block(acp.embedded_text_resource('file:///a"><b', "x"))
    (part,) = content.parts_of([block])
    assert part == TextPart('<resource uri="file:///a&quot;>&lt;b">\nx\n</resource>')


def test_sound_is_not_taken() -> None:
    with pytest.raises(content.UnsupportedContent) as caught:
        content.parts_of([acp.text_block("a"), acp.audio_block("QUJD", "audio/wav")])
    assert (caught.value.index, caught.value.kind) == (1, "audio")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/compact", ("compact", "")),
        ("  /compact keep the names ", ("compact", "keep the names")),
        ("/review\nthese files", ("review", "these files")),
        ("/", None),
        ("compact", None),
        ("", None),
    ],
)
def test_commands(text: str, expected: tuple[str, str] | None) -> None:
    found = commands.parse((TextPart(text),))
    assert (found and (found.name, found.arguments)) == expected


def test_a_command_with_an_image_is_a_prompt() -> None:
    assert commands.parse((TextPart("/compact"), ImagePart("image/png", data="QUJD"))) is None


def test_no_skill_takes_the_place_of_compact() -> None:
    skills = [SkillInfo(name, "d", "inline", "project") for name in ("compact", "review")]
    offered = commands.offered(skills).available_commands
    assert [c.name for c in offered] == ["compact", "review"]
    assert offered[0].description != "d"


# ---------------------------------------------------------------- tool calls


def test_titles_are_one_short_line() -> None:
    assert toolviews.title("run_command", {"command": "ls\n  -l"}) == "Run ls -l"
    assert toolviews.title("mcp__x__y", {"path": "z"}) == "mcp__x__y"
    assert toolviews.title("read_file", None) == "Read"
    assert len(toolviews.title("run_command", {"command": "x" * 500})) == toolviews.MAX_TITLE


def test_places_are_absolute() -> None:
    (place,) = toolviews.places("read_file", {"path": "../b.py", "offset": 7}, "/work/a") or []
    assert (place.path, place.line) == ("/work/b.py", 7)
    assert toolviews.places("grep", {"path": "src"}, "/work") is None
    assert toolviews.places("edit_file", {"path": 5}, "/work") is None


def test_a_result_shows_its_change_and_a_failure_its_text() -> None:
    diff = {"path": "/a", "old_text": "x", "new_text": "y"}
    result = ToolResult(
        tool_call_id="c", name="edit_file", content=(TextPart("Edited."),), is_error=False, duration_ms=1,
        locations=("/a",), diff=diff,
    )  # fmt: skip
    update = toolviews.finished(result)
    assert (update.status, update.content[0].old_text, update.locations[0].path) == ("completed", "x", "/a")
    failed = ToolResult(
        tool_call_id="c", name="edit_file", content=(TextPart("No."),), is_error=True, duration_ms=1, diff=diff
    )
    assert toolviews.finished(failed).content[0].content.text == "No."


# ---------------------------------------------------------------- events


def test_a_message_repeats_nothing_that_was_streamed() -> None:
    projection = Projection("/")
    message = Message(id="m", role="assistant", content=(TextPart("hello world"),), time=1)
    first = projection.project(event(TextDelta(message_id="m", text="hello", offset=0)), own=True)
    rest = projection.project(event(MessageEvent(message=message)), own=True)
    again = projection.project(event(MessageEvent(message=message)), own=True)
    assert shown(first + rest + again) == [("agent_message_chunk", "hello"), ("agent_message_chunk", " world")]


def test_a_reset_says_so_and_starts_again() -> None:
    projection = Projection("/")
    nothing = projection.project(event(StreamReset(message_id="m", offset=0)), own=True)
    projection.project(event(TextDelta(message_id="m", text="hel", offset=0)), own=True)
    reset = projection.project(event(StreamReset(message_id="m", offset=0)), own=True)
    again = projection.project(event(TextDelta(message_id="m", text="hello", offset=0)), own=True)
    assert nothing == []
    assert [t for _, t in shown(reset + again)] == [RESTARTED, "hello"]


def test_only_turns_of_others_show_their_input() -> None:
    projection = Projection("/")
    started = event(TurnStarted(content=(TextPart("hi"),)))
    assert projection.project(started, own=True) == []
    assert shown(projection.project(started, own=False)) == [("user_message_chunk", "hi")]


def test_of_sub_agents_only_the_calls_are_shown() -> None:
    projection = Projection("/")
    text = event(TextDelta(message_id="m", text="x", offset=0), agent_id="sub")
    thought = event(ReasoningDelta(message_id="m", text="x", offset=0), agent_id="sub")
    called = event(ToolCallStarted(tool_call_id="c", name="glob", arguments={"pattern": "*"}), agent_id="sub")
    assert projection.project(text, own=True) + projection.project(thought, own=True) == []
    assert projection.project(called, own=True)[0].title == "Find *"


def test_a_call_is_announced_once() -> None:
    projection = Projection("/")
    assert projection.announce("c", "glob", {"pattern": "*"}, "pending")[0].session_update == "tool_call"
    started = event(ToolCallStarted(tool_call_id="c", name="glob", arguments={"pattern": "*"}))
    (update,) = projection.project(started, own=True)
    assert (update.session_update, update.status) == ("tool_call_update", "in_progress")


def test_plans_and_compactions() -> None:
    projection = Projection("/")
    (plan,) = projection.project(event(TodoUpdated(todos=(TodoItem("a", "done"),))), own=True)
    assert [(e.content, e.status) for e in plan.entries] == [("a", "completed")]
    began = CompactionStarted(compaction_id="k", trigger="auto", mode="background", pre_tokens=12345)
    (start,) = projection.project(event(began), own=True)
    (end,) = projection.project(event(CompactionFailed(compaction_id="k", reason="no_gain", attempts=1)), own=True)
    assert (start.tool_call_id, end.tool_call_id, end.status) == ("k", "k", "failed")
    assert "12,345" in start.title


# ---------------------------------------------------------------- stored conversations


def test_replay_leaves_out_what_the_person_did_not_write() -> None:
    def user(id: str, text: str, origin: Origin | None = None) -> Message:
        return Message(id=id, role="user", content=(TextPart(text),), time=1, origin=origin)

    messages = [
        user("1", "hi"),
        user("2", "summary", Origin("compaction_summary")),
        user("3", "reminder", Origin("injection", variant="x")),
        user("4", "/review", Origin("skill_activation", trigger="user_slash")),
        Message(
            id="5", role="assistant", content=(), time=1,
            tool_calls=(ToolCall("c", "todo_write", '{"todos": [{"content": "a", "status": "pending"}]}'),),
        ),
        Message(id="6", role="tool", content=(TextPart("no"),), time=1, tool_call_id="c", is_error=True),
        Message(id="7", role="assistant", content=(), time=1, tool_calls=(ToolCall("d", "glob", "not json"),)),
    ]  # fmt: skip
    updates = list(replay(messages, "/"))
    assert shown(updates[:2]) == [("user_message_chunk", "hi"), ("user_message_chunk", "/review")]
    assert [u.session_update for u in updates[2:]] == ["tool_call", "tool_call_update", "tool_call", "plan"]
    assert updates[3].status == "failed"
    assert updates[4].raw_input is None


# ---------------------------------------------------------------- servers and errors


def test_servers_get_names_that_fit_into_a_tools() -> None:
    found = servers.configuration(
        [
            McpServerStdio(name="my server!", command="x", args=["y"], env=[]),
            HttpMcpServer(type="http", name="my_server", url="http://z", headers=[HttpHeader(name="A", value="b")]),
            SseMcpServer(type="sse", name="old", url="http://z", headers=[]),
        ]
    )
    assert found == {
        "mcp": {
            "servers": {
                "my_server": {"command": "x", "args": ["y"], "env": {}},
                "my_server_2": {"url": "http://z", "headers": {"A": "b"}},
            }
        }
    }
    assert servers.configuration(None) == {}


def test_errors_keep_what_may_be_told() -> None:
    told = errors.cleaned(
        errors.refusal(SidecarError(-32023, "session_closed", "closed", {"hint": "resume"})).to_error_obj()
    )
    assert told == {"code": -32002, "message": "closed", "data": {"reason": "session_closed", "hint": "resume"}}
    leak = {"code": -32603, "message": "Internal error", "data": {"details": "KeyError: '/home/x'"}}
    assert errors.cleaned(leak) == {"code": -32603, "message": "Internal error"}
    bad = {
        "code": -32602,
        "message": "Invalid params",
        "data": {
            "errors": [{"loc": ("prompt", 0), "msg": "Field required", "input": "secret", "ctx": {"e": object()}}]
        },
    }
    assert errors.cleaned(bad)["data"] == {"errors": [{"path": "prompt.0", "message": "Field required"}]}
