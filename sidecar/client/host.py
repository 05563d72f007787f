"""The host's side of the daemon's calls: its tools, its approvals, its answers.

A tool is an async function of a `HostCall`. It returns a text, parts, or a `ToolCallResult`; raising `ToolFailed` makes
an error result that the model reads, any other exception one that names only its type, while the host's logger
`sidecar.client` gets all of it. When the daemon cancels a call, the function is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from protocol.chat import (
    ApprovalParams,
    ApprovalResult,
    QuestionParams,
    QuestionResult,
    ToolCallParams,
    ToolCallResult,
    ToolCancelParams,
)
from protocol.editor import (
    FileReadParams,
    FileReadResult,
    FileWriteParams,
    FileWriteResult,
    TerminalRunParams,
    TerminalRunResult,
)
from protocol.events import ChatEvent
from protocol.messages import ImagePart, Part, TextPart, ToolSpec
from protocol.system import Capabilities, ReadyParams, RequestResolvedParams
from sidecar.client.errors import SidecarError, ToolFailed
from sidecar.client.peer import decode

logger = logging.getLogger("sidecar.client")

HostCall = ToolCallParams
"""A call of one of the host's tools, as the daemon sends it."""

ToolAnswer = str | Sequence[Part] | ToolCallResult
ToolFunction = Callable[[HostCall], Awaitable[ToolAnswer]]
Approve = Callable[[ApprovalParams], Awaitable[ApprovalResult]]
Answer = Callable[[QuestionParams], Awaitable[str]]
ReadFile = Callable[[FileReadParams], Awaitable[str | None]]
WriteFile = Callable[[FileWriteParams], Awaitable[bool]]
RunCommand = Callable[[TerminalRunParams], Awaitable[TerminalRunResult]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What a host answers beside calls of its tools; what is None it does not offer.

    `read_file` returns None for a file that it does not have, `write_file` False for one that it did not write: the
    daemon then uses the disk. `run_command` runs in a terminal of the host and ends the command when it is cancelled.
    """

    approve: Approve | None = None
    answer: Answer | None = None
    read_file: ReadFile | None = None
    write_file: WriteFile | None = None
    run_command: RunCommand | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            tools=True,
            approvals=self.approve is not None,
            questions=self.answer is not None,
            files=self.read_file is not None or self.write_file is not None,
            terminal=self.run_command is not None,
        )


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool and the function that runs it."""

    spec: ToolSpec
    run: ToolFunction


def host_tool(
    name: str,
    description: str = "",
    properties: dict[str, Any] | None = None,
    *,
    required: Iterable[str] = (),
    parameters: dict[str, Any] | None = None,
    side_effects: bool | None = None,
    timeout_s: float | None = None,
) -> Callable[[ToolFunction], HostTool]:
    """Makes a `HostTool` of an async function; `parameters` is a whole JSON Schema, else `properties` make one."""
    schema = parameters if parameters is not None else _object(properties or {}, list(required))
    spec = ToolSpec(
        name=name, description=description, parameters=schema, side_effects=side_effects, timeout_s=timeout_s
    )
    return lambda run: HostTool(spec, run)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def specs(tools: Iterable[HostTool | ToolSpec] | None) -> tuple[ToolSpec, ...] | None:
    """What is sent of the tools; None stays None: the session keeps those that it has."""
    if tools is None:
        return None
    return tuple(t.spec if isinstance(t, HostTool) else t for t in tools)


@dataclass(slots=True)
class Host:
    """Answers the daemon's calls. `on_event` gets every event, `on_resolved` the id of a call that needs no answer.

    Tools are found by session and name, then by name alone: those brought under no session serve all.
    """

    on_event: Callable[[ChatEvent], None]
    on_resolved: Callable[[str], None]
    answers: Answers = Answers()
    ready: ReadyParams | None = None
    _tools: dict[tuple[str | None, str], HostTool] = field(default_factory=dict)
    _running: dict[tuple[str, str], anyio.CancelScope] = field(default_factory=dict)

    def bring(self, session_id: str | None, tools: Iterable[HostTool | ToolSpec] | None) -> None:
        """These functions now serve that session; the ones that it had before go."""
        if tools is None:
            return
        self.forget(session_id)
        for tool in tools:
            if isinstance(tool, HostTool):
                self._tools[session_id, tool.spec.name] = tool

    def forget(self, session_id: str | None) -> None:
        for key in [k for k in self._tools if k[0] == session_id]:
            del self._tools[key]

    # ---------------------------------------------------------------- from the daemon

    def notified(self, method: str, params: bytes) -> None:
        match method:
            case "agent.chat.event":
                self.on_event(decode(params, ChatEvent))
            case "request.resolved":
                self.on_resolved(decode(params, RequestResolvedParams).request_id)
            case "tool.cancel":
                cancel = decode(params, ToolCancelParams)
                scope = self._running.get((cancel.session_id, cancel.tool_call_id))
                if scope is not None:
                    scope.cancel()
            case "system.ready":
                self.ready = decode(params, ReadyParams)

    def serve(self, method: str, params: bytes) -> Callable[[], Awaitable[Any]]:
        match method:
            case "tool.call":
                call, scope = decode(params, ToolCallParams), anyio.CancelScope()
                self._running[call.session_id, call.tool_call_id] = scope
                return lambda: self._call_tool(call, scope)
            case "approval.request" if self.answers.approve is not None:
                return partial(self.answers.approve, decode(params, ApprovalParams))
            case "question.ask" if self.answers.answer is not None:
                return partial(_asked, self.answers.answer, decode(params, QuestionParams))
            case "file.read" if self.answers.read_file is not None:
                return partial(_read, self.answers.read_file, decode(params, FileReadParams))
            case "file.write" if self.answers.write_file is not None:
                return partial(_written, self.answers.write_file, decode(params, FileWriteParams))
            case "terminal.run" if self.answers.run_command is not None:
                return partial(self.answers.run_command, decode(params, TerminalRunParams))
        raise SidecarError(-32601, "method_not_found", f"This host does not answer {method}")

    async def _call_tool(self, call: HostCall, scope: anyio.CancelScope) -> ToolCallResult:
        tool = self._tools.get((call.session_id, call.name)) or self._tools.get((None, call.name))
        try:
            if tool is None:
                return _error(f"This host has no tool named {call.name}")
            with scope:
                return _result(await tool.run(call))
            return _error(f"{call.name} was cancelled")
        except ToolFailed as failed:
            return _error(str(failed))
        except Exception as error:
            logger.exception("the tool %s failed", call.name)
            return _error(f"{call.name} failed: {type(error).__name__}")
        finally:
            if self._running.get((call.session_id, call.tool_call_id)) is scope:
                del self._running[call.session_id, call.tool_call_id]


async def _asked(answer: Answer, question: QuestionParams) -> QuestionResult:
    return QuestionResult(answer=await answer(question))


async def _read(read_file: ReadFile, params: FileReadParams) -> FileReadResult:
    return FileReadResult(text=await read_file(params))


async def _written(write_file: WriteFile, params: FileWriteParams) -> FileWriteResult:
    return FileWriteResult(written=await write_file(params))


def _result(answer: ToolAnswer) -> ToolCallResult:
    if isinstance(answer, ToolCallResult):
        return answer
    if isinstance(answer, str):
        return ToolCallResult(content=answer)
    parts = tuple(answer)
    if not all(isinstance(p, (TextPart, ImagePart)) for p in parts):
        raise TypeError("a tool returns a text, parts or a ToolCallResult")
    return ToolCallResult(content=parts)


def _error(text: str) -> ToolCallResult:
    return ToolCallResult(content=text, is_error=True)
