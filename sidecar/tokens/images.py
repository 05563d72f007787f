"""The size of an image from its first bytes, and what a model charges for it. Pure."""

from __future__ import annotations

import binascii
from math import ceil

from sidecar.tokens.rough import UNKNOWN_IMAGE

PIXELS_PER_TOKEN = 750
"""Anthropic's published price of an image: width x height / 750."""

LONGEST_EDGE = 1568
"""Providers shrink an image to about this edge before they count it."""

LEAST, MOST = 85, 1_600
"""OpenAI's flat price of a small image, and the most that Anthropic counts for one that it has shrunk."""

HEAD_BYTES = 65_536
"""As much as is looked at: a JPEG's size stands behind its embedded metadata and thumbnail."""


def image_tokens(head: bytes) -> int:
    """Tokens of the image that begins with `head`; `UNKNOWN_IMAGE` where its size cannot be read."""
    size = image_size(head)
    if size is None:
        return UNKNOWN_IMAGE
    width, height = size
    scale = min(1.0, LONGEST_EDGE / max(width, height))
    return max(LEAST, min(MOST, ceil(width * scale * height * scale / PIXELS_PER_TOKEN)))


def head_of_base64(data: str) -> bytes:
    """The first bytes of base64 text; empty if it is none."""
    text = data[: HEAD_BYTES // 3 * 4]
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, both over 0, from the first bytes of a PNG, JPEG, GIF or WebP; else None."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        size = _big(head, 16, 4), _big(head, 20, 4)
    elif head[:6] in (b"GIF87a", b"GIF89a"):
        size = _little(head, 6, 2), _little(head, 8, 2)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg(head)
    else:
        return None
    return size if min(size) > 0 else None


def _webp(head: bytes) -> tuple[int, int]:
    match head[12:16]:
        case b"VP8X":
            return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
        case b"VP8L":
            bits = _little(head, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
        case _:
            return 0, 0


def _jpeg(head: bytes) -> tuple[int, int]:
    """Walks the segments to the frame header (SOF0 to SOF15 without the tables DHT, JPG and DAC between them)."""
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            break
        marker = head[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        else:
            at += 2 + max(2, _big(head, at + 2, 2))
    return 0, 0


def _big(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")


def _little(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "little")
