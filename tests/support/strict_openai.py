"""A strict reader of chat completions requests: it refuses whatever the dialect's standard does not know.

check(body)     raises `Refused` with the reason
"""

from __future__ import annotations

from typing import Any

from tests.support.strict_json import NAME, Refused, fields, image_data, need, parse, text

__all__ = ["Refused", "check"]

_OPTIONAL = {"stream_options", "tools", "max_tokens", "max_completion_tokens", "parallel_tool_calls"}


def check(body: bytes) -> dict[str, Any]:
    """The request, if nothing is wrong with it."""
    request = parse(body)
    fields(request, "request", {"model", "messages", "stream"}, _OPTIONAL)
    text(request["model"], "model")
    need(request["stream"] is True, "stream is not true")
    need(not {"max_tokens", "max_completion_tokens"} <= set(request), "two output limits")
    for name in ("max_tokens", "max_completion_tokens"):
        need(name not in request or (type(request[name]) is int and request[name] > 0), f"{name} is no limit")
    if "stream_options" in request:
        fields(request["stream_options"], "stream_options", {"include_usage"})
    _tools(request.get("tools", [{}]) if "tools" in request else None)
    _messages(request["messages"])
    return request


def _tools(tools: Any) -> None:
    if tools is None:
        return
    need(isinstance(tools, list) and tools, "tools is empty")
    names = []
    for i, tool in enumerate(tools):
        fields(tool, f"tools[{i}]", {"type", "function"})
        need(tool["type"] == "function", f"tools[{i}].type")
        fields(tool["function"], f"tools[{i}].function", {"name", "parameters"}, {"description", "strict"})
        need(NAME.fullmatch(tool["function"]["name"]), f"tools[{i}] has a bad name")
        names.append(tool["function"]["name"])
    need(names == sorted(set(names)), f"tools are not sorted, or not unique: {names}")


def _messages(messages: Any) -> None:
    need(isinstance(messages, list) and messages, "no messages")
    open_calls: list[str] = []
    seen: set[str] = set()
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        need(isinstance(message, dict), f"{where} is no object")
        role = message.get("role")
        if role == "tool":
            fields(message, where, {"role", "tool_call_id", "content"})
            need(message["tool_call_id"] in open_calls, f"{where} answers no open call")
            open_calls.remove(message["tool_call_id"])
            _content(message["content"], where)
            continue
        need(not open_calls, f"{where}: {open_calls} have no result")
        if role == "assistant":
            open_calls = _assistant(message, where, seen)
        else:
            need(role in ("system", "developer", "user"), f"{where} has the role {role!r}")
            fields(message, where, {"role", "content"}, {"name"})
            _content(message["content"], where)
    need(not open_calls, f"{open_calls} have no result")
    need(messages[-1]["role"] != "assistant", "the conversation ends with an assistant message")


def _assistant(message: dict[str, Any], where: str, seen: set[str]) -> list[str]:
    fields(message, where, {"role", "content"}, {"tool_calls"})
    calls = message.get("tool_calls")
    need("tool_calls" not in message or (isinstance(calls, list) and calls), f"{where}.tool_calls is empty")
    if message["content"] is None:
        need(calls, f"{where} is blank")
    else:
        _content(message["content"], where)
    ids = []
    for j, call in enumerate(calls or ()):
        at = f"{where}.tool_calls[{j}]"
        fields(call, at, {"id", "type", "function"})
        fields(call["function"], f"{at}.function", {"name", "arguments"})
        text(call["id"], f"{at}.id")
        need(len(call["id"]) <= 40, f"{at}.id is too long")
        need(call["id"] not in seen, f"{at}.id stands twice")
        need(call["type"] == "function", f"{at}.type")
        need(NAME.fullmatch(call["function"]["name"]), f"{at} has a bad name")
        need(isinstance(call["function"]["arguments"], str), f"{at}.arguments is no text")
        seen.add(call["id"])
        ids.append(call["id"])
    return ids


def _content(content: Any, where: str) -> None:
    if isinstance(content, str):
        return text(content, f"{where}.content")
    need(isinstance(content, list) and content, f"{where}.content is empty")
    for j, part in enumerate(content):
        at = f"{where}.content[{j}]"
        need(isinstance(part, dict), f"{at} is no object")
        if part.get("type") == "text":
            fields(part, at, {"type", "text"})
            text(part["text"], at)
        else:
            fields(part, at, {"type", "image_url"})
            need(part["type"] == "image_url", f"{at}.type")
            fields(part["image_url"], f"{at}.image_url", {"url"}, {"detail"})
            head, comma, data = part["image_url"]["url"].partition(",")
            need(comma and head.startswith("data:image/") and head.endswith(";base64"), f"{at} is no data URL")
            image_data(data, at)
    return None
