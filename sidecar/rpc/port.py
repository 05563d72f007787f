"""What the RPC edge offers to the application (`Peer`), and what it asks of it (`Application`).

Ports and frozen values only; imports nothing heavy, because the first reply waits for this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

TransportName = Literal["stdio", "socket", "tcp"]
ShutdownMode = Literal["graceful", "now"]
DeltaKind = Literal["text_delta", "reasoning_delta"]


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who the host says it is."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the host can answer. A host that never initialises (`initialized` false) runs the tools that it brought."""

    tools: bool = False
    approvals: bool = False
    questions: bool = False
    initialized: bool = False
    files: bool = False
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. Until the application is loaded these defaults hold.

    Past `outbox_soft_bytes` waiting deltas are merged; past `outbox_hard_bytes` a socket peer is dropped and a stdio
    peer is `congested`.
    """

    max_frame_bytes: int = 32 << 20
    outbox_soft_bytes: int = 1 << 20
    outbox_hard_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of streamed text: one `agent.chat.event` that may be merged with its neighbours before it is written.

    `offset` is where `text` starts in the message, in code points; `event_id` carries the last durable number.
    """

    session_id: str
    agent_id: str
    event_id: str
    turn_id: str | None
    kind: DeltaKind
    message_id: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class SharedEvent:
    """A durable `agent.chat.event`, serialised once for all peers.

    `payload` is the whole JSON-RPC notification without framing (`sidecar.rpc.codec.notification` makes it).
    """

    session_id: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ListenSpec:
    """Where to listen. `stdio` are the descriptors to read and to write, kept aside from 0 and 1.

    `sockets` are paths, `tcp` are `HOST:PORT`; `token_file` holds the token of all TCP connections on one line.
    """

    stdio: tuple[int, int] | None = None
    sockets: tuple[str, ...] = ()
    tcp: tuple[str, ...] = ()
    token_file: str | None = None
    allow_remote: bool = False


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `sidecar serve` was told that the application must know: `sidecar.app.build(options)`."""

    config_file: str | None = None
    log_file: str | None = None
    log_level: str = "info"


# ---------------------------------------------------------------- failures of a peer


class PeerGone(Exception):
    """The host went away before it answered. It never answers this request."""


class PeerError(Exception):
    """The host answered with an error, or with something that is no answer. `data` is the host's, cleaned."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


# ---------------------------------------------------------------- ports


class Peer(Protocol):
    """One connection to a host. All methods are called on the event loop; only those marked `async` wait."""

    @property
    def id(self) -> str:
        """Unique in this process, e.g. `stdio-1`, `socket-7`."""
        ...

    @property
    def transport(self) -> TransportName: ...

    @property
    def client(self) -> ClientInfo | None:
        """None until the host has initialised."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def closed(self) -> bool:
        """The host is gone: what is sent from now on is dropped quietly, requests raise `PeerGone`."""
        ...

    @property
    def congested(self) -> bool:
        """Whether the producer must `await writable()` before it sends more.

        True only on stdio past the hard bound (a socket peer is dropped there), never while the daemon ends.
        """
        ...

    def notify(self, method: str, params: Any) -> None:
        """Sends a notification. `params` may hold msgspec Structs. Never waits and never raises."""
        ...

    def notify_event(self, event: Delta | SharedEvent) -> None:
        """Sends an `agent.chat.event`. Order is kept within a session. Never waits and never raises."""
        ...

    async def request(self, method: str, params: Any, *, request_id: str | None = None) -> Any:
        """Calls the host and returns its `result`, cleaned of lone surrogates and NULs.

        Raises `PeerError` (an error, or an answer that had to be refused) or `PeerGone`. Cancelling it forgets the
        call: a late answer is ignored. It has no timeout of its own. The same `request_id` may be open at several
        peers, once at each.
        """
        ...

    def new_request_id(self) -> str:
        """A fresh id (`s-<n>`), unique in this process."""
        ...

    async def writable(self) -> None:
        """Waits until the outbox is under its soft bound, the peer is gone or the daemon ends.

        On any transport: whoever sends many events at once (a replay) awaits it every few of them, or a socket peer
        that reads well is dropped for what was pushed at it.
        """
        ...

    def close(self) -> None:
        """Ends the connection after what is queued was written, or after a short time."""
        ...


Handler = Callable[[Peer, dict[str, Any]], Awaitable[Any]]
"""A method: peer and params in, the `result` out (plain values and msgspec Structs).

It raises `Fault` for the host; anything else becomes `internal` with a reference. It is cancelled by `$/cancel_request`
(the host has its -32800 by then, the return value is dropped), never because its peer went away.
"""


class Application(Protocol):
    """What is served. `build(options)` makes it in a worker thread: it may block, and must not touch the loop.

    Before the first call: `lifespan` is entered, then `peer_connected` of each peer, `initialized` of those that have.
    Hooks should not raise; what they raise is logged.
    """

    @property
    def methods(self) -> Mapping[str, Handler]:
        """All methods but `system.*` and the cancel notifications, which the edge answers itself."""
        ...

    @property
    def limits(self) -> Limits: ...

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        """Entered before anything else is called and left after `shutdown`, in one task: the place of task groups.

        An exception out of it ends the daemon with exit code 1.
        """
        ...

    async def peer_connected(self, peer: Peer) -> None: ...

    async def initialized(self, peer: Peer) -> None:
        """The host has initialised, possibly again: `client` and `capabilities` are set, the reply is queued."""
        ...

    async def peer_gone(self, peer: Peer) -> None:
        """`peer.closed` is true. Called once per connected peer, except while the daemon ends."""
        ...

    async def shutdown(self, mode: ShutdownMode) -> None:
        """Graceful: all turns end as cancelled, their events are sent, records are flushed, child processes ended.

        It has 3.5 s; after that, and with `now`, records are flushed and child processes ended within half a second.
        Peers still take what is sent. It may be called with `now` after `graceful` has run out of time.
        """
        ...

    def ping(self) -> Mapping[str, int]:
        """`{"sessions": n, "turns_running": n}` for `system.ping`."""
        ...
