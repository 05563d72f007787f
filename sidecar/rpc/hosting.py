"""The application from its import to the end of its lifespan, beside a loop that already answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from sidecar import logs
from sidecar.errors import Fault
from sidecar.rpc.connections import Connections
from sidecar.rpc.gate import Gate
from sidecar.rpc.port import Application, ShutdownMode

if TYPE_CHECKING:
    from sidecar.rpc.dispatch import Dispatcher

log = logs.get(__name__)

QUIET_S = 0.02
"""The import begins when the first call was answered, or when none came for so long."""

SWITCH_S = 0.0005
"""How long the importing thread may keep the interpreter from the loop; the interpreter's own value is ten times it."""

NOW_S = 0.5
"""What an application gets to bring its records to disk when there is no time left."""


class Hosting:
    """`loaded` is set when calls reach the application, `left` when nothing of it runs any more, however it came."""

    def __init__(self, load: Callable[[], Application], gate: Gate, connections: Connections) -> None:
        self.loaded = anyio.Event()
        self.left = anyio.Event()
        self._load = load
        self._gate = gate
        self._connections = connections
        self._application: Application | None = None
        self._leave = anyio.Event()
        self._grace = anyio.CancelScope()

    async def run(self) -> bool:
        """Loads it and keeps its lifespan open until `leave`; whether all went well. A failure is told to all."""
        try:
            await self._first_answer()
            application, dispatcher = await to_thread.run_sync(self._import)
            async with application.lifespan():
                self._connections.apply(application.limits)
                await self._gate.open(application, dispatcher(application.methods), self._connections)
                self._application = application
                self.loaded.set()
                await self._leave.wait()
        except Fault as fault:
            logs.tell(fault.message + (f"; {fault.hint}" if fault.hint else ""))
            self._gate.refuse(fault)
            return False
        except Exception as error:
            log.error("the application failed", exc_info=error)
            self._gate.refuse(Fault("internal", "The daemon cannot go on", hint="its log has the details"))
            return False
        finally:
            self.left.set()
        return True

    async def shut_down(self, mode: ShutdownMode, deadline: float) -> None:
        """Gracefully until the deadline or `hurry`, then or at once with `now`."""
        if self._application is None:
            return
        if mode == "graceful" and not self._grace.cancel_called:
            self._grace.deadline = deadline
            with self._grace:
                await self._call_shutdown(self._application, "graceful")
                return
        with anyio.move_on_after(NOW_S):
            await self._call_shutdown(self._application, "now")

    def hurry(self) -> None:
        """What is left of a graceful shutdown is cut short."""
        self._grace.cancel()

    def leave(self) -> None:
        self._leave.set()

    async def _call_shutdown(self, application: Application, mode: ShutdownMode) -> None:
        try:
            await application.shutdown(mode)
        except Exception as error:
            log.error("the application's shutdown failed", mode=mode, exc_info=error)

    async def _first_answer(self) -> None:
        """The interpreter belongs to the first reply: nothing more is imported before that is written."""
        with anyio.move_on_after(QUIET_S):
            await self._gate.called.wait()
        with anyio.move_on_after(QUIET_S):
            await self._connections.flush()

    def _import(self) -> tuple[Application, type[Dispatcher]]:
        """In a thread."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            from sidecar.rpc.dispatch import Dispatcher

            return self._load(), Dispatcher
        finally:
            sys.setswitchinterval(before)
