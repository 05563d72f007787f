"""What measuring needs from a tokenizer, and what others need from measuring. Ports and frozen values only.

Counts are raw (`o200k_base`) unless a name says otherwise; a model's own factor (`Calibration.factor`) turns a raw
count into that model's tokens. The order of a caller's step: `await warm(messages that are new)`, then the plain calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from protocol.messages import Message, ToolSpec

BlobHead = Callable[[str], "bytes | None"]
"""The first bytes of a blob (64 KiB are enough) or all of it, by its SHA-256 in hex; None if it is lost."""


class Estimator(Protocol):
    """Raw token counts. Shared by all sessions of a process; called on one thread only, that of the event loop.

    Every call but `warm` is plain and takes at most a few milliseconds, whatever the text: a text too long for that
    is counted from samples until `warm` has counted all of it. A count is made once and kept in a bounded cache.
    """

    @property
    def generation(self) -> int:
        """Grows when earlier counts are void (the vocabulary is loaded now): kept sums must be made again."""
        ...

    def text_tokens(self, text: str) -> int:
        """Tokens of a bare text; 0 for an empty one."""
        ...

    def message_tokens(self, message: Message) -> int:
        """Content, signed reasoning and calls, with what a provider adds around a message. Never less than 1."""
        ...

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        """The tools as JSON: names, descriptions, schemas. 0 without tools."""
        ...

    async def warm(self, messages: Iterable[Message]) -> None:
        """Counts what is not counted yet, in a thread where it is much; then the plain calls are exact and cheap.

        While the vocabulary is not loaded it starts the load and returns at once. Can be cancelled at any point."""
        ...


class Calibration(Protocol):
    """Per model (`provider/model`): how many tokens the provider counts for one of ours."""

    def factor(self, model: str) -> float:
        """Between 0.5 and 2; 1 for a model not seen yet."""
        ...

    def observe(self, model: str, *, estimated: int, observed: int) -> None:
        """A request whose raw estimate was `estimated` was counted as `observed` prompt tokens by the provider."""
        ...

    def save(self) -> None:
        """Keeps what was learned for the next process; next to nothing when little has changed. Never raises."""
        ...
