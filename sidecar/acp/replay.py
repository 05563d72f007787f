"""A stored conversation to the updates that show it again. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from acp.schema import ToolCallProgress, UserMessageChunk

from protocol.events import TodoItem
from protocol.messages import JsonObject, Message
from sidecar.acp import toolviews
from sidecar.acp.content import blocks_of
from sidecar.acp.updates import plan, said, thought


def replay(messages: Iterable[Message], cwd: str) -> Iterator[Any]:
    """Updates in the order of the messages; the plan as it was last, at the end.

    What the person did not write (summaries, reminders, recalled facts) is not shown.
    """
    todos: tuple[TodoItem, ...] | None = None
    for message in messages:
        match message.role:
            case "user" if is_from_person(message):
                for block in blocks_of(message.content):
                    yield UserMessageChunk(session_update="user_message_chunk", content=block, message_id=message.id)
            case "assistant":
                if message.reasoning:
                    yield thought(message.reasoning, message.id)
                if message.text:
                    yield said(message.text, message.id)
                for call in message.tool_calls or ():
                    arguments = _arguments(call.arguments)
                    yield toolviews.started(call.id, call.name, arguments, cwd, "pending")
                    if call.name == "todo_write":
                        todos = _todos(arguments) or todos
            case "tool" if message.tool_call_id is not None:
                yield ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=message.tool_call_id,
                    status="failed" if message.is_error else "completed",
                    content=toolviews.output(message.content),
                )
    if todos is not None:
        yield plan(todos)


def is_from_person(message: Message) -> bool:
    origin = message.origin
    return origin is None or origin.kind == "user" or origin.trigger == "user_slash"


def _arguments(text: str) -> JsonObject | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _todos(arguments: JsonObject | None) -> tuple[TodoItem, ...] | None:
    try:
        return msgspec.convert((arguments or {}).get("todos"), tuple[TodoItem, ...], strict=True)
    except msgspec.ValidationError:
        return None
