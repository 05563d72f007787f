"""Tokens without a vocabulary. Pure."""

from __future__ import annotations

MESSAGE_OVERHEAD = 4
"""Tokens around a message: role and separators (the chat formats of OpenAI and Anthropic take 3 to 5)."""

CALL_OVERHEAD = 6
"""Tokens around a tool call besides its name and arguments."""

UNKNOWN_IMAGE = 2_000
"""Tokens of an image whose size cannot be read."""


def text_tokens(text: str) -> int:
    """A quarter token for an ASCII character, one for any other."""
    if text.isascii():
        return (len(text) + 3) // 4
    ascii_chars = len(text.encode("ascii", "ignore"))
    return (ascii_chars + 3) // 4 + len(text) - ascii_chars
