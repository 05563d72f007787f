"""Keeps what a server was told in confidence out of what is said about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.logs import HIDDEN

MIN_CHARACTERS = 6
"""Shorter texts are left alone: they would hide words."""


class Hidden:
    """The secrets of one server."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {s for s in secrets if len(s) >= MIN_CHARACTERS}
        self._secrets = tuple(sorted(found, key=len, reverse=True))

    def without(self, text: str) -> str:
        """The text with every secret replaced."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text
