"""An editor for the ACP agent: the ACP package's own client, recording what it is told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import acp
import anyio
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from tests.support.running import Place


class Editor:
    """Answers the agent. `permit` chooses the option of a permission request, or None to dismiss it.

    `files` are open buffers by path; with `terminals` the editor offers terminals, which run in a shell.
    """

    def __init__(
        self,
        permit: Callable[[Any], str | None] = lambda request: "allow_once",
        files: dict[str, str] | None = None,
        terminals: bool = False,
    ) -> None:
        self.permit = permit
        self.files = files
        self.terminals = terminals
        self.updates: list[tuple[str, Any]] = []
        self.permissions: list[Any] = []
        self.read: list[str] = []
        self.written: dict[str, str] = {}
        self.commands: list[str] = []
        self.killed: list[str] = []
        self.released: list[str] = []
        self._processes: dict[str, tuple[asyncio.subprocess.Process, asyncio.Task[bytes]]] = {}

    def on_connect(self, connection: Any) -> None:
        self.agent = connection

    def capabilities(self) -> ClientCapabilities:
        fs = FileSystemCapabilities(read_text_file=self.files is not None, write_text_file=self.files is not None)
        return ClientCapabilities(fs=fs, terminal=self.terminals)

    # ---------------------------------------------------------------- what it saw

    def of(self, kind: str, session_id: str | None = None) -> list[Any]:
        """The updates of one kind, e.g. `agent_message_chunk`."""
        return [u for s, u in self.updates if u.session_update == kind and session_id in (None, s)]

    def said(self, session_id: str | None = None) -> str:
        return "".join(u.content.text for u in self.of("agent_message_chunk", session_id))

    def kinds(self, session_id: str | None = None) -> list[str]:
        return [u.session_update for s, u in self.updates if session_id in (None, s)]

    async def until(self, condition: Callable[[], Any], timeout: float = 15.0) -> Any:
        with anyio.fail_after(timeout):
            while not (value := condition()):
                await anyio.sleep(0.005)
            return value

    # ---------------------------------------------------------------- what the agent calls

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.permissions.append((tool_call, options))
        choice = self.permit((tool_call, options))
        if asyncio.iscoroutine(choice):
            choice = await choice
        if choice is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=choice))

    async def read_text_file(self, session_id: str, path: str, line: Any = None, limit: Any = None, **_: Any) -> Any:
        self.read.append(path)
        assert self.files is not None
        if path not in self.files:
            raise acp.RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.files[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        self.written[path] = content
        assert self.files is not None
        self.files[path] = content
        return WriteTextFileResponse()

    async def create_terminal(
        self, session_id: str, command: str, args: Any = None, cwd: str | None = None, **_: Any
    ) -> Any:
        self.commands.append(" ".join([command, *(args or [])]))
        process = await asyncio.create_subprocess_exec(
            command, *(args or []), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        terminal_id = f"term-{len(self._processes) + 1}"
        self._processes[terminal_id] = (process, asyncio.ensure_future(process.stdout.read()))
        return CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        output = self._processes[terminal_id][1]
        text = (await output).decode() if output.done() else ""
        return TerminalOutputResponse(output=text, truncated=False)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        process, output = self._processes[terminal_id]
        code = await process.wait()
        await output
        return WaitForTerminalExitResponse(exit_code=code if code >= 0 else None, signal=None if code >= 0 else "KILL")

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.killed.append(terminal_id)
        self._processes[terminal_id][0].kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.released.append(terminal_id)


@asynccontextmanager
async def editing(
    place: Place, editor: Editor, *arguments: str, initialize: bool = True
) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    """`sidecar acp` as a child with this editor: the package's connection, and the process."""
    command = place.command("acp", *arguments)
    assert command[0] == sys.executable
    with place.stderr_file.open("ab") as stderr:
        spawned = acp.spawn_agent_process(
            editor,
            *command,
            env=place.env,
            cwd=place.work,
            use_unstable_protocol=True,
            transport_kwargs={"stderr": stderr, "limit": 50 << 20, "shutdown_timeout": 8.0},
        )
        async with spawned as (connection, process):
            if initialize:
                await connection.initialize(protocol_version=1, client_capabilities=editor.capabilities())
            yield connection, process
