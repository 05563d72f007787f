"""The secrets of a session's own MCP servers: kept in this process's memory, never in its log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sidecar.memory.secrets import find
from sidecar.settings import NOT_STORED, Layer, Mcp, McpServer
from sidecar.tools.environment import is_secret

_NAMED = re.compile(
    r"auth|bearer|cookie|credential|key|passw|passphrase|pwd|secret|signature|token|webhook"
    r"|(?<![A-Za-z])(?:dsn|jwt|pass|pat)(?![A-Za-z])",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z_][\w.-]{0,127})[\"']?[=:]"
    r"(?=\s{0,8}(?:[\"']|(?:Bearer|Basic|Token)\s{1,8}){0,3}(?P<value>[^\s\"'&#,;]*))",
    re.IGNORECASE,
)
"""`--token=x`, `API_KEY=x`, `?key=x`, `Authorization: x`, `{"apiKey": ..}`, wherever it stands in a text."""
_OPTION = re.compile(r"--|-.{0,6}$")
"""What is no value of the option before it; a longer word with one dash may be a token that begins so."""
_LOGIN = re.compile(r"[A-Za-z][\w+.-]{0,20}://(?!git@)(?P<user>[^\s/?#@:]{0,256})(?::(?P<password>[^\s/?#@]{0,256}))?@")

Place = tuple[str | int, ...]
"""Where a value lies: the server's name, its key, and the entry of that key if it has entries."""


class Secrets:
    """Of one session, for as long as this process has it; after a restart its host names them again.

    Secret are: every header's value; a variable, or a word of the command line, that is named like one; a text that
    assigns to such a name, or names a login; what looks like one by itself.
    """

    def __init__(self) -> None:
        self._kept: dict[Place, str] = {}

    def seal(self, layer: Layer) -> Layer:
        """The checked layer as it may be stored: `NOT_STORED` where a secret was, which is kept here. A place that
        holds `NOT_STORED` already keeps its secret."""
        servers = layer.get("mcp", {}).get("servers")
        if not servers:
            self._kept.clear()
            return layer
        before, self._kept = self._kept, {}
        sealed = {name: self._sealed(name, server, before) for name, server in servers.items()}
        return {**layer, "mcp": {**layer["mcp"], "servers": sealed}}

    def open(self, mcp: Mcp) -> Mcp:
        """With the secrets in their places; `NOT_STORED` stays where this process was not told one."""
        if not self._kept:
            return mcp
        return replace(mcp, servers={name: self._opened(name, server) for name, server in mcp.servers.items()})

    def copy(self) -> Secrets:
        """For a session that starts with the same configuration."""
        made = Secrets()
        made._kept = dict(self._kept)
        return made

    def _sealed(self, name: str, server: Mapping[str, Any], before: Mapping[Place, str]) -> dict[str, Any]:
        def seal(key: str, entry: str | int | None, value: str, secret: bool) -> str:
            place: Place = (name, key) if entry is None else (name, key, entry)
            if value == NOT_STORED and place in before:
                self._kept[place] = before[place]
            elif value != NOT_STORED and secret:
                self._kept[place] = value
            else:
                return value
            return NOT_STORED

        out = dict(server)
        if server.get("env"):
            out["env"] = {k: seal("env", k, v, _is_variable(k, v)) for k, v in server["env"].items()}
        if server.get("headers"):
            out["headers"] = {k: seal("headers", k, v, True) for k, v in server["headers"].items()}
        if server.get("url"):
            out["url"] = seal("url", None, server["url"], _looks_like_one(server["url"]))
        if server.get("args"):
            words = tuple(server["args"])
            out["args"] = [seal("args", n, word, _is_word(words, n)) for n, word in enumerate(words)]
        return out

    def _opened(self, name: str, server: McpServer) -> McpServer:
        def value(key: str, entry: str | int | None, stored: str) -> str:
            place: Place = (name, key) if entry is None else (name, key, entry)
            return self._kept.get(place, stored) if stored == NOT_STORED else stored

        return replace(
            server,
            env={k: value("env", k, v) for k, v in server.env.items()},
            headers={k: value("headers", k, v) for k, v in server.headers.items()},
            url=None if server.url is None else value("url", None, server.url),
            args=tuple(value("args", n, v) for n, v in enumerate(server.args)),
        )


def secrets_of(server: McpServer) -> tuple[str, ...]:
    """The secret texts among a server's settings, and what is secret in them: the `x` of `--token=x` and `Bearer x`."""
    found = [v for k, v in server.env.items() if _is_variable(k, v)]
    found += [word for n, word in enumerate(server.args) if _is_word(server.args, n)]
    found += [*server.headers.values(), *([server.url] if server.url and _looks_like_one(server.url) else ())]
    told = [v for v in found if v != NOT_STORED]
    return tuple(dict.fromkeys(part for text in told for part in _parts(text) if part))


def _parts(text: str) -> Iterator[str]:
    yield text
    words = text.split()
    if len(words) == 2:
        yield words[1]
    for assigned in _ASSIGNED.finditer(text):
        if _names_one(assigned["name"]):
            yield assigned["value"]
    for login in _LOGIN.finditer(text):
        yield login["password"] or login["user"]


def _is_variable(name: str, value: str) -> bool:
    return _names_one(name) or _looks_like_one(value)


def _is_word(words: Sequence[str], n: int) -> bool:
    """A word of a command line: a secret by its looks, or the `x` after `--token`."""
    word, before = words[n], words[n - 1] if n else ""
    asks = before.startswith("-") and "=" not in before and _names_one(before)
    return (asks and _OPTION.match(word) is None) or _looks_like_one(word)


def _names_one(name: str) -> bool:
    return is_secret(name) or _NAMED.search(name) is not None


def _looks_like_one(text: str) -> bool:
    if _LOGIN.search(text) or any(_names_one(m["name"]) for m in _ASSIGNED.finditer(text)):
        return True
    return any(kind != "email" for kind in find((text,)))
