"""How large things are, and cutting text to a size. Pure: counting is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Literal, Protocol

from msgspec.structs import replace

from protocol.messages import ImagePart, Message, Part, TextPart

Side = Literal["start", "end"]
"""Which end of a text or a message stays when it is cut."""

CHARS_PER_TOKEN_AT_MOST = 16
"""A text is looked at no further than this many code points per token of the budget: longer tokens are rare, and a cut
that keeps a little less than it may is no harm."""


class Sizes(Protocol):
    """Tokens as the provider would count them. Cheap: the counts are kept per message."""

    def message(self, message: Message) -> int: ...

    def text(self, text: str) -> int: ...


class ScaledSizes:
    """Raw estimates times the model's factor, rounded up."""

    __slots__ = ("_factor", "_message", "_text")

    def __init__(self, message: Callable[[Message], int], text: Callable[[str], int], factor: float = 1.0) -> None:
        self._message = message
        self._text = text
        self._factor = factor

    def message(self, message: Message) -> int:
        return ceil(self._message(message) * self._factor)

    def text(self, text: str) -> int:
        return ceil(self._text(text) * self._factor)


def total(messages: Iterable[Message], sizes: Sizes) -> int:
    """Tokens of several messages."""
    return sum(map(sizes.message, messages))


def cut_text(text: str, budget: int, sizes: Sizes, keep: Side) -> str:
    """The longest part found of at most `budget` tokens at one end of `text`, cut between two characters.

    Empty when nothing fits. A few measurements, whatever the length.
    """
    limit = min(len(text), max(0, budget) * CHARS_PER_TOKEN_AT_MOST)
    if limit == 0:
        return ""
    low, high, length = 0, limit, limit
    tokens = sizes.text(_end(text, limit, keep))
    if tokens <= budget:
        return _end(text, limit, keep)
    for _ in range(8):
        if high - low <= 1:
            break
        length = min(max(int(length * budget / tokens), low + 1), high - 1)
        tokens = max(1, sizes.text(_end(text, length, keep)))
        if tokens > budget:
            high = length
            continue
        low = length
        if tokens >= 0.98 * budget:
            break
    return _end(text, low, keep)


def _end(text: str, length: int, keep: Side) -> str:
    if length <= 0:
        return ""
    return text[:length] if keep == "start" else text[-length:]


def cut_message(message: Message, message_id: str, budget: int, sizes: Sizes, keep: Side) -> Message | None:
    """`message` under a new id with what fits of its content at one end; None when nothing of it fits.

    A message without text becomes a placeholder that says what was there, whole or not at all. Everything else of it
    stays.
    """
    bare = replace(message, id=message_id, content=())
    if not _has_text(message):
        placeholder = replace(bare, content=_placeholder(message))
        return placeholder if placeholder.content and sizes.message(placeholder) <= budget else None
    empty = sizes.message(bare)
    room = budget - empty
    kept: list[Part] = []
    parts = _solid(message)
    for part in parts if keep == "start" else parts[::-1]:
        if isinstance(part, ImagePart):
            room -= sizes.message(replace(bare, content=(part,))) - empty
            if room < 0:
                break
            kept.append(part)
            continue
        text = cut_text(part.text, room, sizes, keep)
        if text:
            kept.append(TextPart(text))
        if len(text) < len(part.text):
            break
        room -= sizes.text(text)
    if not kept:
        return None
    return replace(bare, content=tuple(kept if keep == "start" else kept[::-1]))


def rest_of(message: Message, cut: Message) -> Message:
    """What `cut_message(message, .., keep="start")` left out, in order, as a message with the id of `message`."""
    if not _has_text(message):
        return replace(message, content=())
    parts = _solid(message)
    rest = parts[len(cut.content) :]
    whole, border = parts[len(cut.content) - 1], cut.content[-1]
    if isinstance(whole, TextPart) and isinstance(border, TextPart) and len(border.text) < len(whole.text):
        rest = (TextPart(whole.text[len(border.text) :]), *rest)
    return replace(message, content=rest)


def _solid(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.content if isinstance(part, ImagePart) or part.text)


def _has_text(message: Message) -> bool:
    return any(isinstance(part, TextPart) and part.text for part in message.content)


def _placeholder(message: Message) -> tuple[Part, ...]:
    return tuple(TextPart(f"[image left out: {p.media_type}]") for p in message.content if isinstance(p, ImagePart))[:1]
