"""`system.*`: the process. Pure data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from protocol.common import Params, Result


class ClientInfo(Struct, frozen=True):
    name: str
    version: str


class Capabilities(Struct, frozen=True):
    """What a host can do for the daemon: run its tools, answer approvals and questions, lend files and a terminal."""

    tools: bool = False
    approvals: bool = False
    questions: bool = False
    files: bool = False
    terminal: bool = False


class InitializeParams(Params, frozen=True):
    """`token` is needed on TCP only."""

    protocol_version: int
    client: ClientInfo
    capabilities: Capabilities | None = None
    token: str | None = None


class ServerInfo(Struct, frozen=True):
    name: str
    version: str
    pid: int


class InitializeResult(Result, frozen=True):
    protocol_version: int
    server: ServerInfo
    capabilities: dict[str, bool]


class PingResult(Result, frozen=True):
    ok: bool
    version: str
    uptime_s: float
    sessions: int
    turns_running: int


class ShutdownParams(Params, frozen=True):
    """`graceful` ends running turns as cancelled and flushes; `now` ends at once."""

    mode: Literal["graceful", "now"] = "graceful"


class Listening(Struct, frozen=True, omit_defaults=True):
    transport: Literal["stdio", "socket", "tcp"]
    address: str | None = None


class ReadyParams(Params, frozen=True):
    """Sent once at start, on stdio only."""

    pid: int
    protocol_version: int
    listen: tuple[Listening, ...]


class CancelRequestParams(Params, frozen=True):
    """`id` is that of a call that is still running; others are ignored."""

    id: int | float | str


class RequestResolvedParams(Params, frozen=True):
    """A request of the daemon needs no answer any more: `cancelled`, `timeout`, `answered` by another client, ..."""

    request_id: str
    reason: str
