"""A summary without a model: who said what, in short, newest in most detail. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.messages import ImagePart, Message
from record_store.fold import Entry
from sidecar.compaction import regions
from sidecar.compaction.sizes import Sizes, cut_text
from sidecar.compaction.summary_prompt import summary_body

MAX_WINDOW_RATIO: Final = 0.05
"""An excerpt is at most this part of the window."""

LINE_CHARS: Final = 240
THIN_LINE_CHARS: Final = 60
CHARS_PER_TOKEN: Final = 3
"""First guess; the finished text is measured."""

HEADER: Final = "No summary could be written; these are excerpts of the messages, oldest first."


def excerpt(entries: Sequence[Entry], window: int, sizes: Sizes) -> str:
    """Role and a short excerpt per message, in at most 5 % of the window.

    The oldest lines are thinned first, then dropped (and counted). An earlier summary keeps up to half of the room.
    """
    budget = max(1, int(window * MAX_WINDOW_RATIO))
    earlier = next((summary_body(e.message.text) for e in entries if regions.is_summary(e.message)), "")
    earlier = cut_text(earlier, budget // 2, sizes, "start")
    messages = [e.message for e in entries if not regions.is_made_by_compaction(e.message)]
    room = budget * CHARS_PER_TOKEN
    text = ""
    for _ in range(6):
        text = _compose(earlier, _lines(messages, room - len(earlier)))
        tokens = sizes.text(text)
        if tokens <= budget:
            return text
        room = int(room * budget / tokens * 0.95)
    return cut_text(text, budget, sizes, "end")


def _compose(earlier: str, lines: Sequence[str]) -> str:
    parts = [HEADER]
    if earlier:
        parts.append(f"From the summary before:\n{earlier}")
    parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _lines(messages: Sequence[Message], room: int) -> list[str]:
    """At most `room` code points of lines: from the newest backwards in full until half of it is used, then thin."""
    lines: list[str] = []
    used = 0
    for message in reversed(messages):
        line = _line(message, LINE_CHARS if used < room // 2 else THIN_LINE_CHARS)
        if used + len(line) + 1 > room:
            break
        lines.append(line)
        used += len(line) + 1
    left_out = len(messages) - len(lines)
    if left_out:
        lines.append(f"({left_out} earlier messages left out)")
    return lines[::-1]


def _line(message: Message, chars: int) -> str:
    text = " ".join(message.text[: 4 * chars].split())
    if len(text) > chars:
        text = text[: chars - 1] + "…"
    calls = ", ".join(f"{call.name}({call.arguments[:chars]})" for call in message.tool_calls or ())
    images = sum(isinstance(part, ImagePart) for part in message.content)
    who = message.role if message.role != "tool" else f"tool {message.name or ''}".rstrip()
    what = [text, calls and f"calls {calls}", f"[{images} images]" if images else ""]
    return f"- {who}: {'; '.join(piece for piece in what if piece)}"
