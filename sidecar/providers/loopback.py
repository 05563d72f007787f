"""A transport for servers on this machine: HTTP/1.1 over plain sockets.

httpx's own transport brings what the outside world needs (TLS, proxies, HTTP/2, address races) through several layers,
which cost more than the whole rest of a short turn. Here a local model's answer goes from the socket through the
HTTP parser (h11) to httpx in one step. Everything that can go wrong is raised as httpx's own errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import anyio
import h11
import httpx

READ_BYTES = 64 << 10
MAX_HEAD_BYTES = 100 << 10
JOIN_BYTES = 64 << 10
"""A request's head goes out with the first bytes of its body, unless those are so many that joining costs more."""

WRITE_BYTES = 256 << 10

Origin = tuple[str, int]


class Connection:
    """One socket and the parser of what is on it. Used by one request at a time."""

    __slots__ = ("_parser", "_reader", "_writer", "idle_since", "origin")

    def __init__(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)

    @property
    def is_alive(self) -> bool:
        """Whether the other side has neither closed nor said anything since the last answer."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    async def send(self, request: httpx.Request, timeout: float | None) -> None:
        """Head and body. The parser only hears how long the body is: its pieces go to the socket as they are."""
        parser, writer = self._parser, self._writer
        chunks = await _body(request)
        size = sum(map(len, chunks))
        first = parser.send(
            h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        )
        if size:
            parser.send_with_data_passthrough(h11.Data(data=cast(bytes, _Sized(size))))
        parser.send(h11.EndOfMessage())
        assert first is not None
        with anyio.fail_after(timeout):
            if size <= JOIN_BYTES:
                writer.write(first + b"".join(chunks))
                await writer.drain()
                return
            writer.write(first)
            for chunk in chunks:
                # In parts: what the socket does not take at once is copied.
                view = memoryview(chunk)
                for at in range(0, len(view), WRITE_BYTES):
                    writer.write(view[at : at + WRITE_BYTES])
                    await writer.drain()

    async def event(self, timeout: float | None) -> Any:
        """The parser's next event; waits for bytes at most `timeout` seconds at a time."""
        while True:
            event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            with anyio.fail_after(timeout):
                data = await self._reader.read(READ_BYTES)
            self._parser.receive_data(data)

    def finish(self) -> bool:
        """Makes the connection ready for another request; False when it cannot take one."""
        if self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE:
            return False
        self._parser.start_next_cycle()
        self.idle_since = time.monotonic()
        return self.is_alive

    def close(self) -> None:
        """At once: what was not sent is not sent."""
        self._writer.transport.abort()


class Chunks(httpx.AsyncByteStream):
    """A request's body as the pieces that it is made of; the request's head says how long they are together."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class _Sized:
    """Stands for bytes that are sent past the parser, which only asks how many they are."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


async def _body(request: httpx.Request) -> Sequence[bytes]:
    stream = request.stream
    if isinstance(stream, Chunks):
        return stream.pieces
    assert isinstance(stream, httpx.AsyncByteStream)
    return [piece async for piece in stream]


class LoopbackTransport(httpx.AsyncBaseTransport):
    """Keeps at most `max_idle` connections for `keepalive_s` seconds; open ones are not bounded (callers are)."""

    def __init__(self, max_idle: int, keepalive_s: float) -> None:
        self._max_idle = max_idle
        self._keepalive_s = keepalive_s
        self._idle: list[Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeout = request.extensions.get("timeout", {})
        origin = (request.url.host, request.url.port or 80)
        connection = self._take(origin) or await _connect(origin, timeout.get("connect"), request)
        try:
            try:
                await connection.send(request, timeout.get("write"))
            except TimeoutError:
                raise httpx.WriteTimeout("", request=request) from None
            except h11.LocalProtocolError:
                raise httpx.LocalProtocolError("", request=request) from None
            except OSError:
                pass  # it may have answered before it stopped listening
            head = await _next(connection, timeout.get("read"), request)
            while isinstance(head, h11.InformationalResponse):
                head = await _next(connection, timeout.get("read"), request)
        except BaseException:
            connection.close()
            raise
        if not isinstance(head, h11.Response):
            connection.close()
            raise httpx.RemoteProtocolError("", request=request)
        stream = _BodyStream(self, connection, request, timeout.get("read"))
        return httpx.Response(head.status_code, headers=list(head.headers), stream=stream)

    def _take(self, origin: Origin) -> Connection | None:
        now = time.monotonic()
        for connection in [*reversed(self._idle)]:
            fresh = connection.is_alive and now - connection.idle_since <= self._keepalive_s
            if not fresh or connection.origin == origin:
                self._idle.remove(connection)
                if fresh:
                    return connection
                connection.close()
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.finish():
            self._idle.append(connection)
            if len(self._idle) > self._max_idle:
                self._idle.pop(0).close()
        else:
            connection.close()

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _BodyStream(httpx.AsyncByteStream):
    def __init__(
        self, owner: LoopbackTransport, connection: Connection, request: httpx.Request, timeout: float | None
    ) -> None:
        self._owner = owner
        self._connection: Connection | None = connection
        self._request = request
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (connection := self._connection) is not None:
            event = await _next(connection, self._timeout, self._request)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._connection = None
                self._owner.give_back(connection)
            else:
                raise httpx.RemoteProtocolError("", request=self._request)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


async def _connect(origin: Origin, timeout: float | None, request: httpx.Request) -> Connection:
    try:
        with anyio.fail_after(timeout):
            reader, writer = await asyncio.open_connection(*origin, limit=READ_BYTES)
    except TimeoutError:
        raise httpx.ConnectTimeout("", request=request) from None
    except OSError:
        raise httpx.ConnectError("", request=request) from None
    return Connection(origin, reader, writer)


async def _next(connection: Connection, timeout: float | None, request: httpx.Request) -> Any:
    try:
        return await connection.event(timeout)
    except TimeoutError:
        raise httpx.ReadTimeout("", request=request) from None
    except h11.RemoteProtocolError:
        raise httpx.RemoteProtocolError("", request=request) from None
    except OSError:
        raise httpx.ReadError("", request=request) from None
