"""Sizes of images from their first bytes."""

from __future__ import annotations

import pytest

from sidecar.tokens.images import image_size, image_tokens
from sidecar.tokens.rough import UNKNOWN_IMAGE


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4) + b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + b"\x08\x06"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\xf7\0\0"


def jpeg(width: int, height: int, *, before: bytes = b"") -> bytes:
    frame = b"\xff\xc2\x00\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x03"
    tables = b"\xff\xc4\x00\x04\0\0"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + before + tables + b"\xff" + frame


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body


EXIF = b"\xff\xe1" + (40_000).to_bytes(2) + bytes(39_998)

CASES = {
    "png": png(640, 480),
    "gif": gif(640, 480),
    "jpeg": jpeg(640, 480),
    "jpeg behind a thumbnail": jpeg(640, 480, before=EXIF),
    "webp lossy": webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + (640).to_bytes(2, "little") + (480).to_bytes(2, "little")),
    "webp lossless": webp(b"VP8L", b"\x2f" + (639 | 479 << 14).to_bytes(4, "little")),
    "webp extended": webp(b"VP8X", b"\x10\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_size_is_read(name: str) -> None:
    assert image_size(CASES[name]) == (640, 480)


@pytest.mark.parametrize("name", CASES)
def test_a_cut_head_never_fails(name: str) -> None:
    head = CASES[name]
    for end in range(0, len(head), max(1, len(head) // 200)):
        size = image_size(head[:end])
        assert size is None or min(size) > 0
    assert image_size(b"not an image") is None
    assert image_size(png(0, 480)) is None


@pytest.mark.parametrize(
    ("head", "tokens"),
    [
        (png(1000, 750), 1_000),
        (png(10, 10), 85),
        (png(20_000, 20_000), 1_600),
        (png(15_680, 750), 157),
        (b"", UNKNOWN_IMAGE),
    ],
)
def test_tokens_follow_the_size_within_bounds(head: bytes, tokens: int) -> None:
    assert image_tokens(head) == tokens
