"""Names of MCP tools that every provider takes, and that stay the same from run to run. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

PREFIX = "mcp__"
MAX_LENGTH = 64
"""The shortest limit of the providers."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def prefix_of(server: str) -> str:
    """What the names of all tools of a server begin with, where they were not shortened."""
    return f"{PREFIX}{_ILLEGAL.sub('_', server)}__"


def names_of(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name for each (server, tool): `mcp__<server>__<tool>`, characters that providers refuse as `_`, cut at
    `MAX_LENGTH`. Where two come out alike, the one that needed no change keeps the name (or the first by order of
    server and tool), the others, and those that were cut, end in a hash of the full name."""
    wanted = sorted(set(tools), key=lambda t: (_plain(t) != f"{PREFIX}{t[0]}__{t[1]}", t))
    taken: set[str] = set()
    out: dict[tuple[str, str], str] = {}
    for tool in wanted:
        name = _plain(tool)
        if len(name) > MAX_LENGTH or name in taken:
            name = _hashed(name, tool)
        taken.add(name)
        out[tool] = name
    return out


def _plain(tool: tuple[str, str]) -> str:
    return prefix_of(tool[0]) + _ILLEGAL.sub("_", tool[1])


def _hashed(name: str, tool: tuple[str, str]) -> str:
    digest = hashlib.sha256("\0".join(tool).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_LENGTH - 9]}_{digest}"
