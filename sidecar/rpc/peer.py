"""One connection to a host: calls and events out, through a bounded outbox that one writer empties, and an intake."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from sidecar import logs
from sidecar.rpc import codec
from sidecar.rpc.calls import Call, Calls
from sidecar.rpc.intake import Guard, Intake
from sidecar.rpc.outbox import Outbox
from sidecar.rpc.port import Capabilities, ClientInfo, Delta, Limits, PeerGone, SharedEvent, TransportName
from sidecar.rpc.requests import Requests, new_request_id
from sidecar.rpc.transport import Broken, Transport

WRITE_BYTES = 65536
"""Small frames are joined up to this for one write."""

WRITES_A_STEP = 8
"""Pieces written to a host that reads as fast before other tasks get their turn."""

STDIO_HARD_FACTOR = 4
"""A stdio host is waited for at the hard bound; at this many times it, producers did not wait, and it is given up."""

HANG_UP_CHECK_S = 0.5

log = logs.get(__name__)


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
        self._broken = False
        self._transport = transport
        self._limits = limits
        self._outbox = Outbox(limits)
        self._requests = Requests(self._send)
        self.calls = Calls(self, send=self._answer, accept=accept)
        self.intake = Intake(
            transport,
            limits,
            self.calls,
            self._requests,
            send=self._answer,
            may_go_on=self._wait_until_it_reads,
            guard=guard,
        )

    # ------------------------------------------------------------ what the application sees

    @property
    def transport(self) -> TransportName:
        return self._transport.name

    @property
    def congested(self) -> bool:
        return self.transport == "stdio" and not self._is_under(self._limits.outbox_hard_bytes)

    def notify(self, method: str, params: Any) -> None:
        try:
            self._send(codec.notification(method, params))
        except TypeError as error:
            log.error("a notification cannot be serialised", method=method, exc_info=error)
        except PeerGone:
            pass

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
        self.intake.stop()

    # ------------------------------------------------------------ what its owner does

    def apply(self, limits: Limits) -> None:
        """The configured limits, known only when the application is loaded."""
        self._limits = self._outbox.limits = limits
        self.intake.apply(limits)

    async def write(self) -> None:
        """Empties the outbox until it is cancelled or the connection breaks."""
        try:
            for number in itertools.count(1):
                await self._outbox.wait_filled()
                await self._transport.send(self._outbox.take(self.intake.framing, WRITE_BYTES))
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
        self._broken = self.closed = True
        self.intake.stop()
        self._outbox.discard()
        self._requests.give_up()

    # ------------------------------------------------------------ inside

    def _answer(self, payload: bytes) -> None:
        if not self._broken:
            self._outbox.put(payload)

    def _send(self, payload: bytes) -> None:
        if not self._may_queue():
            raise PeerGone
        self._outbox.put(payload)

    def _may_queue(self) -> bool:
        if self.closed:
            return False
        factor = STDIO_HARD_FACTOR if self.transport == "stdio" else 1
        bound = self._limits.outbox_hard_bytes * factor
        if self._outbox.size >= bound and self._outbox.backlog >= bound:
            log.warning("a host does not read and is dropped", peer=self.id, waiting_bytes=self._outbox.size)
            self.lose()
        return not self.closed

    def _is_under(self, size: int) -> bool:
        return self._outbox.size < size or self._outbox.released

    async def _wait_until_it_reads(self) -> None:
        """A host that asks without reading is heard no further, but its going away is noticed.

        Answers get half of what may wait; the other half is for events, which push a socket peer out at the bound.
        """
        bound = self._limits.outbox_hard_bytes // 2
        while not self._is_under(bound) and not self._transport.input_hung_up():
            with anyio.move_on_after(HANG_UP_CHECK_S):
                await self._outbox.wait_under(bound)
