"""Does a text match? Plain substrings here; patterns in a process of their own.

A pattern can take longer than the universe, and while it does, nothing else of a Python process runs. So it is tried in
a child that can be ended: the answer comes in time, or the pattern is refused.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from record_store.errors import InvalidQuery

PATTERN_TIME_S = 5.0
"""Longest time that one pattern may work, all its texts together."""

_WORKER = Path(__file__).with_name("_pattern_worker.py")


class Matcher(Protocol):
    """Which of the texts match. A context manager: leave it to free what it holds."""

    def matches(self, texts: Sequence[str]) -> list[bool]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def matcher(text: str, *, regex: bool) -> Matcher:
    """A matcher for a plain substring (case folded) or a pattern (case ignored, `^` and `$` at every line)."""
    if regex and re.escape(text) != text:
        return PatternMatcher(text)
    return PlainMatcher(text)


class PlainMatcher:
    def __init__(self, text: str) -> None:
        self._folded = text.casefold()

    def matches(self, texts: Sequence[str]) -> list[bool]:
        return [self._folded in text.casefold() for text in texts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class PatternMatcher:
    """Blocking: for threads. `InvalidQuery` when the pattern is none, or takes too long."""

    def __init__(self, pattern: str, time_s: float = PATTERN_TIME_S) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if sys.platform == "win32" else {},
        )
        self._timer = threading.Timer(time_s, self._process.kill)
        self._timer.daemon = True
        self._timer.start()
        try:
            refused = self._ask([pattern], 1)
        except BaseException:
            self._end()
            raise
        if refused != b"\1":
            self._end()
            raise InvalidQuery("grep", "not a valid pattern")

    def matches(self, texts: Sequence[str]) -> list[bool]:
        return [answer == 1 for answer in self._ask(texts, len(texts))] if texts else []

    def _ask(self, texts: Sequence[str], count: int) -> bytes:
        """Sends texts, waits for one byte for each. The child reads all of them before it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        parts = [struct.pack("<I", len(texts))]
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            parts += (struct.pack("<I", len(data)), data)
        try:
            self._process.stdin.write(b"".join(parts))
            self._process.stdin.flush()
            answer = self._process.stdout.read(count)
        except OSError:
            answer = b""
        if len(answer) != count:
            raise InvalidQuery("grep", "the pattern takes too long: use a simpler one")
        return answer

    def _end(self) -> None:
        self._timer.cancel()
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
