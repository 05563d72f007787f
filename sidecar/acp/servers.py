"""MCP servers that an editor names, as our configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from acp.schema import HttpMcpServer, McpServerStdio


def configuration(servers: Iterable[Any] | None) -> dict[str, Any]:
    """`{"mcp": {"servers": ..}}`; empty when there are none. Kinds that were not offered are left out."""
    found: dict[str, Any] = {}
    for server in servers or ():
        match server:
            case McpServerStdio():
                entry = {
                    "command": server.command,
                    "args": list(server.args),
                    "env": {e.name: e.value for e in server.env},
                }
            case HttpMcpServer():
                entry = {"url": server.url, "headers": {h.name: h.value for h in server.headers}}
            case _:
                continue
        found[_name(server.name, found)] = entry
    return {"mcp": {"servers": found}} if found else {}


def _name(name: str, taken: dict[str, Any]) -> str:
    """A name that fits into a tool's: letters, digits, `_` and `-`; unique."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "server"
    candidate, n = base, 2
    while candidate in taken:
        candidate, n = f"{base}_{n}", n + 1
    return candidate
