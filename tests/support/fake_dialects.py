"""How the fake model's replies look on the wire, per dialect. Pure; standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.fake_llm import Reply


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens that the reply reports; `prompt` includes the cached ones."""

    prompt: int
    cached: int
    completion: int


def text_of(content: Any) -> str:
    """All text of a message's content, in either dialect; tool results included."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = []
    for part in content:
        if part.get("type") == "tool_result":
            parts.append(text_of(part.get("content")))
        else:
            parts.append(part.get("text", ""))
    return "".join(parts)


def pieces(text: str, count: int) -> list[str]:
    """The text in at most `count` pieces of about the same length; nothing for an empty text."""
    if not text:
        return []
    size = max(1, -(-len(text) // max(1, count)))
    return [text[i : i + size] for i in range(0, len(text), size)]


# ---------------------------------------------------------------- chat completions


def openai_stream(asked: dict[str, Any], reply: Reply, counts: Counts) -> Iterator[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked.get("model", "")}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(reply.reasoning, 2):
        yield chunk({"reasoning_content": piece})
    for piece in pieces(reply.text, reply.chunks):
        yield chunk({"content": piece})
    for i, call in enumerate(reply.tool_calls):
        head = {"name": call["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": i, "id": call["id"], "type": "function", "function": head}]})
        for piece in pieces(call["arguments"], 2):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop"))
    if reply.usage:
        yield _data({**base, "choices": [], "usage": openai_usage(counts)})
    if reply.done:
        yield b"data: [DONE]\n\n"


def openai_usage(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }


def openai_whole(asked: dict[str, Any], reply: Reply, counts: Counts) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in reply.tool_calls
        ]
    finish = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": asked.get("model", ""),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": openai_usage(counts),
    }


# ---------------------------------------------------------------- messages


def anthropic_stream(asked: dict[str, Any], reply: Reply, counts: Counts) -> Iterator[bytes]:
    yield _event("message_start", {"message": _anthropic_head(asked, counts)})
    for index, (block, deltas) in enumerate(_anthropic_blocks(reply)):
        yield _event("content_block_start", {"index": index, "content_block": block})
        for delta in deltas:
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    stop = {"stop_reason": _anthropic_stop(reply), "stop_sequence": None}
    usage = {"output_tokens": counts.completion} if reply.usage else {}
    yield _event("message_delta", {"delta": stop, "usage": usage})
    if reply.done:
        yield _event("message_stop", {})


def _anthropic_blocks(reply: Reply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    if reply.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(reply.reasoning, 2)]
        signature = {"type": "signature_delta", "signature": reply.signature}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]
    if reply.text:
        deltas = [{"type": "text_delta", "text": p} for p in pieces(reply.text, reply.chunks)]
        yield {"type": "text", "text": ""}, deltas
    for call in reply.tool_calls:
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces(call["arguments"], 2)]
        yield {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}, deltas


def _anthropic_head(asked: dict[str, Any], counts: Counts) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": asked.get("model", ""),
        "stop_reason": None,
        "usage": {
            "input_tokens": counts.prompt - counts.cached,
            "cache_read_input_tokens": counts.cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": 1,
        },
    }


def _anthropic_stop(reply: Reply) -> str:
    return reply.finish_reason or ("tool_use" if reply.tool_calls else "end_turn")


def anthropic_whole(asked: dict[str, Any], reply: Reply, counts: Counts) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": c["id"], "name": c["name"], "input": json.loads(c["arguments"] or "{}")}
        for c in reply.tool_calls
    ]
    head = _anthropic_head(asked, counts)
    usage = {**head["usage"], "output_tokens": counts.completion}
    return {**head, "content": content, "stop_reason": _anthropic_stop(reply), "usage": usage}


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _event(kind: str, value: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _data({"type": kind, **value})
