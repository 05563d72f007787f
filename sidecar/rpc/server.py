"""The daemon's life: it listens, answers, loads the application meanwhile, serves, and ends.

listen -> system.ready -> connections (read | write) -> gate -> application
                                 end: shutdown -> last answers -> outboxes written -> exit code
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from protocol.version import PROTOCOL_VERSION
from sidecar import logs
from sidecar.errors import Fault
from sidecar.rpc.calls import Call
from sidecar.rpc.connections import Connections
from sidecar.rpc.doors import Doors
from sidecar.rpc.ends import end_on_signals, exit_within
from sidecar.rpc.gate import Gate
from sidecar.rpc.hosting import Hosting
from sidecar.rpc.port import Application, ListenSpec, ShutdownMode
from sidecar.rpc.stdio import StdioTransport, wait_for_parent_death
from sidecar.rpc.transport import SocketTransport

if TYPE_CHECKING:
    from sidecar.rpc.intake import Guard
    from sidecar.rpc.peer import Connection
    from sidecar.rpc.sockets import Listener

log = logs.get(__name__)

END_S = 4.7
"""The process is gone this long after it was told to end, whatever hangs. The rest are parts of it."""

LOAD_S = 2.0
HELD_S = 0.3
ANSWERS_S = 0.3
CLOSE_S = 1.2
"""For the last answers, the outboxes and the end of the lifespan together; a graceful shutdown gets the rest."""


async def serve(listen: ListenSpec, load: Callable[[], Application]) -> int:
    """Runs until the daemon has ended; its exit code. `load` is called in a thread. Raises `StartError`."""
    return await Daemon(listen, load).run()


class Daemon:
    def __init__(self, listen: ListenSpec, load: Callable[[], Application]) -> None:
        self._parent = os.getppid()
        self._listen = listen
        self._tasks = anyio.create_task_group()
        self._gate = Gate(self._start, self._shut_down_by)
        self._connections = Connections(self._gate)
        self._hosting = Hosting(load, self._gate, self._connections)
        self._doors = Doors()
        self._stdio: Connection | None = None
        self._ending = anyio.Event()
        self._mode: ShutdownMode = "graceful"
        self._farewells: list[Call] = []
        self._exit_code = 0

    async def run(self) -> int:
        if self._listen.sockets or self._listen.tcp:
            await to_thread.run_sync(self._doors.open, self._listen)
        loop = asyncio.get_running_loop()
        end_on_signals(partial(loop.call_soon_threadsafe, self._end))
        try:
            async with self._tasks as tasks:
                for door in self._doors.listeners:
                    tasks.start_soon(self._accept, door)
                if self._listen.stdio is not None:
                    tasks.start_soon(self._serve_stdio, StdioTransport(*self._listen.stdio))
                tasks.start_soon(self._serve_application)
                await self._ending.wait()
                await self._finish(anyio.current_time() + END_S - CLOSE_S)
                tasks.cancel_scope.cancel()
        finally:
            self._doors.close()
        return self._exit_code

    def _start(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._tasks.start_soon(function, *arguments)

    async def _serve_application(self) -> None:
        self._tasks.start_soon(self._tell_ready)
        if not await self._hosting.run():
            self._exit_code = 1
            self._end()

    async def _tell_ready(self) -> None:
        await self._hosting.loaded.wait()
        self._doors.tell_ready()

    # ------------------------------------------------------------ connections

    async def _serve_stdio(self, transport: StdioTransport) -> None:
        """What is there to read at the start tells the framing in which `system.ready` is written."""
        self._tasks.start_soon(self._watch_parent)
        first = await transport.receive() if transport.has_input() else b""
        async with self._connections.open(transport) as peer:
            self._stdio = peer
            listening = [{"transport": "stdio"}, *self._doors.described()]
            peer.notify("system.ready", {"pid": os.getpid(), "protocol_version": PROTOCOL_VERSION, "listen": listening})
            await peer.intake.read(first)
            if not self._doors.listeners:
                self._end()
                await anyio.sleep_forever()

    async def _watch_parent(self) -> None:
        await wait_for_parent_death(self._parent)
        if self._stdio is not None:
            log.info("the process that started the daemon is gone")
            self._stdio.close()

    async def _accept(self, door: Listener) -> None:
        while True:
            await anyio.wait_readable(door.listening)
            try:
                connected = door.accept()
            except OSError as error:
                log.error("a connection cannot be accepted", address=door.address, exc_info=error)
                await anyio.sleep(0.1)
                continue
            if connected is None:
                continue
            if self._connections.is_full or self._ending.is_set():
                log.warning("a connection was refused, there are too many", address=door.address)
                connected.close()
                continue
            guard = self._doors.guard if door.transport == "tcp" else None
            self._tasks.start_soon(self._serve_socket, SocketTransport(connected, door.transport), guard)

    async def _serve_socket(self, transport: SocketTransport, guard: Guard | None) -> None:
        async with self._connections.open(transport, guard) as peer:
            await peer.intake.read()

    # ------------------------------------------------------------ the end

    def _shut_down_by(self, mode: ShutdownMode, call: Call) -> None:
        """`system.shutdown`: it is answered when the application has shut down."""
        self._farewells.append(call)
        if mode == "now":
            self._mode = mode
            self._hosting.hurry()
        self._end()

    def _end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            exit_within(END_S, self._exit_code)

    async def _finish(self, deadline: float) -> None:
        """Turns end, their events and the last answers are written, the application leaves."""
        if self._gate.is_holding and self._mode == "graceful":
            await self._serve_held()
        self._gate.refuse(Fault("overloaded", "The daemon is ending", hint="start it again"))
        self._connections.release()
        await self._hosting.shut_down(self._mode, deadline)
        for call in self._farewells:
            call.succeed({})
        with anyio.move_on_after(ANSWERS_S):
            await self._connections.wait_idle()
        self._connections.cancel_calls()
        with anyio.move_on_after(ANSWERS_S):
            await self._connections.flush()
        self._hosting.leave()
        with anyio.move_on_after(ANSWERS_S):
            await self._hosting.left.wait()

    async def _serve_held(self) -> None:
        """A host that wrote its calls and left at once is served as one that stayed."""
        with anyio.move_on_after(LOAD_S):
            await self._hosting.loaded.wait()
            with anyio.move_on_after(HELD_S):
                await self._connections.wait_idle()
