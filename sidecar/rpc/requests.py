"""The calls that the daemon has open at one host, and how each is settled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio

from sidecar.errors import Fault
from sidecar.rpc import codec
from sidecar.rpc.envelope import Answer
from sidecar.rpc.port import PeerError, PeerGone

_numbers = itertools.count(1)


def new_request_id() -> str:
    """`s-<n>`, unique in this process, so that one call can be open at several hosts under one id."""
    return f"s-{next(_numbers)}"


class _Open:
    __slots__ = ("failure", "result", "settled")

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.result: Any = None
        self.failure: Exception | None = None


class Requests:
    """Settled by the host's answer, by a frame of it that had to be refused, or by its going away."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._open: dict[str, _Open] = {}
        self._gone = False

    async def call(self, method: str, params: Any, request_id: str | None) -> Any:
        """The host's `result`. Raises `PeerError`, `PeerGone`; cancelled, it forgets the call. A call that is open at
        this host already is sent once more, and one answer settles both."""
        request_id = request_id or new_request_id()
        if self._gone:
            raise PeerGone
        payload = codec.request(request_id, method, params)
        waiting = self._open.setdefault(request_id, _Open())
        try:
            self._send(payload)
            await waiting.settled.wait()
        finally:
            self._open.pop(request_id, None)
        if waiting.failure is not None:
            raise waiting.failure
        return waiting.result

    def settle(self, answer: Answer) -> None:
        """An id that is not open, null included, is ignored: the call may have been cancelled."""
        if answer.error is None:
            self._settle(answer.id, answer.result, None)
            return
        error = answer.error if isinstance(answer.error, dict) else {}
        code, message = error.get("code"), error.get("message")
        self._settle(
            answer.id,
            None,
            PeerError(
                code if isinstance(code, int) else 0,
                message if isinstance(message, str) else "the host's error has no message",
                error.get("data"),
            ),
        )

    def refuse(self, request_id: str | None, fault: Fault) -> None:
        """The host's answer to this call could not be accepted."""
        self._settle(request_id, None, PeerError(fault.code, fault.message))

    def give_up(self) -> None:
        """No answer can come any more, to these calls and to all later ones."""
        self._gone = True
        for request_id in list(self._open):
            self._settle(request_id, None, PeerGone())

    def _settle(self, request_id: str | None, result: Any, failure: Exception | None) -> None:
        waiting = self._open.pop(request_id, None) if request_id is not None else None
        if waiting is not None:
            waiting.result, waiting.failure = result, failure
            waiting.settled.set()
