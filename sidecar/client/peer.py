"""One connection: calls and their answers, the daemon's own calls, notifications.

`run` reads until the connection ends. Frames are handled in the order in which they come and without waiting, so
every event that the daemon sent before an answer is delivered before the answer. One task writes whole frames: a call
that is cancelled never leaves half a frame behind.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import ByteStream, TaskGroup
from msgspec import UNSET, Raw, Struct, UnsetType

from sidecar.client.errors import ConnectionLost, SidecarError
from sidecar.client.framing import LineReader

MAX_FRAME_BYTES = 256 << 20
OUTBOX_FRAMES = 64
"""Frames that wait to be written; more make their senders wait."""
MAX_SERVED = 4096
"""Calls of the daemon that are answered at the same time; more are refused as `overloaded`."""

logger = logging.getLogger("sidecar.client")

T = TypeVar("T")


class Frame(Struct, frozen=True):
    id: int | str | None = None
    method: str | None = None
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: dict[str, Any] | None = None


class _Call(Struct, frozen=True, omit_defaults=True):
    jsonrpc: str
    method: str
    id: int | None = None
    params: Any = None


class _Answer(Struct, frozen=True, omit_defaults=True):
    jsonrpc: str
    id: int | str
    result: Any = UNSET
    error: Any = UNSET


class Inbound(Protocol):
    """What the daemon sends on its own."""

    def notified(self, method: str, params: bytes) -> None:
        """Must not wait. What it raises as `SidecarError` is dropped, like the notification."""
        ...

    def serve(self, method: str, params: bytes) -> Callable[[], Awaitable[Any]]:
        """What will answer a call of the daemon's; raises `SidecarError`, now or then, to answer with an error.

        Called in the order of the frames: a cancel that follows finds the call.
        """
        ...


class _Slot:
    __slots__ = ("done", "frame")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.frame: Frame | None = None


class Peer:
    def __init__(self, stream: ByteStream, inbound: Inbound) -> None:
        self._stream = stream
        self._inbound = inbound
        self._ids = itertools.count(1)
        self._pending: dict[int, _Slot] = {}
        self._serving: dict[int | str, anyio.CancelScope] = {}
        self._outbox, self._to_write = anyio.create_memory_object_stream[bytes](OUTBOX_FRAMES)
        self._decoder = msgspec.json.Decoder(Frame)
        self.lost: ConnectionLost | None = None

    async def run(self) -> None:
        """Reads and writes until the connection ends, which is no error here; open calls get `ConnectionLost`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                await self._read(tasks)
                tasks.cancel_scope.cancel()
        finally:
            self.close()

    def close(self) -> None:
        """Ends what waits here; the stream belongs to the caller."""
        self._end(ConnectionLost())
        self._outbox.close()
        self._to_write.close()

    async def call(self, method: str, params: Any, result: type[T] | Any) -> T:
        """Sends a call and returns its decoded result; cancelling this sends `$/cancel_request`."""
        if self.lost is not None:
            raise self.lost
        number = next(self._ids)
        slot = self._pending[number] = _Slot()
        try:
            await self._send(_Call("2.0", method, number, params))
            await slot.done.wait()
        except anyio.get_cancelled_exc_class():
            self._send_soon(_Call("2.0", "$/cancel_request", params={"id": number}))
            raise
        finally:
            self._pending.pop(number, None)
        answer: T = _result(slot.frame, result, self.lost)
        return answer

    async def notify(self, method: str, params: Any) -> None:
        await self._send(_Call("2.0", method, params=params))

    def resolve(self, request_id: int | str) -> None:
        """The daemon wants no answer to its call any more: ends the work on it."""
        scope = self._serving.pop(request_id, None)
        if scope is not None:
            scope.cancel()

    # ---------------------------------------------------------------- writing

    async def _send(self, frame: Struct) -> None:
        try:
            await self._outbox.send(_encode(frame))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise self.lost or ConnectionLost() from None

    def _send_soon(self, frame: Struct) -> None:
        """Sends if there is room; for messages that only save work at the other end."""
        try:
            self._outbox.send_nowait(_encode(frame))
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass

    async def _write(self) -> None:
        try:
            async for data in self._to_write:
                await self._stream.send(data)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self._end(ConnectionLost())

    # ---------------------------------------------------------------- reading

    async def _read(self, tasks: TaskGroup) -> None:
        lines = LineReader(self._stream, MAX_FRAME_BYTES)
        try:
            while True:
                self._take(tasks, await lines.next())
        except ConnectionLost as lost:
            self._end(lost)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return

    def _take(self, tasks: TaskGroup, line: bytes) -> None:
        try:
            frame = self._decoder.decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return
        params = b"{}" if isinstance(frame.params, UnsetType) else bytes(frame.params)
        if frame.method is None:
            slot = self._pending.get(frame.id) if isinstance(frame.id, int) else None
            if slot is not None:
                slot.frame = frame
                slot.done.set()
        elif frame.id is None:
            try:
                self._inbound.notified(frame.method, params)
            except SidecarError:
                return
        elif len(self._serving) >= MAX_SERVED:
            self._send_soon(_refusal(frame.id, SidecarError(-32090, "overloaded", "The host is busy")))
        else:
            try:
                work = self._inbound.serve(frame.method, params)
            except SidecarError as error:
                self._send_soon(_refusal(frame.id, error))
                return
            scope = self._serving[frame.id] = anyio.CancelScope()
            tasks.start_soon(self._serve, frame.id, scope, work)

    async def _serve(self, request_id: int | str, scope: anyio.CancelScope, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            with scope:
                await self._send(await _answer(request_id, work))
        except ConnectionLost:
            return
        finally:
            if self._serving.get(request_id) is scope:
                del self._serving[request_id]

    def _end(self, lost: ConnectionLost) -> None:
        if self.lost is None:
            self.lost = lost
        for slot in self._pending.values():
            slot.done.set()


async def _answer(request_id: int | str, work: Callable[[], Awaitable[Any]]) -> _Answer:
    try:
        return _Answer("2.0", request_id, result=await work())
    except SidecarError as error:
        return _refusal(request_id, error)
    except Exception as error:
        logger.exception("the host's answer to a call of the daemon failed")
        return _refusal(request_id, SidecarError(-32000, "internal", f"The host failed: {type(error).__name__}"))


def _refusal(request_id: int | str, error: SidecarError) -> _Answer:
    data = {"reason": error.reason, **error.data}
    return _Answer("2.0", request_id, error={"code": error.code, "message": error.message, "data": data})


def _encode(frame: Struct) -> bytes:
    return msgspec.json.encode(frame) + b"\n"


def _result(frame: Frame | None, result: Any, lost: ConnectionLost | None) -> Any:
    if frame is None:
        raise lost or ConnectionLost()
    if frame.error is not None:
        raise SidecarError.from_wire(frame.error)
    raw = b"null" if isinstance(frame.result, UnsetType) else bytes(frame.result)
    try:
        return msgspec.json.decode(raw, type=result)
    except msgspec.ValidationError as error:
        raise SidecarError(-32000, "unexpected_result", f"The daemon's result has another shape: {error}") from None


def decode(params: bytes, kind: type[T]) -> T:
    """Params of the daemon, typed; `invalid_params` when they have another shape."""
    try:
        return msgspec.json.decode(params, type=kind)
    except msgspec.DecodeError:
        raise SidecarError(-32602, "invalid_params", "The host does not understand these params") from None
