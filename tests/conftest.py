"""What holds for all tests: anyio runs on asyncio, and a test that hangs fails."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

DEADLINE_S = 240
"""Far over what any test takes; one that reaches it waits for something that never comes."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Ends a test that hangs, where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def too_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test was not over after {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
