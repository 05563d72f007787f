"""What a tool is, and what it may use. Ports and frozen values only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from protocol.events import TodoItem
from protocol.messages import Part, TextPart, ToolSpec
from sidecar.settings import ToolSettings


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to: a failure is a value (`is_error`), never an exception.

    `locations` are absolute paths that the call touched, `diff` is `{path, old_text, new_text}` of an edit.
    `content` is what the model reads; text is clean UTF-8 of any length (the loop spills what is too long).
    """

    content: tuple[Part, ...]
    is_error: bool = False
    locations: tuple[str, ...] = ()
    diff: Mapping[str, Any] | None = None

    @staticmethod
    def text(text: str, **more: Any) -> ToolOutcome:
        return ToolOutcome((TextPart(text),), **more)

    @staticmethod
    def error(text: str) -> ToolOutcome:
        """An error that the model can act on: it names the thing and says what to do instead."""
        return ToolOutcome((TextPart(text),), is_error=True)


class FileAccess(Protocol):
    """Where text files are read and written: the disk, or an editor that offers its own file system."""

    async def read_text(self, path: Path) -> str | None:
        """The editor's text of an open file; None: read the disk."""
        ...

    async def write_text(self, path: Path, text: str) -> bool:
        """Whether the editor wrote it; False: write the disk."""
        ...


@dataclass(frozen=True, slots=True)
class TerminalOutcome:
    """How a command in a host's terminal ended. `exit_code` is None when `signal` ended it."""

    output: str
    exit_code: int | None
    signal: str | None
    truncated: bool
    timed_out: bool


class Terminal(Protocol):
    """A terminal of the host, where the user sees what a command prints."""

    async def run(self, command: str, *, cwd: Path, timeout_s: float, output_bytes: int) -> TerminalOutcome | None:
        """None: the host has no terminal after all, run it here. Cancelling ends the command."""
        ...


class RecordAccess(Protocol):
    """The agent's own event log, as the model may read it."""

    async def search(self, query: str, *, regex: bool, limit: int) -> str: ...

    async def read(self, line: int, *, offset: int, limit: int) -> str: ...


class Todos(Protocol):
    async def replace(self, todos: tuple[TodoItem, ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may know and use. `cwd` and `roots` are absolute and resolved; paths stay inside them.

    `secret_names` are variables of `environment` that no command gets, whatever they are called (the providers' keys).
    """

    session_id: str
    agent_id: str
    turn_id: str
    tool_call_id: str
    cwd: Path
    roots: tuple[Path, ...]
    settings: ToolSettings
    environment: Mapping[str, str]
    records: RecordAccess | None = None
    todos: Todos | None = None
    files: FileAccess | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    secret_names: frozenset[str] = frozenset()
    terminal: Terminal | None = None


Runner = Callable[[ToolContext, dict[str, Any]], Awaitable[ToolOutcome]]
Preview = Callable[[ToolContext, dict[str, Any]], Awaitable["str | None"]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the daemon. `arguments` were checked against `spec.parameters` before `run` is called.

    `main_argument` names the argument that approval rules match (`run_command` -> `command`); `is_path` says that it
    is a path, resolved before it is matched. `conflict_key` says what a call touches: an absolute path stands for all
    below it too, and a call with side effects overlaps no other call on the same path; any other key is a lock.
    `preview` says what a call would do, for the one who approves it. Cancelling `run` ends all that it started.
    """

    spec: ToolSpec
    run: Runner
    side_effects: bool = False
    is_edit: bool = False
    main_argument: str | None = None
    is_path: bool = False
    conflict_key: Callable[[ToolContext, dict[str, Any]], str | None] | None = None
    preview: Preview | None = None


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool that the host brought and executes."""

    spec: ToolSpec
