"""Background work of one session: it outlives turns, and ends with the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import structlog
from anyio.abc import TaskGroup

from sidecar import ids
from sidecar.errors import Fault

_log = structlog.get_logger("sidecar.sessions")


class Tasks:
    """Runs in the daemon's task group; a failure is logged and never ends anything else."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()
        self._stopping = False

    def spawn(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        """Starts `run`; does nothing once stopping began."""
        if not self._stopping:
            scope = anyio.CancelScope()
            self._scopes.add(scope)
            self._group.start_soon(self._guarded, run, name, scope, name=name)

    @property
    def busy(self) -> bool:
        return bool(self._scopes)

    async def stop(self, within_s: float = 3.0) -> None:
        """Cancels all of it and waits for its end, not longer than `within_s`."""
        self._stopping = True
        for scope in tuple(self._scopes):
            scope.cancel()
        with anyio.move_on_after(within_s, shield=True):
            while self._scopes:
                await self._ended.wait()
                self._ended = anyio.Event()

    async def _guarded(self, run: Callable[[], Awaitable[None]], name: str, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await run()
        except Fault as fault:
            _log.warning("task_failed", task=name, reason=fault.reason)
        except Exception:
            _log.exception("task_failed", task=name, reference=ids.new("err"))
        finally:
            self._scopes.discard(scope)
            self._ended.set()
