"""One connection to a host: frames in, calls and events out, through a bounded outbox that one writer empties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Protocol

import anyio
from anyio.lowlevel import checkpoint

from sidecar import logs
from sidecar.errors import Fault
from sidecar.rpc import codec
from sidecar.rpc.calls import Call, Calls
from sidecar.rpc.envelope import Answer, Batch, Invalid, Message, Request, RequestId, classify
from sidecar.rpc.framing import Decoded, Decoder, Malformed, Oversized
from sidecar.rpc.outbox import Outbox
from sidecar.rpc.port import Capabilities, ClientInfo, Delta, Limits, PeerGone, SharedEvent, TransportName
from sidecar.rpc.requests import Requests, new_request_id
from sidecar.rpc.transport import Broken, Transport

WRITE_BYTES = 65536
"""Small frames are joined up to this for one write."""

STDIO_HARD_FACTOR = 4
"""A stdio host is waited for at the hard bound; at this many times it, producers did not wait, and it is given up."""

FRAMES_A_STEP = 64
WRITES_A_STEP = 8
"""Frames handled, and pieces written to a host that reads as fast, before other tasks get their turn."""

ADMISSION_S = 10.0
ADMISSION_BYTES = 65536
"""How long a stranger may take, and how much it may send, before it has shown its token."""

log = logs.get(__name__)


class Guard(Protocol):
    """Decides on the first message of a connection, before anything of it is served."""

    def admits(self, message: Message | Batch) -> bool: ...


class Connection:
    """A `Peer`. Its owner runs `read` and `write`; `accept` gets every call that is to be served."""

    def __init__(
        self,
        peer_id: str,
        transport: Transport,
        limits: Limits,
        accept: Callable[[Call], None],
        guard: Guard | None = None,
    ) -> None:
        self.id = peer_id
        self.client: ClientInfo | None = None
        self.capabilities = Capabilities()
        self.closed = False
        self.broken = False
        self._transport = transport
        self._guard = guard
        self._limits = limits
        self._decoder = Decoder(limits.max_frame_bytes if guard is None else ADMISSION_BYTES)
        self._outbox = Outbox(limits)
        self._requests = Requests(self._send)
        self.calls = Calls(self, send=self._answer, room=self._room, accept=accept)
        self._input = anyio.CancelScope(deadline=math.inf if guard is None else anyio.current_time() + ADMISSION_S)

    # ------------------------------------------------------------ what the application sees

    @property
    def transport(self) -> TransportName:
        return self._transport.name

    @property
    def congested(self) -> bool:
        full = self._outbox.size >= self._limits.outbox_hard_bytes
        return full and self.transport == "stdio" and not self._outbox.released

    def notify(self, method: str, params: Any) -> None:
        try:
            self._send(codec.notification(method, params))
        except (TypeError, PeerGone) as error:
            if isinstance(error, TypeError):
                log.error("a notification cannot be serialised", method=method, exc_info=error)

    def notify_event(self, event: Delta | SharedEvent) -> None:
        if self._may_queue():
            self._outbox.put_event(event)

    async def request(self, method: str, params: Any, *, request_id: str | None = None) -> Any:
        return await self._requests.call(method, params, request_id)

    def new_request_id(self) -> str:
        return new_request_id()

    async def writable(self) -> None:
        await self._outbox.wait_under(self._limits.outbox_soft_bytes)

    def close(self) -> None:
        self._input.cancel()

    # ------------------------------------------------------------ what its owner does

    def apply(self, limits: Limits) -> None:
        """The configured limits, known only when the application is loaded."""
        self._limits = self._outbox.limits = limits
        if self._guard is None:
            self._decoder.max_frame_bytes = limits.max_frame_bytes

    async def read(self, first: bytes = b"") -> None:
        """Serves what comes in. Returns at the end of input, after `close`, or when the connection broke.

        `first` is what was received already; its framing is known to the writer before that gets its turn.
        """
        unadmitted = 0
        with self._input:
            while data := first or await self._transport.receive():
                first = b""
                await self._take_in(self._decoder.feed(data))
                if self._guard is not None and (unadmitted := unadmitted + len(data)) > ADMISSION_BYTES:
                    self._turn_away(None)
            await self._take_in(self._decoder.finish())
        self._requests.give_up()

    async def write(self) -> None:
        """Empties the outbox until it is cancelled or the connection breaks."""
        try:
            for number in itertools.count(1):
                await self._outbox.wait_filled()
                await self._transport.send(self._outbox.take(self._decoder.framing, WRITE_BYTES))
                self._outbox.written()
                if number % WRITES_A_STEP == 0:
                    await checkpoint()
        except Broken:
            self.lose()

    async def flush(self) -> None:
        """Returns when all that was queued is written, or never will be."""
        await self._outbox.wait_empty()

    def release(self) -> None:
        """The daemon ends: nobody waits for this host any more."""
        self._outbox.release()

    def lose(self) -> None:
        """The connection is of no more use, in either direction."""
        self.broken = self.closed = True
        self._input.cancel()
        self._outbox.discard()
        self._requests.give_up()

    # ------------------------------------------------------------ inside

    def _answer(self, payload: bytes) -> None:
        if not self.broken:
            self._outbox.put(payload)

    def _send(self, payload: bytes) -> None:
        if not self._may_queue():
            raise PeerGone
        self._outbox.put(payload)

    async def _room(self) -> None:
        await self._outbox.wait_under(self._limits.outbox_hard_bytes)

    def _may_queue(self) -> bool:
        if self.closed:
            return False
        factor = STDIO_HARD_FACTOR if self.transport == "stdio" else 1
        if self._outbox.size >= self._limits.outbox_hard_bytes * factor:
            log.warning("a host does not read and is dropped", peer=self.id, waiting_bytes=self._outbox.size)
            self.lose()
        return not self.closed

    async def _take_in(self, items: list[Decoded]) -> None:
        for number, item in enumerate(items, 1):
            await self._room()
            if self._input.cancel_called:
                return
            self._handle(item)
            if number % FRAMES_A_STEP == 0:
                await checkpoint()

    def _handle(self, item: Decoded) -> None:
        message = self._understand(item)
        if self._guard is not None and not self._admit(message, self._guard):
            return
        if isinstance(message, Batch):
            for member in message.members:
                self._settle(member)
            self.calls.take_batch(message)
        else:
            self._settle(message)
            if not isinstance(message, Answer):
                self.calls.take(message)

    def _understand(self, item: Decoded) -> Message | Batch:
        """A frame that has to be refused whole is an `Invalid` without id."""
        if isinstance(item, Malformed):
            return Invalid(None, Fault("parse_error", "Content-Length and an empty line must come before a message"))
        if isinstance(item, Oversized):
            limit = self._decoder.max_frame_bytes
            fault = Fault("frame_too_large", f"A frame holds at most {limit} bytes", hint="send less at a time")
            return Invalid(None, fault, codec.refused_own_id(item))
        try:
            return classify(codec.parse(item))
        except Fault as fault:
            return Invalid(None, fault, codec.refused_own_id(item))

    def _settle(self, message: Message) -> None:
        """What a message means for our own calls."""
        if isinstance(message, Answer):
            self._requests.settle(message)
        elif isinstance(message, Invalid) and message.fault is not None:
            self._requests.refuse(message.own_id, message.fault)

    def _admit(self, message: Message | Batch, guard: Guard) -> bool:
        if guard.admits(message):
            self._guard = None
            self._input.deadline = math.inf
            self._decoder.max_frame_bytes = self._limits.max_frame_bytes
            return True
        self._turn_away(message.id if isinstance(message, (Request, Invalid)) else None)
        return False

    def _turn_away(self, call_id: RequestId) -> None:
        """Answers once and closes."""
        if self._input.cancel_called:
            return
        fault = Fault(
            "unauthorized",
            "The first message must be system.initialize with the right token",
            hint="pass the token of the file that the daemon named on stderr, or of --token-file",
        )
        self._answer(codec.failure(call_id, fault.as_error()))
        self.close()
