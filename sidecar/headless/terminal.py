"""Progress for a person at a terminal, on stderr. Nothing of it is part of the answer."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from protocol import events as e

_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on instead of showing it, and what turns the order of what it shows."""


def shown(text: str) -> str:
    """Text of a model or a tool as a terminal shows it: nothing in it moves the cursor, or hides or reorders the rest.
    Line ends and tabs stay."""
    return _ACTS.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


class Progress:
    """One short line per thing that happens; silent unless `stream` is a terminal."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._on = stream.isatty()

    def show(self, event: e.AnyEvent) -> None:
        line = _line(event) if self._on else None
        if line is not None:
            print(f"· {' '.join(shown(line).split())}", file=self._stream, flush=True)


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
