"""The way to the daemon, and the sessions that are open through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from protocol.chat import ApprovalParams, ApprovalResult
from sidecar.acp import permissions
from sidecar.acp.session import BridgedSession
from sidecar.client import SidecarClient, SidecarError


class Dial(Protocol):
    """A connection to the daemon for as long as the context is open."""

    def __call__(
        self, *, name: str, version: str, approve: Callable[[ApprovalParams], Awaitable[ApprovalResult]]
    ) -> AbstractAsyncContextManager[SidecarClient]: ...


class Bridge:
    """Connects to the daemon once, when the editor has said who it is; `editor` is the package's connection."""

    def __init__(self, tasks: TaskGroup, dial: Dial) -> None:
        self.editor: Any = None
        self.sessions: dict[str, BridgedSession] = {}
        self._tasks = tasks
        self._dial = dial
        self._connecting = anyio.Lock()
        self._client: SidecarClient | None = None

    async def client(self, info: Any = None) -> SidecarClient:
        """The daemon's client; `info` is what the editor says of itself, if this is its `initialize`."""
        async with self._connecting:
            if self._client is None:
                name = getattr(info, "name", None) or "editor"
                version = getattr(info, "version", None) or "0"
                self._client = await self._tasks.start(self._hold, str(name), str(version))
            return self._client

    async def _hold(
        self, name: str, version: str, *, task_status: TaskStatus[SidecarClient] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        async with self._dial(name=name, version=version, approve=self._approve) as client:
            task_status.started(client)
            await anyio.sleep_forever()

    async def _approve(self, request: ApprovalParams) -> ApprovalResult:
        session = self.sessions.get(request.session_id)
        if session is None:
            raise SidecarError(-32601, "method_not_found", "The editor has not opened this session")
        return await permissions.ask(self.editor, session, request)

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
