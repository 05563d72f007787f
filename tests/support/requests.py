"""Conversations and encoders for tests of what is sent to providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from protocol.messages import ImagePart, Message, Part, ReasoningBlock, TextPart, ToolCall, ToolSpec
from sidecar.providers.anthropic import MessagesEncoder
from sidecar.providers.openai import ChatEncoder
from sidecar.providers.port import EncodedRequest, Encoder, Prefix
from sidecar.providers.quirks import ChatQuirks, MessagesQuirks

Dialect = Literal["openai", "anthropic"]

PNG = "iVBORw0KGgoAAAANSUhEUg=="
BLOBS: dict[str, bytes] = {"5e" * 32: b"\x89PNG blob"}

TOOLS = (
    ToolSpec(
        name="write",
        description="Writes.",
        parameters={"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
    ),
    ToolSpec(name="look", parameters={"type": "object", "properties": {}}),
)
NO_PREFIX = Prefix("")
PREFIX = Prefix("You are “helpful”.\n", TOOLS)


@dataclass(frozen=True, slots=True)
class Held:
    """An entry of a context."""

    message: Message


def user(*parts: str | Part, id: str = "u") -> Message:
    return Message(id=id, role="user", content=_parts(parts), time=1)


def system(text: str) -> Message:
    return Message(id="s", role="system", content=(TextPart(text),), time=1)


def assistant(
    text: str = "",
    *calls: ToolCall,
    reasoning: str | None = None,
    blocks: tuple[ReasoningBlock, ...] | None = None,
    model: str | None = "p/m",
    partial: bool = False,
) -> Message:
    return Message(
        id="a",
        role="assistant",
        content=(TextPart(text),) if text else (),
        time=1,
        tool_calls=calls or None,
        reasoning=reasoning,
        reasoning_blocks=blocks,
        model=model,
        partial=partial,
    )


def result(call_id: str, *parts: str | Part, is_error: bool = False) -> Message:
    return Message(
        id="r", role="tool", content=_parts(parts), time=1, tool_call_id=call_id, name="look", is_error=is_error
    )


def image(media_type: str = "image/png", **source: str) -> ImagePart:
    return ImagePart(media_type, **(source or {"data": PNG}))


def calling(call_id: str, arguments: str = "{}", name: str = "look") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def _parts(parts: tuple[str | Part, ...]) -> tuple[Part, ...]:
    return tuple(TextPart(p) if isinstance(p, str) else p for p in parts)


def encoder(dialect: Dialect, **quirks: Any) -> Encoder:
    """An encoder for the model `p/m`."""
    if dialect == "openai":
        return ChatEncoder("p/m", "m", ChatQuirks(**quirks), BLOBS.get)
    return MessagesEncoder("p/m", "m", MessagesQuirks(**quirks), BLOBS.get, None)


def encode(
    dialect: Dialect,
    messages: list[Message],
    prefix: Prefix = PREFIX,
    *,
    suffix: Message | None = None,
    limit: int | None = 1000,
    **quirks: Any,
) -> EncodedRequest:
    made = encoder(dialect, **quirks)
    made.sync(prefix, [Held(m) for m in messages], 0)
    return made.request(max_output_tokens=limit, suffix=suffix)


def sent(dialect: Dialect, messages: list[Message], prefix: Prefix = NO_PREFIX, **more: Any) -> list[dict[str, Any]]:
    """The messages as the provider reads them."""
    found: list[dict[str, Any]] = orjson.loads(encode(dialect, messages, prefix, **more).body)["messages"]
    return found
