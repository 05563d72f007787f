"""Base64 in slices: the same as the standard library's, whatever the size."""

from __future__ import annotations

import base64
import os

import pytest

from sidecar.base64text import decode, encode

SIZES = [0, 1, 2, 3, (48 << 10) - 1, 48 << 10, (48 << 10) + 1, 200_001]


@pytest.mark.parametrize("size", SIZES)
def test_both_ways(size: int) -> None:
    raw = os.urandom(size)
    text = base64.b64encode(raw).decode()
    assert encode(raw) == text
    assert decode(text) == raw


LONG = "QUJD" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        "QUJ",
        "QU=D",
        "QUJD\n",
        "QUJ D",
        "QÜJD",
        "QUI=QUJD",
        "====",
        LONG + "QQ",
        LONG[:65_534] + "==" + LONG,
        LONG + "-_-_",
    ],
    ids=range(10),
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)
