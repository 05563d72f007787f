"""Blocking calls off the event loop, with threads of their own: a slow disk must not starve others of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_THREADS = 8
"""Calls at the same time; more wait their turn."""

_limiter: RunVar[CapacityLimiter] = RunVar("record_store_limiter")


async def blocking(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Runs the call in a thread. Cancelling waits for its end, so that nothing is half done behind one's back."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(call, *args, limiter=limiter)
