"""Progress for a person at a terminal, on stderr. Nothing of it is part of the answer."""

from __future__ import annotations

import sys
from typing import TextIO

from protocol import events as e


class Progress:
    """One short line per thing that happens; silent unless `stream` is a terminal."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._on = stream.isatty()

    def show(self, event: e.AnyEvent) -> None:
        line = _line(event) if self._on else None
        if line is not None:
            print(f"· {line}", file=self._stream, flush=True)


def _line(event: e.AnyEvent) -> str | None:
    match event:
        case e.ToolCallStarted(name=name, arguments=arguments):
            detail = next((str(v) for v in (arguments or {}).values() if isinstance(v, str)), "")
            return f"{name} {detail[:80]}".rstrip()
        case e.ToolResult(name=name, is_error=True):
            return f"{name} failed"
        case e.RetryScheduled(reason=reason, delay_ms=delay):
            return f"{reason}, trying again in {delay / 1000:.1f} s"
        case e.CompactionStarted(pre_tokens=tokens):
            return f"compacting {tokens:,} tokens"
        case e.CompactionLanded(pre_tokens=before, post_tokens=after):
            return f"compacted {before:,} to {after:,} tokens"
        case e.CompactionFailed(reason=reason):
            return f"compaction failed: {reason}"
        case e.Notice(message=message):
            return message
        case _:
            return None
