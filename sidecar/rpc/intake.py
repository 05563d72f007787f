"""What comes from one host: bytes to frames, frames to messages, and each message to where it belongs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

from sidecar.errors import Fault
from sidecar.rpc import codec
from sidecar.rpc.calls import Calls
from sidecar.rpc.envelope import Answer, Batch, Invalid, Message, Request, RequestId, classify
from sidecar.rpc.framing import Decoded, Decoder, Framing, Malformed, Oversized
from sidecar.rpc.port import Limits
from sidecar.rpc.requests import Requests
from sidecar.rpc.transport import Transport

FRAMES_A_STEP = 64
"""Frames handled before other tasks get their turn."""

ADMISSION_S = 10.0
ADMISSION_BYTES = 65536
"""How long a stranger may take, and how much it may send, before it has shown its token."""


class Guard(Protocol):
    """Decides on the first message of a connection, before anything of it is served."""

    def admits(self, message: Message | Batch) -> bool: ...


class Intake:
    """The reading half of a connection.

    `may_go_on` is awaited before each frame; `send` takes an answer that is not a call's. A `guard` is asked until it
    has admitted the host.
    """

    def __init__(
        self,
        transport: Transport,
        limits: Limits,
        calls: Calls,
        requests: Requests,
        *,
        send: Callable[[bytes], None],
        may_go_on: Callable[[], Awaitable[None]],
        guard: Guard | None,
    ) -> None:
        self._transport = transport
        self._limits = limits
        self._calls = calls
        self._requests = requests
        self._send = send
        self._may_go_on = may_go_on
        self._guard = guard
        self._decoder = Decoder(limits.max_frame_bytes if guard is None else ADMISSION_BYTES)
        self._scope = anyio.CancelScope(deadline=math.inf if guard is None else anyio.current_time() + ADMISSION_S)

    @property
    def framing(self) -> Framing | None:
        """None until enough was received to tell."""
        return self._decoder.framing

    @property
    def admitted(self) -> bool:
        return self._guard is None

    def apply(self, limits: Limits) -> None:
        self._limits = limits
        if self.admitted:
            self._decoder.max_frame_bytes = limits.max_frame_bytes

    def stop(self) -> None:
        """`read` returns soon; no further frame is handled."""
        self._scope.cancel()

    async def read(self, first: bytes = b"") -> None:
        """Serves what comes in. Returns at the end of input or after `stop`.

        `first` is what was received already; its framing is known before anything else gets its turn.
        """
        unadmitted = 0
        with self._scope:
            while data := first or await self._transport.receive():
                first = b""
                await self._take(self._decoder.feed(data))
                if not self.admitted and (unadmitted := unadmitted + len(data)) > ADMISSION_BYTES:
                    self._turn_away(None)
            await self._take(self._decoder.finish())
        self._requests.give_up()

    async def _take(self, items: list[Decoded]) -> None:
        for number, item in enumerate(items, 1):
            await self._may_go_on()
            if self._scope.cancel_called:
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
            self._calls.take_batch(message)
        else:
            self._settle(message)
            if not isinstance(message, Answer):
                self._calls.take(message)

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
            self._scope.deadline = math.inf
            self.apply(self._limits)
            return True
        self._turn_away(message.id if isinstance(message, (Request, Invalid)) else None)
        return False

    def _turn_away(self, call_id: RequestId) -> None:
        """Answers once and stops."""
        if self._scope.cancel_called:
            return
        fault = Fault(
            "unauthorized",
            "The first message must be system.initialize with the right token",
            hint="pass the token of the file that the daemon named on stderr, or of --token-file",
        )
        self._send(codec.failure(call_id, fault.as_error()))
        self.stop()
