"""The way to the daemon, and the sessions that are open through it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.editor import FileReadParams, FileWriteParams, TerminalRunParams, TerminalRunResult
from sidecar.acp import lending, permissions
from sidecar.acp.session import BridgedSession
from sidecar.client import Answers, SidecarClient, SidecarError


class Dial(Protocol):
    """A connection to the daemon for as long as the context is open."""

    def __call__(self, *, name: str, version: str, answers: Answers) -> AbstractAsyncContextManager[SidecarClient]: ...


class Bridge:
    """Connects to the daemon once, when the editor has said who it is; `editor` is the package's connection."""

    def __init__(self, tasks: TaskGroup, dial: Dial) -> None:
        self.editor: Any = None
        self.sessions: dict[str, BridgedSession] = {}
        self._tasks = tasks
        self._dial = dial
        self._connecting = anyio.Lock()
        self._client: SidecarClient | None = None

    async def client(self, info: Any = None, capabilities: Any = None) -> SidecarClient:
        """The daemon's client; what the editor says of itself is given with its `initialize`."""
        async with self._connecting:
            if self._client is None:
                name = getattr(info, "name", None) or "editor"
                version = getattr(info, "version", None) or "0"
                answers = self._answers(capabilities)
                self._client = await self._tasks.start(self._hold, str(name), str(version), answers)
            return self._client

    async def _hold(
        self,
        name: str,
        version: str,
        answers: Answers,
        *,
        task_status: TaskStatus[SidecarClient] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        async with self._dial(name=name, version=version, answers=answers) as client:
            task_status.started(client)
            await anyio.sleep_forever()

    # ---------------------------------------------------------------- what the editor answers

    def _answers(self, capabilities: Any) -> Answers:
        files = getattr(capabilities, "fs", None)
        return Answers(
            approve=self._approve,
            read_file=self._read_file if getattr(files, "read_text_file", False) else None,
            write_file=self._write_file if getattr(files, "write_text_file", False) else None,
            run_command=self._run_command if getattr(capabilities, "terminal", False) else None,
        )

    def _session(self, session_id: str) -> BridgedSession:
        session = self.sessions.get(session_id)
        if session is None:
            raise SidecarError(-32601, "method_not_found", "The editor has not opened this session")
        return session

    async def _approve(self, request: ApprovalParams) -> ApprovalResult:
        return await permissions.ask(self.editor, self._session(request.session_id), request)

    async def _read_file(self, params: FileReadParams) -> str | None:
        self._session(params.session_id)
        return await lending.read_file(self.editor, params)

    async def _write_file(self, params: FileWriteParams) -> bool:
        self._session(params.session_id)
        return await lending.write_file(self.editor, params)

    async def _run_command(self, params: TerminalRunParams) -> TerminalRunResult:
        return await lending.run_command(self.editor, self._session(params.session_id), params)

    # ---------------------------------------------------------------- sessions

    async def open(self, session: BridgedSession) -> None:
        """Events of this session go to the editor from now on; one that was open under this id before is let go."""
        before = self.sessions.get(session.session_id)
        if before is not None:
            self.release(before)
        await self._tasks.start(session.forward)
        self.sessions[session.session_id] = session

    def release(self, session: BridgedSession) -> None:
        """What the daemon has sent so far is still forwarded, nothing after it."""
        session.end()
        if self.sessions.get(session.session_id) is session:
            del self.sessions[session.session_id]
