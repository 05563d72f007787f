"""The MCP servers of a session."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from protocol.messages import ToolSpec
from sidecar.settings import Mcp
from sidecar.tools.mcp.elicitation import Ask
from sidecar.tools.mcp.hidden import Hidden
from sidecar.tools.mcp.names import names_of, prefix_of
from sidecar.tools.mcp.server import START_S, Listed, Notice, Server
from sidecar.tools.port import Tool, ToolContext, ToolOutcome

RETRY_S = 60.0
"""A server that could not be started is tried again at a turn's beginning when this much time has passed."""
CLOSE_S = 3.0


class McpPool:
    """Owns the servers that the settings name. They start in the background, in `group`, which must outlive the pool.

    `notice` is called when a server cannot be started or dies. A server gets PATH, HOME, LANG, TMPDIR of `environment`
    and what its settings name, and runs in its own `cwd` or in this one. `ask` reaches the user for
    what servers want to know. `secrets` are the texts that a server, by its name, was told in confidence: they are
    taken out of what it says on its stderr and in its errors.
    """

    def __init__(
        self,
        settings: Mcp,
        group: TaskGroup,
        notice: Notice,
        *,
        environment: Mapping[str, str],
        cwd: str | None = None,
        ask: Ask | None = None,
        secrets: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._servers = {
            name: Server(name, server, environment, cwd, notice, ask, Hidden((secrets or {}).get(name, ())))
            for name, server in sorted(settings.servers.items())
            if server.command is not None or server.url is not None
        }
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()
        self._tried = anyio.current_time()
        for server in self._servers.values():
            scope = anyio.CancelScope()
            self._scopes.add(scope)
            group.start_soon(self._own, server, scope)

    async def _own(self, server: Server, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await server.run()
        finally:
            self._scopes.discard(scope)
            if not self._scopes:
                self._ended.set()

    async def ready(self, timeout: float = START_S) -> bool:
        """Called at a turn's beginning: waits, at most `timeout` seconds, until every server has started or failed and
        its tools are as it last told. Servers that failed before are tried again now and then, and not waited for.
        Whether all are settled."""
        with anyio.move_on_after(timeout):
            for server in self._servers.values():
                await server.settled()
            self._try_again()
            return True
        return False

    def _try_again(self) -> None:
        if anyio.current_time() - self._tried >= RETRY_S:
            self._tried = anyio.current_time()
            for server in self._servers.values():
                if not server.listed:
                    server.connection()

    def tools(self) -> tuple[Tool, ...]:
        """The tools of all servers that were up once, in order of their names; a server that died keeps its tools, and
        a call of one starts it again."""
        names = names_of((s.name, t.name) for s in self._servers.values() for t in s.listed)
        found = {
            names[s.name, t.name]: _tool(names[s.name, t.name], s, t) for s in self._servers.values() for t in s.listed
        }
        return tuple(found[name] for name in sorted(found))

    def stand_in(self, name: str) -> Tool | None:
        """For a tool that is not there although its server is configured: a tool that starts the server and then calls
        it, or says that it has none of this name. None if the name belongs to no server."""
        owners = [s for s in self._servers.values() if name.startswith(prefix_of(s.name))]
        if not owners:
            return None
        owner = max(owners, key=lambda s: len(prefix_of(s.name)))

        async def run(_context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
            connection = owner.connection()
            await connection.settled.wait()
            tool = next((t for t in self.tools() if t.spec.name == name), None)
            if tool is not None:
                return await tool.run(_context, arguments)
            why = f"is not running: {connection.failure}" if connection.client is None else "has no such tool"
            return ToolOutcome.error(f"There is no tool `{name}`: the MCP server {owner.name} {why}.")

        return Tool(ToolSpec(name=name, parameters={"type": "object"}, side_effects=True), run, side_effects=True)

    async def aclose(self) -> None:
        """On return no server runs any more."""
        for server in self._servers.values():
            server.stop()
        if self._scopes:
            with anyio.move_on_after(CLOSE_S):
                await self._ended.wait()
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._ended.wait()


def _tool(name: str, server: Server, listed: Listed) -> Tool:
    reads_only = server.settings.trust_hints and listed.reads_only

    async def run(_context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        return await functools.partial(server.call, listed.name)(arguments)

    spec = ToolSpec(
        name=name,
        description=listed.description,
        parameters=listed.schema,
        side_effects=not reads_only,
        timeout_s=server.settings.timeout_s,
    )
    return Tool(spec, run, side_effects=not reads_only)
