"""A strict reader of Messages requests: it refuses whatever the dialect's standard does not know.

check(body)         raises `Refused` with the reason
without_marks(body) the request with its cache marks taken out
"""

from __future__ import annotations

import re
from typing import Any

from tests.support.strict_json import Refused, fields, image_data, need, parse, text

__all__ = ["Refused", "check", "marks", "without_marks"]

NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
MARK = b',"cache_control":{"type":"ephemeral"}'


def without_marks(body: bytes) -> bytes:
    return body.replace(MARK, b"")


def marks(value: Any) -> int:
    """How many cache marks stand anywhere in a value."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(marks(v) for v in value.values())
    return sum(marks(v) for v in value) if isinstance(value, list) else 0


def check(body: bytes) -> dict[str, Any]:
    """The request, if nothing is wrong with it."""
    request = parse(body)
    fields(request, "request", {"model", "messages", "max_tokens", "stream"}, {"system", "tools"})
    text(request["model"], "model")
    need(request["stream"] is True, "stream is not true")
    need(type(request["max_tokens"]) is int and request["max_tokens"] > 0, "max_tokens is no limit")
    need(marks(request) <= 4, f"{marks(request)} cache marks")
    if "system" in request:
        need(isinstance(request["system"], list) and request["system"], "system is empty")
        for block in request["system"]:
            _text_block(block, "system")
    if "tools" in request:
        _tools(request["tools"])
    _messages(request["messages"])
    return request


def _mark(block: dict[str, Any], where: str) -> None:
    need(block.get("cache_control", {"type": "ephemeral"}) == {"type": "ephemeral"}, f"{where}.cache_control")


def _text_block(block: Any, where: str) -> None:
    fields(block, where, {"type", "text"}, {"cache_control"})
    need(block["type"] == "text", f"{where}.type")
    need(isinstance(block["text"], str) and block["text"].strip(), f"{where} has no visible text")
    _mark(block, where)


def _tools(tools: Any) -> None:
    need(isinstance(tools, list) and tools, "tools is empty")
    for i, tool in enumerate(tools):
        fields(tool, f"tools[{i}]", {"name", "input_schema"}, {"description", "cache_control"})
        need(NAME.fullmatch(tool["name"]), f"tools[{i}] has a bad name")
        need(
            isinstance(tool["input_schema"], dict) and tool["input_schema"].get("type") == "object",
            f"tools[{i}] schema",
        )
    names = [t["name"] for t in tools]
    need(names == sorted(set(names)), f"tools are not sorted, or not unique: {names}")


def _messages(messages: Any) -> None:
    need(isinstance(messages, list) and messages, "no messages")
    open_calls: set[str] = set()
    seen: set[str] = set()
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        fields(message, where, {"role", "content"})
        need(message["role"] in ("user", "assistant"), f"{where} has the role {message['role']!r}")
        need(i > 0 or message["role"] == "user", "the first message is not the user's")
        need(isinstance(message["content"], list) and message["content"], f"{where}.content is empty")
        if message["role"] == "user":
            _user(message["content"], where, open_calls)
            open_calls = set()
        else:
            need(not open_calls, f"{where}: {open_calls} have no result")
            open_calls = _assistant(message["content"], where, seen)
    need(not open_calls, f"{open_calls} have no result")
    need(messages[-1]["role"] == "user", "the conversation ends with an assistant message")


def _user(content: list[Any], where: str, open_calls: set[str]) -> None:
    answered: list[str] = []
    for j, block in enumerate(content):
        at = f"{where}.content[{j}]"
        if isinstance(block, dict) and block.get("type") == "tool_result":
            need(len(answered) == j, f"{at} comes after other content")
            fields(block, at, {"type", "tool_use_id"}, {"content", "is_error", "cache_control"})
            need(block["tool_use_id"] in open_calls, f"{at} answers no call of the message before it")
            answered.append(block["tool_use_id"])
            _mark(block, at)
            inner = block.get("content", "x")
            if isinstance(inner, str):
                need(inner.strip(), f"{at} is empty")
            else:
                need(isinstance(inner, list) and inner, f"{at} is empty")
                for part in inner:
                    _part(part, at)
        else:
            _part(block, at)
    need(
        set(answered) == open_calls and len(answered) == len(open_calls), f"{where} answers {answered} of {open_calls}"
    )


def _part(block: Any, where: str) -> None:
    need(isinstance(block, dict), f"{where} is no object")
    if block.get("type") == "text":
        return _text_block(block, where)
    fields(block, where, {"type", "source"}, {"cache_control"})
    need(block["type"] == "image", f"{where}.type is {block['type']!r}")
    fields(block["source"], f"{where}.source", {"type", "media_type", "data"})
    need(block["source"]["type"] == "base64" and block["source"]["media_type"] in IMAGES, f"{where}.source")
    image_data(block["source"]["data"], where)
    return _mark(block, where)


def _assistant(content: list[Any], where: str, seen: set[str]) -> set[str]:
    calls: set[str] = set()
    for j, block in enumerate(content):
        at = f"{where}.content[{j}]"
        need(isinstance(block, dict), f"{at} is no object")
        match block.get("type"):
            case "text":
                fields(block, at, {"type", "text"})
                need(block["text"].strip(), f"{at} has no visible text")
            case "thinking":
                fields(block, at, {"type", "thinking", "signature"})
                text(block["signature"], f"{at}.signature")
            case "redacted_thinking":
                fields(block, at, {"type", "data"})
            case "tool_use":
                fields(block, at, {"type", "id", "name", "input"})
                need(CALL_ID.fullmatch(block["id"]) and block["id"] not in seen, f"{at} has a bad or a used id")
                need(NAME.fullmatch(block["name"]), f"{at} has a bad name")
                need(isinstance(block["input"], dict), f"{at}.input is no object")
                seen.add(block["id"])
                calls.add(block["id"])
            case other:
                raise Refused(f"{at} has the type {other!r}")
    return calls
