"""What a fact must not carry into a prompt: markup that could end our block, and where the user's home is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

LOCAL_HOME: Final = "<local-home>"

_ANY_HOME: Final = r"/(?:home|Users)/[^/\s\"'`:;,<>()&|*?]+|[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s\"'`:;,<>()&|*?]+"
"""Home directories by their usual places: facts may come from another machine."""

_NOT_BEFORE: Final = r"(?<![\w./\\-])"
_NOT_AFTER: Final = r"(?![\w-]|\.\w)"


def escape(text: str) -> str:
    """`&`, `<` and `>` as entities: nothing in the text can open or close an element."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def hide_homes(text: str, homes: Iterable[str]) -> str:
    """The text with each of `homes`, and every directory that looks like one, replaced by `<local-home>`.
    Only whole path components count: `/home/ann` is not part of `/home/anna`."""
    return _pattern(tuple(sorted({h.rstrip("/\\") for h in homes if len(h.rstrip("/\\")) > 1}))).sub(LOCAL_HOME, text)


def for_prompt(text: str, homes: Iterable[str]) -> str:
    """Escaped, and home paths hidden: the placeholder is the only markup in the result."""
    return hide_homes(escape(text), map(escape, homes))


@lru_cache(maxsize=16)
def _pattern(homes: tuple[str, ...]) -> re.Pattern[str]:
    known = [re.escape(h) for h in sorted(homes, key=len, reverse=True)]
    return re.compile(f"{_NOT_BEFORE}(?:{'|'.join([*known, _ANY_HOME])}){_NOT_AFTER}")
