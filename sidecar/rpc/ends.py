"""What ends the daemon from outside: signals; and the way out when something hangs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

EXIT_INTERRUPTED = 130
_ENDING = (signal.SIGTERM, signal.SIGINT)


def exit_quietly_on_signals() -> None:
    """For the time before anything was started that would have to end."""
    for number in _ENDING:
        signal.signal(number, lambda *_: os._exit(0))


def end_on_signals(end: Callable[[], object]) -> None:
    """Calls `end` for the first SIGTERM or SIGINT; a SIGINT after that ends the process at once.

    `end` runs between two instructions of the main thread. Plain handlers, because they work on every platform, and
    still do when the loop is stuck.
    """
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if seen and number == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)
        seen.append(number)
        end()

    for number in _ENDING:
        signal.signal(number, handle)


def exit_within(seconds: float, code: int) -> None:
    """Ends the process then, however stuck its loop or its threads are."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
