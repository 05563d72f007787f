"""Keeps what a server was told in confidence out of what is said about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.logs import HIDDEN, MIN_SECRET


class Hidden:
    """The secrets of one server, without those that are too short to be told from words. `texts`: the longest first."""

    __slots__ = ("texts",)

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.texts = tuple(sorted({s for s in secrets if len(s) >= MIN_SECRET}, key=len, reverse=True))

    def without(self, text: str) -> str:
        """The text with every secret replaced."""
        for secret in self.texts:
            text = text.replace(secret, HIDDEN)
        return text
