"""The MCP servers of one session: started when the session names some, their tools offered from the next turn on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from protocol.chat import QuestionParams
from protocol.events import Notice
from sidecar.sessions.secrets import Secrets, secrets_of
from sidecar.settings import Mcp
from sidecar.tools.port import Tool
from sidecar.tools.text import clean

if TYPE_CHECKING:
    from sidecar.sessions.assembly import Desk, Seat
    from sidecar.tools.mcp.pool import McpPool


LIST_S = 10.0
"""How long a host that asks for the tools waits for servers that start."""


class Servers:
    """Loads the `mcp` package only when a server is configured."""

    def __init__(self, group: TaskGroup, environment: Mapping[str, str], secrets: Secrets) -> None:
        self._group = group
        self._secrets = secrets
        self._environment = environment
        self._settings = Mcp()
        self._pool: McpPool | None = None
        self._changing = anyio.Lock(fast_acquire=True)
        self._closed = False

    async def before_listing(self, desk: Desk, seat: Seat) -> None:
        """Between turns: starts what the next one would start, so that its tools can be shown before it, and waits for
        it, not long."""
        with anyio.move_on_after(LIST_S):
            await self._bring_about(desk, seat)
            if self._pool is not None:
                await self._pool.ready()
        if seat.agent.state.open_turn is None:
            self._offer(desk, seat)

    async def before_turn(self, desk: Desk, seat: Seat) -> None:
        """Starts, restarts or ends servers as the settings say, waits for them (bounded), and offers their tools."""
        await self._bring_about(desk, seat)
        if self._pool is not None:
            await self._pool.ready()
            self._offer(desk, seat)
        elif seat.toolbox.server_tools:
            self._offer(desk, seat)

    async def _bring_about(self, desk: Desk, seat: Seat) -> None:
        """The servers are those that the settings name."""
        async with self._changing:
            wanted = self._secrets.open(seat.agent.settings.mcp)
            if wanted == self._settings:
                return
            await self._end()
            self._settings = wanted
            if wanted.servers and not self._closed:
                self._pool = await self._open(wanted, desk, seat)

    async def _open(self, wanted: Mcp, desk: Desk, seat: Seat) -> McpPool:
        async def ask(question: str, options: tuple[str, ...] | None) -> str | None:
            params = QuestionParams(
                session_id=desk.opened.session_id,
                turn_id=seat.agent.state.open_turn or "",
                question=question,
                options=options,
            )
            found = await desk.hosts.ask_question(params, wait_s=seat.agent.settings.approval.wait_s)
            value = found.value.get("answer") if isinstance(found.value, dict) else None
            return clean(value) if isinstance(value, str) else None

        def load() -> type[McpPool]:
            from sidecar.tools.mcp.pool import McpPool

            return McpPool

        pool = await to_thread.run_sync(load)
        return pool(
            wanted,
            self._group,
            lambda kind, text: seat.agent.emit(Notice(kind=kind, message=text)),
            environment=self._environment,
            cwd=seat.agent.state.cwd,
            ask=ask,
            secrets={name: secrets_of(server) for name, server in wanted.servers.items()},
        )

    def _offer(self, desk: Desk, seat: Seat) -> None:
        tools = self._pool.tools() if self._pool is not None else ()
        if seat.toolbox.bring(mcp=tools):
            seat.refresh(desk)

    def stand_in(self, name: str) -> Tool | None:
        """For a tool of a server that is not up."""
        return self._pool.stand_in(name) if self._pool is not None else None

    async def close(self) -> None:
        """On return no server runs any more, and none will."""
        self._closed = True
        async with self._changing:
            await self._end()

    async def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()
