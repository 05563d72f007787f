"""Where every call of a host arrives: `system.*` and cancels are answered here, the rest goes to the application.

While the application is still being imported, all other calls are held, bounded by what each connection may have
open, and then started in the order in which they came.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import anyio

from protocol.version import VERSION
from sidecar import logs
from sidecar.errors import Fault
from sidecar.rpc.calls import MAX_OPEN_CALLS, Call
from sidecar.rpc.handshake import check_initialize, check_shutdown, initialize_result
from sidecar.rpc.peer import Connection
from sidecar.rpc.port import Application, Peer, ShutdownMode

CANCEL_METHODS = ("$/cancel_request", "$/cancelRequest")
_STARTED = time.monotonic()
_OVERLOADED = Fault(
    "overloaded",
    f"This connection has {MAX_OPEN_CALLS} calls open",
    hint="wait for an answer, then send it again",
)

log = logs.get(__name__)


class Runner(Protocol):
    """Runs one call of the application's methods and answers it, whatever happens."""

    async def run(self, call: Call) -> None: ...


class Gate:
    """`start` runs a task of its own for a call or a hook; `end` is told of `system.shutdown`."""

    def __init__(self, start: Callable[..., None], end: Callable[[ShutdownMode, Call], None]) -> None:
        self._start = start
        self._end = end
        self._application: Application | None = None
        self._runner: Runner | None = None
        self._refusal: Fault | None = None
        self._held: list[Call] = []
        self._met: set[str] = set()
        self.called = anyio.Event()
        self._here = {
            "system.ping": self._ping,
            "system.initialize": self._initialize,
            "system.shutdown": self._shutdown,
            CANCEL_METHODS[0]: self._cancel,
            CANCEL_METHODS[1]: self._cancel,
        }

    @property
    def is_holding(self) -> bool:
        """Whether calls wait for the application."""
        return any(not call.answered for call in self._held)

    def accept(self, call: Call, connection: Connection) -> None:
        self.called.set()
        here = self._here.get(call.method)
        if here is not None:
            try:
                here(call, connection)
            except Fault as fault:
                call.fail(fault)
            except Exception as error:
                log.error("a call failed", method=call.method, peer=connection.id, exc_info=error)
                call.fail(Fault("internal", "An internal error happened", hint="the daemon's log has the details"))
        elif connection.calls.are_too_many:
            call.fail(_OVERLOADED)
        elif self._refusal is not None:
            call.fail(self._refusal)
        elif self._runner is not None:
            self._start(self._runner.run, call)
        else:
            self._held.append(call)

    async def open(self, application: Application, runner: Runner, connections: Iterable[Connection]) -> None:
        """The application is there: it meets the peers, then gets the calls that were held."""
        self._application = application
        for connection in connections:
            await self.introduce(connection)
        self._runner = runner
        held, self._held = self._held, []
        for call in held:
            if not call.answered:
                self._start(runner.run, call)

    def refuse(self, fault: Fault) -> None:
        """From now on, and for what is held, nothing but this."""
        self._refusal = self._refusal or fault
        held, self._held = self._held, []
        for call in held:
            call.fail(fault)

    async def introduce(self, connection: Connection) -> None:
        """Tells the application of a peer that was admitted, once, and of its handshake, each time."""
        if self._application is None or connection.closed or not connection.intake.admitted:
            return
        if connection.id not in self._met:
            self._met.add(connection.id)
            await self._tell("peer_connected", self._application.peer_connected, connection)
        if connection.capabilities.initialized:
            await self._tell("initialized", self._application.initialized, connection)

    async def gone(self, peer: Peer) -> None:
        if self._application is not None and peer.id in self._met:
            self._met.discard(peer.id)
            await self._tell("peer_gone", self._application.peer_gone, peer)

    async def _tell(self, name: str, hook: Callable[[Peer], Any], peer: Peer) -> None:
        try:
            await hook(peer)
        except Exception as error:
            log.error("a hook of the application failed", hook=name, peer=peer.id, exc_info=error)

    # ------------------------------------------------------------ answered here

    def _ping(self, call: Call, connection: Connection) -> None:
        counts = self._application.ping() if self._application is not None else {"sessions": 0, "turns_running": 0}
        call.succeed({"ok": True, "version": VERSION, "uptime_s": round(time.monotonic() - _STARTED, 3), **counts})

    def _initialize(self, call: Call, connection: Connection) -> None:
        connection.client, connection.capabilities = check_initialize(call.params)
        call.succeed(initialize_result(connection.capabilities, daemon_version=VERSION, pid=os.getpid()))
        self._start(self.introduce, connection)

    def _shutdown(self, call: Call, connection: Connection) -> None:
        self._end(check_shutdown(call.params), call)

    def _cancel(self, call: Call, connection: Connection) -> None:
        connection.calls.cancel(call.params.get("id"))
        call.succeed(None)
