"""How an editor shows the calls of tools: title, kind, places, changes. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping
from typing import Any

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from protocol.events import ToolResult
from protocol.messages import JsonObject, Part
from sidecar.acp.content import blocks_of, text_block

KINDS: Mapping[str, str] = {
    "read_file": "read",
    "read_skill": "read",
    "record_read": "read",
    "list_dir": "search",
    "glob": "search",
    "grep": "search",
    "record_search": "search",
    "recall": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "run_command": "execute",
    "todo_write": "think",
}
"""Of the daemon's own tools; others are `other`."""

TITLES: Mapping[str, tuple[str, str]] = {
    "read_file": ("Read", "path"),
    "list_dir": ("List", "path"),
    "glob": ("Find", "pattern"),
    "grep": ("Search for", "pattern"),
    "write_file": ("Write", "path"),
    "edit_file": ("Edit", "path"),
    "run_command": ("Run", "command"),
    "record_search": ("Search the log for", "query"),
    "record_read": ("Read log line", "line"),
    "recall": ("Recall", "query"),
    "remember": ("Remember", "name"),
    "run_skill": ("Skill", "name"),
    "read_skill": ("Read skill", "name"),
}
"""The verb, and the argument that says most."""

MAX_TITLE = 160


def title(name: str, arguments: JsonObject | None) -> str:
    """One line that tells a person what the call does."""
    if name == "todo_write":
        return "Update the plan"
    verb, argument = TITLES.get(name, (name, ""))
    value = (arguments or {}).get(argument)
    text = f"{verb} {value}" if isinstance(value, (str, int)) and value != "" else verb
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…"


def kind(name: str) -> str:
    return KINDS.get(name, "other")


def absolute(cwd: str, path: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def places(name: str, arguments: JsonObject | None, cwd: str) -> list[Any] | None:
    """Where a file tool will work, from its arguments."""
    path = (arguments or {}).get("path")
    if kind(name) not in ("read", "edit") or not isinstance(path, str) or not path:
        return None
    line = (arguments or {}).get("offset")
    at = line if isinstance(line, int) and line > 0 else None
    return [ToolCallLocation(path=absolute(cwd, path), line=at)]


def proposed_diff(name: str, arguments: JsonObject, cwd: str) -> list[Any] | None:
    """The change that an edit asks for, as far as its arguments tell."""
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    if name == "write_file" and isinstance(arguments.get("content"), str):
        return [_diff(absolute(cwd, path), None, arguments["content"])]
    old, new = arguments.get("old_text"), arguments.get("new_text")
    if name == "edit_file" and isinstance(old, str) and isinstance(new, str):
        return [_diff(absolute(cwd, path), old, new)]
    return None


def _diff(path: str, old: str | None, new: str) -> Any:
    return FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)


def started(call_id: str, name: str, arguments: JsonObject | None, cwd: str, status: str = "in_progress") -> Any:
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=call_id,
        title=title(name, arguments),
        kind=kind(name),
        status=status,
        raw_input=arguments,
        locations=places(name, arguments, cwd),
    )


def asked(call_id: str, name: str, arguments: JsonObject, cwd: str, preview: str | None) -> Any:
    """The call in a permission request: with the change, or what there is to see of it."""
    content = proposed_diff(name, arguments, cwd)
    if content is None and preview:
        content = [ContentToolCallContent(type="content", content=text_block(preview))]
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=title(name, arguments),
        kind=kind(name),
        status="pending",
        raw_input=arguments,
        locations=places(name, arguments, cwd),
        content=content,
    )


def finished(event: ToolResult, *, terminal: bool = False) -> Any:
    """The outcome. What ran in the editor's own terminal is shown there already."""
    content: list[Any] | None = None
    if event.diff is not None and not event.is_error:
        content = [_diff(str(event.diff["path"]), event.diff.get("old_text"), str(event.diff.get("new_text", "")))]
    elif not terminal:
        content = output(event.content)
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=event.tool_call_id,
        status="failed" if event.is_error else "completed",
        content=content,
        locations=[ToolCallLocation(path=path) for path in event.locations] or None,
    )


def output(content: Iterable[Part]) -> list[Any]:
    return [ContentToolCallContent(type="content", content=block) for block in blocks_of(content)]
