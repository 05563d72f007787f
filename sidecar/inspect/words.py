"""Figures as a reader wants them, and text that is safe in HTML. Pure."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

from sidecar.inspect.report import Compaction

_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def escaped(text: str) -> str:
    """For element text and quoted attributes; control characters that HTML does not allow become U+FFFD."""
    return html.escape(_INVISIBLE.sub("\ufffd", text), quote=True)


def isolated(text: str) -> str:
    """Text of the log inside a sentence of ours: its direction marks end with it."""
    return f"<bdi>{escaped(text)}</bdi>"


def short(value: float) -> str:
    """1234 -> `1.2k`, 47375265 -> `47.4M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            return (f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}".removesuffix(".0")) + unit
    return f"{value:.0f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "–"


def moment(ms: int) -> str:
    """UTC to the minute; a dash for a time that is none."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M") if ms > 0 else "–"
    except (OverflowError, OSError, ValueError):
        return "–"


def duration(ms: int) -> str:
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def outcome_words(c: Compaction) -> str:
    if c.outcome == "landed":
        return "landed" if c.summary_kind != "excerpt" else "landed as an excerpt"
    if c.outcome == "open":
        return "still running when the log ended"
    return f"did not land ({c.reason or 'no reason recorded'})"
