"""Simulated time: an event loop whose clock jumps to the next timer when nothing else is left to do.

Everything that waits with anyio waits in it at no cost, in the right order, the same in every run.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is left that could ever happen."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for the system: where the loop would sleep, time moves on."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Deadlock("everyone waits for someone else")
            self.now += max(0.0, timeout)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and counts simulated seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs `main` to its end in simulated time. Raises `Deadlock` where it would wait for ever."""
    return anyio.run(main, backend="asyncio", backend_options={"loop_factory": SimulatedLoop})
