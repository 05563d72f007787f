"""Identifiers: made here, and checked here when they come from outside."""

from __future__ import annotations

import re
import secrets
import time

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def is_valid(value: str) -> bool:
    """Whether an id from outside is safe as a file name and in a log."""
    return _ID.fullmatch(value) is not None


def new(prefix: str) -> str:
    """A fresh id that sorts by time: prefix, 9 digits of the time in ms (base 32), 8 random ones."""
    ms = time.time_ns() // 1_000_000
    stamp = ""
    for _ in range(9):
        ms, digit = divmod(ms, 32)
        stamp = _ALPHABET[digit] + stamp
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{prefix}_{stamp}{tail}"
