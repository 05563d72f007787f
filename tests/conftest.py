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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deadline(seconds): how long a test may take whose length the caller chooses")


@pytest.fixture(autouse=True)
def deadline(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends a test that hangs, where the system has alarms."""
    marker = request.node.get_closest_marker("deadline")
    seconds = marker.args[0] if marker is not None else DEADLINE_S
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def too_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test was not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
