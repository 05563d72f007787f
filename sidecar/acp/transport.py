"""What the package's connection lacks at the wire: bad frames are answered, requests can be cancelled, nothing leaks.

`EditorTransport` has the shape of the package's `Transport` (`send`, `receive`, `close`) over a byte stream:

- What is no JSON gets -32700, what is no request object -32600, both with `id: null`; the connection lives.
- `$/cancel_request` ends the work on that request, which is then answered with -32800.
- `session/delete`, which the package has no route for, arrives at the agent as an extension method.
- `_meta` of requests is taken out: the package would spread it over the method's own parameters.
- Error data is cut down to what was meant for the editor: never exception text, never the input back.
- A request's answer is written before what was said to follow it (`after`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

import anyio
from anyio.abc import TaskGroup

from sidecar.acp.errors import cleaned

MAX_FRAME_BYTES = 64 << 20
ROUTED = {"session/delete": "_session/delete"}
"""Methods that the package does not know, as extensions, which it hands to the agent."""
CANCEL = ("$/cancel_request", "$/cancelRequest")

REQUEST_ID: ContextVar[int | str | None] = ContextVar("acp_request_id", default=None)
"""The request that a handler works on: the connection starts each handler in the context of its `receive`."""

_SURROGATES = re.compile("[\ud800-\udfff]")


class ByteTransport(Protocol):
    async def receive(self) -> bytes:
        """Some bytes; empty at the end."""
        ...

    async def send(self, data: bytes) -> None:
        """Raises `ConnectionError` when nobody reads any more."""
        ...

    def close(self) -> None: ...


class EditorTransport:
    def __init__(self, stream: ByteTransport, tasks: TaskGroup, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._stream = stream
        self._tasks = tasks
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self._writing = anyio.Lock()
        self._running: dict[int | str, anyio.CancelScope] = {}
        self._following: dict[int | str, Callable[[], Coroutine[Any, Any, None]]] = {}

    # ---------------------------------------------------------------- for the package's connection

    async def receive(self) -> dict[str, Any] | None:
        """The next request, notification or answer; None at the end."""
        while (line := await self._line()) is not None:
            try:
                message = _decode(line)
            except (ValueError, RecursionError):
                await self._refuse(None, -32700, "Parse error")
                continue
            checked = await self._checked(message)
            if checked is not None:
                REQUEST_ID.set(checked.get("id") if "method" in checked else None)
                return checked
        return None

    async def send(self, message: dict[str, Any]) -> None:
        if "error" in message:
            message = {**message, "error": cleaned(message["error"])}
        await self._write(message)
        if "method" not in message and (follow := self._following.pop(message.get("id", ""), None)) is not None:
            self._tasks.start_soon(follow)

    async def close(self) -> None:
        return None

    # ---------------------------------------------------------------- for the agent

    @contextmanager
    def work(self) -> Iterator[anyio.CancelScope]:
        """The scope of the handler's work: `$/cancel_request` cancels it."""
        request_id = REQUEST_ID.get()
        with anyio.CancelScope() as scope:
            if request_id is not None:
                self._running[request_id] = scope
            try:
                yield scope
            finally:
                if request_id is not None and self._running.get(request_id) is scope:
                    del self._running[request_id]

    def after(self, follow: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `follow` once the answer to the current request has been written."""
        request_id = REQUEST_ID.get()
        if request_id is not None:
            self._following[request_id] = follow

    # ---------------------------------------------------------------- reading

    async def _line(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end]).strip()
                del self._buffer[: end + 1]
                self._searched = 0
                if self._skipping:
                    self._skipping = False
                elif line:
                    return line
                continue
            self._searched = len(self._buffer)
            if self._searched > self._max:
                if not self._skipping:
                    await self._refuse(None, -32600, "Invalid request", {"reason": "frame_too_large"})
                self._skipping = True
                self._buffer.clear()
                self._searched = 0
            data = await self._stream.receive()
            if not data:
                rest = bytes(self._buffer).strip()
                self._buffer.clear()
                self._searched = 0
                return rest if rest and not self._skipping else None
            self._buffer += data

    async def _checked(self, message: Any) -> dict[str, Any] | None:
        """The message if the connection is to have it; what it must not see is answered here."""
        if not isinstance(message, dict):
            await self._refuse(None, -32600, "Invalid request")
            return None
        request_id = message.get("id")
        known = isinstance(request_id, (int, str)) and not isinstance(request_id, bool)
        if "method" not in message:
            if "result" in message or "error" in message:
                return message if known else None
            await self._refuse(request_id if known else None, -32600, "Invalid request")
            return None
        method, params = message["method"], message.get("params")
        if not isinstance(method, str) or not (known or request_id is None):
            await self._refuse(request_id if known else None, -32600, "Invalid request")
            return None
        if params is not None and not isinstance(params, dict):
            if known:
                await self._refuse(request_id, -32602, "Invalid params")
            return None
        if method in CANCEL:
            self._cancel(params or {})
            return None
        if request_id is None:
            message.pop("id", None)
        fields = {k: v for k, v in (params or {}).items() if k != "_meta"}
        return {**message, "method": ROUTED.get(method, method), "params": fields}

    def _cancel(self, params: Mapping[str, Any]) -> None:
        request_id = params.get("requestId", params.get("id"))
        scope = self._running.get(request_id) if isinstance(request_id, (int, str)) else None
        if scope is not None:
            scope.cancel()

    # ---------------------------------------------------------------- writing

    async def _refuse(self, request_id: Any, code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self._write({"jsonrpc": "2.0", "id": request_id, "error": error})

    async def _write(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        data = _SURROGATES.sub("\ufffd", text).encode() + b"\n"
        # A handler that is cancelled must not leave half a line behind.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                await self._stream.send(data)


def _decode(line: bytes) -> Any:
    """JSON with nothing in it that could not be sent on: no NaN, no lone surrogates."""
    message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    return _without_surrogates(message) if b"\\ud" in line or b"\\uD" in line else message


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value
