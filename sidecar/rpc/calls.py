"""The calls that one host has open: how each is answered exactly once, cancelled, counted, and put into its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from sidecar.errors import Fault
from sidecar.rpc import codec
from sidecar.rpc.envelope import Batch, Invalid, Notification, Request, RequestId
from sidecar.rpc.port import Peer

MAX_OPEN_CALLS = 1000
"""Of one connection; as many as one batch may hold."""

Send = Callable[[bytes], None]


class Call:
    """A request or notification of a host. The first answer counts, later ones are dropped."""

    __slots__ = ("_answer", "_calls", "_work", "answered", "id", "is_notification", "method", "params")

    def __init__(self, calls: Calls, message: Request | Notification, answer: Send) -> None:
        self._calls = calls
        self._answer = answer
        self._work: anyio.CancelScope | None = None
        self.method = message.method
        self.params = message.params
        self.is_notification = isinstance(message, Notification)
        self.id: RequestId = None if isinstance(message, Notification) else message.id
        self.answered = False

    @property
    def peer(self) -> Peer:
        return self._calls.peer

    def succeed(self, result: Any) -> None:
        """Raises `TypeError`, with the call still open, if the result cannot be serialised."""
        if not self.answered:
            self._send(b"" if self.is_notification else codec.success(self.id, result))

    def fail(self, fault: Fault) -> None:
        self.fail_with(fault.as_error())

    def fail_with(self, error: dict[str, Any]) -> None:
        """With a whole JSON-RPC error object."""
        if not self.answered:
            self._send(b"" if self.is_notification else codec.failure(self.id, error))

    def cancel(self) -> None:
        """Answers at once; the work is told, and what it returns is dropped."""
        self.fail(Fault("request_cancelled", "The call was cancelled"))
        if self._work is not None:
            self._work.cancel()

    def begin(self) -> anyio.CancelScope:
        """The scope to do the work in."""
        self._work = anyio.CancelScope()
        return self._work

    def _send(self, payload: bytes) -> None:
        self.answered = True
        if payload:
            self._answer(payload)
        self._calls.forget(self)


class _BatchAnswer:
    """Collects the answers to a batch and sends them as one array, in the order in which they came."""

    __slots__ = ("_answers", "_expected", "_send")

    def __init__(self, expected: int, send: Send) -> None:
        self._expected = expected
        self._send = send
        self._answers: list[bytes] = []

    def add(self, payload: bytes) -> None:
        self._answers.append(payload)
        if len(self._answers) == self._expected:
            self._send(b"[" + b",".join(self._answers) + b"]")


class Calls:
    """All open calls of one peer. `accept` gets each new one; `send` queues a whole answer."""

    def __init__(self, peer: Peer, *, send: Send, accept: Callable[[Call], None]) -> None:
        self.peer = peer
        self._send = send
        self._accept = accept
        self._open: set[Call] = set()
        self._by_id: dict[tuple[bool, RequestId], Call] = {}
        self._idle = anyio.Event()

    @property
    def are_too_many(self) -> bool:
        """Whether the newest call is one more than the connection may have open."""
        return len(self._open) > MAX_OPEN_CALLS

    def take(self, message: Request | Notification | Invalid) -> None:
        self._take(message, self._send)

    def take_batch(self, batch: Batch) -> None:
        """Answers to calls of ours inside a batch are the caller's to take out of it."""
        members = [member for member in batch.members if isinstance(member, (Request, Notification, Invalid))]
        expected = sum(1 for m in members if isinstance(m, Request) or (isinstance(m, Invalid) and m.fault is not None))
        answer = _BatchAnswer(expected, self._send)
        for member in members:
            self._take(member, answer.add)

    def _take(self, message: Request | Notification | Invalid, answer: Send) -> None:
        if isinstance(message, Invalid):
            if message.fault is not None:
                answer(codec.failure(message.id, message.fault.as_error()))
            return
        call = Call(self, message, answer)
        self._open.add(call)
        self._by_id[_key(call.id)] = call
        self._accept(call)

    def cancel(self, call_id: Any) -> None:
        """By the host's id. An id that is not open is ignored."""
        if isinstance(call_id, (str, int, float)) and not isinstance(call_id, bool):
            call = self._by_id.get(_key(call_id))
            if call is not None:
                call.cancel()

    def cancel_all(self) -> None:
        for call in list(self._open):
            call.cancel()

    async def wait_idle(self) -> None:
        """Returns when no call is open."""
        while self._open:
            await self._idle.wait()

    def forget(self, call: Call) -> None:
        self._open.discard(call)
        if self._by_id.get(_key(call.id)) is call:
            del self._by_id[_key(call.id)]
        if not self._open:
            idle, self._idle = self._idle, anyio.Event()
            idle.set()


def _key(call_id: RequestId) -> tuple[bool, RequestId]:
    return isinstance(call_id, str), call_id
