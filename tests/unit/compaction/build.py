"""Small builders for contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.messages import ImagePart, Message, Origin, Part, TextPart, ToolCall
from record_store.fold import Entry
from sidecar.compaction.policy import Policy, resolve_compaction_policy
from sidecar.compaction.sizes import ScaledSizes
from tests.support.compaction_agent import message_tokens, settings, text_tokens

SIZES = ScaledSizes(message_tokens, text_tokens)
IMAGE = ImagePart("image/png", data="aGVsbG8=")


def policy(window: int = 10_000, **more: Any) -> Policy:
    return resolve_compaction_policy("fake/model", window, settings(**more))


def user(id: str, text: str = "", *parts: Part, origin: Origin | None = None) -> Message:
    content = (TextPart(text), *parts) if text else tuple(parts)
    return Message(id=id, role="user", content=content, time=1, origin=origin)


def system(id: str, text: str) -> Message:
    return Message(id=id, role="system", content=(TextPart(text),), time=1)


def assistant(id: str, text: str = "", *calls: str) -> Message:
    issued = tuple(ToolCall(call, "read_file", "{}") for call in calls)
    content = (TextPart(text),) if text else ()
    return Message(id=id, role="assistant", content=content, time=1, tool_calls=issued or None)


def tool(call: str, text: str, *parts: Part, name: str = "read_file", is_error: bool = False) -> Message:
    return Message(
        id=f"r-{call}",
        role="tool",
        content=(TextPart(text), *parts),
        time=1,
        tool_call_id=call,
        name=name,
        is_error=is_error,
    )


def entries(*messages: Message, first_line: int = 3) -> list[Entry]:
    return [Entry(m, line) for line, m in enumerate(messages, first_line)]


def ids(messages: Sequence[Message]) -> list[str]:
    return [m.id for m in messages]
