"""One MCP server: started, listed, called, restarted. One task owns the connection from its beginning to its end."""

from __future__ import annotations

import math
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import anyio
import anyio.lowlevel
from anyio import to_thread
from anyio.abc import TaskGroup

from protocol.messages import JsonObject
from sidecar import logs
from sidecar.settings import NOT_STORED, McpServer
from sidecar.tools.environment import for_servers
from sidecar.tools.mcp import elicitation
from sidecar.tools.mcp.content import outcome_of
from sidecar.tools.mcp.elicitation import Ask
from sidecar.tools.mcp.hidden import Hidden
from sidecar.tools.mcp.stdio import stdio_transport
from sidecar.tools.port import ToolOutcome
from sidecar.tools.text import clean, clip

START_S = 30.0
MAX_PAGES = 100
MAX_TOOLS = 1000

Notice = Callable[[str, str], None]
"""Tells people something: a stable word, and a sentence."""

_FORGOTTEN = re.compile(r"session (?:terminated|not found|id)|no valid session", re.IGNORECASE)
"""What servers over HTTP answer that were restarted and know our session no more: they did nothing."""
_REFUSED = "Server returned an error response"
"""What the `mcp` package says of any other HTTP error."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server describes it. `reads_only` is the server's own word."""

    name: str
    description: str
    schema: JsonObject
    reads_only: bool


@dataclass(slots=True)
class _Connection:
    """One attempt to have the server, from its start to its end. `settled` is set when it is up or has failed; it is
    up while `client` is set. `gone` asks its owner to end it; `starting` is cancelled to end an attempt."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    client: Any = None
    calls: TaskGroup | None = None
    failure: str | None = None


class Server:
    """`run` is the owner's task; everything else may be called from any task."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        environment: Mapping[str, str],
        cwd: str | None,
        notice: Notice,
        ask: Ask | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        self.name = name
        self._hidden = hidden or Hidden()
        self._ask = ask
        self.settings = settings
        self.listed: tuple[Listed, ...] = ()
        self._environment = environment
        self._cwd = cwd
        self._notice = notice
        self._command = [os.path.expanduser(settings.command or ""), *settings.args]
        self._first = self._connection = _Connection()
        self._wanted = anyio.Event()
        self._stopped = False
        self._listing = anyio.Event()
        self._listing.set()

    # ------------------------------------------------------------ the owner

    async def run(self) -> None:
        """Starts the server, and again whenever `connection` asks for it. Ends after `stop`."""
        while not self._stopped:
            connection = self._connection
            try:
                await self._live(connection)
            finally:
                connection.client = connection.calls = None
                connection.gone.set()
                connection.settled.set()
                self._listing.set()
            while self._connection is connection and not self._stopped:
                self._wanted = anyio.Event()
                await self._wanted.wait()

    def stop(self) -> None:
        self._stopped = True
        if not self._connection.settled.is_set():
            self._connection.starting.cancel()
        self._connection.gone.set()
        self._wanted.set()

    async def _live(self, connection: _Connection) -> None:
        """One connection, from start to end. Failures are told by a notice and kept for the calls that wait."""
        was_up = False
        try:
            _check_told(self.settings)
            with connection.starting as scope, logs.hiding(self._hidden.texts):
                scope.deadline = anyio.current_time() + START_S
                async with self._connected(connection) as client:
                    self.listed = await self._list(client)
                    scope.deadline = math.inf
                    async with anyio.create_task_group() as calls:
                        connection.client, connection.calls = client, calls
                        was_up = True
                        connection.settled.set()
                        calls.start_soon(self._subscribe, client, connection)
                        await connection.gone.wait()
                        connection.client = None
                        calls.cancel_scope.cancel()
            if scope.cancelled_caught:
                connection.failure = f"it did not start within {START_S:.0f} s"
        except Exception as error:  # whatever a foreign program and its protocol can do wrong
            connection.failure = self._hidden.without(_why(error))
            log.warning("an MCP server failed", server=self.name, error=type(error).__name__, why=connection.failure)
        if self._stopped:
            return
        if not was_up:
            why = connection.failure or "it ended while starting"
            connection.failure = why
            self._notice("mcp_server_failed", f"The MCP server {self.name} could not be started: {why}.")
        else:
            connection.failure = connection.failure or "it ended"
            self._notice("mcp_server_died", f"The MCP server {self.name} ended; the next call starts it again.")

    @asynccontextmanager
    async def _connected(self, connection: _Connection) -> AsyncIterator[Any]:
        """A client that has shaken hands. The imports are heavy and are done in a thread."""
        client_module = await to_thread.run_sync(import_module, "mcp.client.client")

        async def on_message(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                self._relist(connection)

        async with self._transport(connection) as transport:
            client = client_module.Client(
                transport,
                message_handler=on_message,
                cache=None,
                client_info=_client_info(),
                elicitation_callback=None if self._ask is None else await elicitation.callback(self._ask),
            )
            async with client:
                yield client

    @asynccontextmanager
    async def _transport(self, connection: _Connection) -> AsyncIterator[Any]:
        settings = self.settings
        if settings.url is not None:
            http = await to_thread.run_sync(import_module, "mcp.client.streamable_http")
            utilities = await to_thread.run_sync(import_module, "mcp.shared._httpx_utils")
            async with utilities.create_mcp_http_client(headers=dict(settings.headers)) as http_client:
                yield http.streamable_http_client(settings.url, http_client=http_client)
            return
        environment = for_servers(self._environment, settings.env)
        cwd = settings.cwd or self._cwd
        yield stdio_transport(self.name, self._command, environment, cwd, connection.gone)

    async def _subscribe(self, client: Any, connection: _Connection) -> None:
        """Servers of the newer protocol tell of changed tools only to those who listen."""
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._relist(connection)
        except Exception as error:  # older servers cannot, and send notifications instead
            log.debug("an MCP server takes no subscription", server=self.name, error=type(error).__name__)

    def _relist(self, connection: _Connection) -> None:
        if connection.calls is not None and self._listing.is_set():
            self._listing = anyio.Event()
            connection.calls.start_soon(self._refresh, connection, self._listing)

    async def _refresh(self, connection: _Connection, done: anyio.Event) -> None:
        try:
            with anyio.move_on_after(START_S):
                self.listed = await self._list(connection.client)
        except Exception as error:  # the old list stays
            log.warning("an MCP server's tools could not be listed", server=self.name, error=type(error).__name__)
        finally:
            done.set()

    async def _list(self, client: Any) -> tuple[Listed, ...]:
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [_listed(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                break
        return tuple(found[:MAX_TOOLS])

    # ------------------------------------------------------------ its users

    async def settled(self) -> None:
        """Returns when the first attempt to start it is over and its tools are as it last told."""
        await self._first.settled.wait()
        await self._listing.wait()

    def connection(self) -> _Connection:
        """The connection there is, or a new attempt if that one is over."""
        if self._connection.gone.is_set() and not self._stopped:
            self._connection = _Connection()
            self._wanted.set()
        return self._connection

    async def call(self, tool: str, arguments: JsonObject) -> ToolOutcome:
        """Calls one of its tools, starting it first if it is down. Every failure is an outcome. On cancellation the
        server is told, and not waited for."""
        outcome = await self._call_once(tool, arguments)
        if outcome is None:  # it had forgotten us and did nothing: once more, with a new session
            outcome = await self._call_once(tool, arguments)
        return outcome or ToolOutcome.error(f"The MCP server {self.name} does not keep its session.")

    async def _call_once(self, tool: str, arguments: JsonObject) -> ToolOutcome | None:
        await anyio.lowlevel.checkpoint()  # lets the end of a server that died since the last call be seen first
        connection = self.connection()
        await connection.settled.wait()
        if connection.client is None or connection.calls is None:
            why = connection.failure or "it ended"
            return ToolOutcome.error(f"The MCP server {self.name} is not running: {why}. The next call tries again.")
        call = _Call(connection.client, tool, arguments)
        connection.calls.start_soon(call.run)
        try:
            with anyio.move_on_after(self.settings.timeout_s):
                await call.done.wait()
        finally:
            call.scope.cancel()
        return await self._read(connection, call)

    async def _read(self, connection: _Connection, call: _Call) -> ToolOutcome | None:
        if call.result is not None:
            return await to_thread.run_sync(outcome_of, call.result)
        if call.error is None and not call.done.is_set():
            seconds = f"{self.settings.timeout_s:g} s"
            return ToolOutcome.error(
                f"{call.tool} of {self.name} did not answer within {seconds}; it may have had effects."
            )
        if call.error is not None and self.settings.url is not None and _FORGOTTEN.search(_said(call.error)):
            connection.gone.set()
            return None
        if call.error is None or _is_lost(call.error):
            connection.gone.set()
            return ToolOutcome.error(
                f"The MCP server {self.name} ended during the call, which may have had effects. The next call starts it"
                " again."
            )
        why = self._hidden.without(_why(call.error))
        return ToolOutcome.error(f"{call.tool} of {self.name} failed: {why}.")


class _Call:
    """One call in the connection's task group; `done` without result and error means that the connection ended."""

    def __init__(self, client: Any, tool: str, arguments: JsonObject) -> None:
        self.tool = tool
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()
        self.result: Any = None
        self.error: Exception | None = None
        self._client = client
        self._arguments = arguments

    async def run(self) -> None:
        try:
            with self.scope:
                self.result = await self._client.call_tool(self.tool, self._arguments)
        except Exception as error:  # told to the model by the one who waits
            self.error = error
        finally:
            self.done.set()


def _listed(tool: Any) -> Listed:
    annotations = tool.annotations
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {"type": "object"}
    reads_only = annotations is not None and annotations.read_only_hint is True
    return Listed(tool.name, clip(clean(tool.description or ""), 4000), schema, reads_only)


def _client_info() -> Any:
    from protocol.version import VERSION

    return import_module("mcp_types").Implementation(name="sidecar", version=VERSION)


def _is_lost(error: Exception) -> bool:
    """Whether the connection is of no use any more."""
    code = getattr(getattr(error, "error", None), "code", None)
    lost = import_module("mcp_types").CONNECTION_CLOSED
    return code == lost or _said(error) == _REFUSED or isinstance(error, anyio.ClosedResourceError)


def _said(error: BaseException) -> str:
    """The server's own words in an error of the protocol."""
    said = getattr(getattr(error, "error", None), "message", None)
    return said if isinstance(said, str) else ""


class _NotTold(Exception):
    """A value of the server's settings is known to the host only; the text names it and the way to tell it."""


def _check_told(settings: McpServer) -> None:
    places = ["args"] * (NOT_STORED in settings.args) + ["url"] * (settings.url == NOT_STORED)
    for key, entries in (("env", settings.env), ("headers", settings.headers)):
        places += [f"{key}.{name}" for name, value in entries.items() if value == NOT_STORED]
    if places:
        raise _NotTold(
            f"the secret in its {', '.join(places)} is not kept in the log and has to be given again, "
            "in the `config` of agent.session.resume or agent.session.configure"
        )


def _why(error: BaseException) -> str:
    """In words, what went wrong; of foreign exceptions only what the server itself said."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if said := _said(error):
        return clip(clean(said), 500).rstrip(".")
    if isinstance(error, _NotTold):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "its command was not found"
    if isinstance(error, OSError):
        return os.strerror(error.errno).lower() if error.errno else "it cannot be reached"
    if type(error).__name__ in ("ConnectError", "ConnectTimeout"):
        return "it cannot be reached"
    return "it does not answer as an MCP server should"
