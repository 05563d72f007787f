"""Short ways to write conversations in tests."""

from __future__ import annotations

from protocol.messages import ImagePart, Message, Origin, TextPart, ToolCall
from record_store.fold import Entry, State


def user(text: str, id: str = "", *, origin: Origin | None = None) -> Message:
    return Message(id=id or f"u-{text}", role="user", content=(TextPart(text),), time=1, origin=origin)


def assistant(text: str = "", *calls: str, id: str = "") -> Message:
    made = tuple(ToolCall(c, "tool", "{}") for c in calls)
    return Message(
        id=id or f"a-{text}-{'-'.join(calls)}",
        role="assistant",
        content=(TextPart(text),) if text else (),
        time=1,
        tool_calls=made or None,
    )


def result(call_id: str, text: str = "done") -> Message:
    return Message(id=f"r-{call_id}", role="tool", content=(TextPart(text),), time=1, tool_call_id=call_id, name="tool")


def image(id: str, *, text: str = "") -> Message:
    parts = (TextPart(text),) if text else ()
    return Message(id=id, role="user", content=(*parts, ImagePart("image/png", data="aGVsbG8=")), time=1)


def state_of(*messages: Message) -> State:
    return State(entries=[Entry(m, line) for line, m in enumerate(messages, 1)])
