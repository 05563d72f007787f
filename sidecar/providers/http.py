"""The transport: shared clients, and one request's way from bytes to events.

Clients are shared by all providers and live as long as the registry: connections are kept and reused, a turn costs no
new client. The environment's proxies are trusted for the outside world and never for this machine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import httpx

from sidecar.providers.errors import LEAKED_ERRORS, ProviderError, from_transport
from sidecar.providers.failures import Judge
from sidecar.providers.loopback import Chunks, LoopbackTransport
from sidecar.providers.port import EncodedRequest, StreamEvent
from sidecar.providers.quirks import is_loopback
from sidecar.providers.sse import MAX_EVENT_BYTES, EventTooLarge, SseDecoder
from sidecar.providers.stream import StreamDecoder

TRANSPORT_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, httpx.CookieConflict, *LEAKED_ERRORS)

MAX_ERROR_BYTES = 64 << 10
ERROR_BODY_S = 10.0
"""How much of a refusal's body is read, and for how long: enough for its words."""

SETTLE_S = 5.0
"""How long figures (usage) are waited for once the answer itself is whole."""

BETTER_S = 1.0
"""How long better ones are waited for where the answer has told some."""

DRAIN_S = 0.02
"""How long the end of a whole answer is waited for, so that its connection can be used again."""

CLOSE_S = 1.0
"""How long closing a response may take; the connection is given up after that."""

STALL_FACTOR = 10
"""An answer that brings heartbeats and nothing else for this many idle timeouts is given up."""

JOIN_BYTES = 128 << 10
"""Requests up to this size are sent in one piece, larger ones as the chunks that they are made of, uncopied."""

BAD_CERTIFICATES = "the certificates cannot be read: check SSL_CERT_FILE and SSL_CERT_DIR"
BAD_PROXIES = (
    "the environment names a proxy that cannot be used: check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY "
    "(http, https and socks5 proxies can)"
)

KEEPALIVE_S = 30.0
MAX_IDLE_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests of one provider go. `headers` hold the key: they are in no repr."""

    name: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    judge: Judge = field(repr=False)
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0


class HttpPool:
    """The clients, made when first needed: one per kind of address, for the life of the process."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._lock = anyio.Lock()

    async def client(self, url: str) -> httpx.AsyncClient:
        """The client for an address. The system's certificates are read in a thread, and only where TLS is. Raises
        `ProviderError` (`rejected`) when what the environment says of proxies or certificates cannot be used."""
        parts = urlsplit(url)
        local = is_loopback(parts.hostname or "")
        kind = "outside" if not local else "loopback" if parts.scheme == "http" else "loopback_tls"
        found = self._clients.get(kind)
        if found is None:
            async with self._lock:
                found = self._clients.get(kind) or await _make_client(kind)
                self._clients[kind] = found
        return found

    async def aclose(self) -> None:
        """Closes every connection. Streams that are still open end as cut."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await client.aclose()


async def _make_client(kind: str) -> httpx.AsyncClient:
    outside = kind == "outside"
    if kind == "loopback":
        return httpx.AsyncClient(transport=LoopbackTransport(MAX_IDLE_CONNECTIONS, KEEPALIVE_S), trust_env=False)
    try:
        context = await anyio.to_thread.run_sync(httpx.create_ssl_context)
    except OSError:
        raise ProviderError("rejected", BAD_CERTIFICATES) from None
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEPALIVE_S
    )
    try:
        return httpx.AsyncClient(verify=context, trust_env=outside, limits=limits)
    except (ImportError, ValueError, httpx.InvalidURL):
        # a scheme that is unknown, an address that is none
        raise ProviderError("rejected", BAD_PROXIES) from None


@asynccontextmanager
async def exchange(
    pool: HttpPool, endpoint: Endpoint, request: EncodedRequest, decoder: StreamDecoder
) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    """Sends a request and gives its events. Raises `ProviderError` on entering (no connection, a refusal) or while
    iterating (a cut, a stall, an error in the stream). Leaving closes the response at once, whatever is still coming;
    the connection is kept only if the answer was read to its end."""
    response = await _send(pool, endpoint, request)
    try:
        if not response.is_success:
            raise await _refusal(endpoint, response)
        answer = _Answer(endpoint, response, decoder)
        events = answer.events()
        try:
            yield events
        except ProviderError as error:
            error.usage = decoder.spent()
            raise
        finally:
            await events.aclose()
        await answer.drain()
    finally:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await response.aclose()


async def _send(pool: HttpPool, endpoint: Endpoint, request: EncodedRequest) -> httpx.Response:
    size = request.size
    headers = dict(endpoint.headers)
    headers["content-length"] = str(size)
    connect = endpoint.connect_timeout_s
    timeout = httpx.Timeout(endpoint.idle_timeout_s, connect=connect, pool=connect)
    chunks = (request.body,) if size <= JOIN_BYTES else request.chunks
    try:
        client = await pool.client(endpoint.url)
        message = client.build_request("POST", endpoint.url, headers=headers, timeout=timeout)
        message.stream = Chunks(chunks)
        return await client.send(message, stream=True)
    except TRANSPORT_ERRORS as error:
        raise from_transport(endpoint.name, error) from None


async def _refusal(endpoint: Endpoint, response: httpx.Response) -> ProviderError:
    body = bytearray()
    try:
        with anyio.move_on_after(ERROR_BODY_S):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except TRANSPORT_ERRORS:
        pass  # the status is known; its words were cut off
    said = bytes(body[:MAX_ERROR_BYTES])
    return endpoint.judge.answer(response.status_code, dict(response.headers), said, time.time())


class _Answer:
    """Reads one response: bytes, server-sent events, the decoder's events."""

    def __init__(self, endpoint: Endpoint, response: httpx.Response, decoder: StreamDecoder) -> None:
        self._endpoint = endpoint
        self._decoder = decoder
        self._chunks = response.aiter_bytes()
        self._is_json = "json" in response.headers.get("content-type", "").lower()
        self._ended = False
        self._spoilt = False
        self._waited = 0.0  # since the answer was whole

    async def events(self) -> AsyncGenerator[StreamEvent]:
        sse, decoder = SseDecoder(), self._decoder
        if self._is_json:
            for event in await self._whole(sse):
                yield event
        moved = time.monotonic()
        while not self._complete():
            chunk = await self._next()
            if chunk is None:
                break
            taken = decoder.taken
            for event in self._read(sse, chunk):
                yield event
            if decoder.taken != taken:
                moved = time.monotonic()
            elif not decoder.settled and time.monotonic() - moved > STALL_FACTOR * self._endpoint.idle_timeout_s:
                raise self._endpoint.judge.unreadable("the connection is alive, but the answer stalled")
        if not self._complete():
            for event in self._last(sse):
                yield event
        for event in decoder.result():
            yield event

    def _read(self, sse: SseDecoder, chunk: bytes) -> Iterator[StreamEvent]:
        """The events in these bytes. What cannot be read spoils the answer only while that is not whole."""
        decoder, judge = self._decoder, self._endpoint.judge
        try:
            for message in sse.feed(chunk):
                yield from decoder.feed(message)
                if self._complete():
                    return
        except EventTooLarge:
            if not decoder.settled:
                raise judge.unreadable(f"one event of the answer is over {MAX_EVENT_BYTES >> 20} MiB") from None
            self._spoilt = True
        except ProviderError:
            if not decoder.settled:
                raise
            self._spoilt = True

    def _complete(self) -> bool:
        """Whether nothing more is worth reading."""
        return self._decoder.complete or self._spoilt

    async def drain(self) -> None:
        """Reads the end of an answer that is whole, if it is there already."""
        if not self._decoder.complete or self._ended:
            return
        try:
            with anyio.move_on_after(DRAIN_S):
                async for _ in self._chunks:
                    pass
        except TRANSPORT_ERRORS:
            pass  # the answer is whole; its connection will not be used again

    async def _next(self) -> bytes | None:
        """The next bytes; None at the end. Once the answer is whole, no failure and no wait spoils it any more."""
        try:
            if not self._decoder.settled:
                return await anext(self._chunks)
            return await self._rest()
        except StopAsyncIteration:
            self._ended = True
        except TRANSPORT_ERRORS as error:
            self._ended = True
            if not self._decoder.settled:
                raise from_transport(self._endpoint.name, error) from None
        return None

    async def _rest(self) -> bytes | None:
        """The next bytes behind a whole answer; heartbeats do not prolong what they are waited for in all."""
        patience = SETTLE_S if self._decoder.spent() is None else BETTER_S
        before = time.monotonic()
        try:
            with anyio.move_on_after(max(0.0, patience - self._waited)):
                return await anext(self._chunks)
        finally:
            self._waited += time.monotonic() - before
        return None

    def _last(self, sse: SseDecoder) -> list[StreamEvent]:
        """An event that the stream ended in the middle of counts if it can be read."""
        try:
            message = sse.finish()
            return self._decoder.feed(message) if message is not None else []
        except (EventTooLarge, ProviderError) as error:
            if isinstance(error, ProviderError) and error.status is not None:
                raise  # an error that the provider told, not a torn event
            return []

    async def _whole(self, sse: SseDecoder) -> list[StreamEvent]:
        """An answer that calls itself JSON: one document, or after all a stream under a wrong name."""
        body = bytearray()
        while (chunk := await self._next()) is not None:
            body += chunk
            if len(body) > MAX_EVENT_BYTES:
                raise self._endpoint.judge.unreadable(f"the answer is over {MAX_EVENT_BYTES >> 20} MiB")
        if body.lstrip().startswith((b"{", b"[")):
            return self._decoder.whole(bytes(body))
        return list(self._read(sse, bytes(body)))


async def fetch_json(pool: HttpPool, endpoint: Endpoint, url: str, limit: int) -> bytes:
    """The body of a GET, at most `limit` bytes. Raises `ProviderError`."""
    timeout = httpx.Timeout(endpoint.idle_timeout_s, connect=endpoint.connect_timeout_s)
    body = bytearray()
    try:
        client = await pool.client(url)
        async with client.stream("GET", url, headers=dict(endpoint.headers), timeout=timeout) as response:
            if not response.is_success:
                raise await _refusal(endpoint, response)
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    raise endpoint.judge.unreadable("the list of models is too large")
    except TRANSPORT_ERRORS as error:
        raise from_transport(endpoint.name, error) from None
    return bytes(body)
