"""A scripted model behind a real HTTP server on 127.0.0.1: both dialects, faults on demand.

Standard library only, so that the demo and the benchmarks can use it too. The server has a thread and an event loop of
its own: a test that blocks its loop does not stop the model. Every request body is kept byte for byte.

    with FakeLLM(sequence(Reply("hello"), Reply(tool_calls=[call("add", {"a": 1})]))) as llm:
        ...  # OPENAI_BASE_URL = llm.openai_url, ANTHROPIC_BASE_URL = llm.anthropic_url
        assert llm.requests[0].json["messages"][-1]["content"] == "hi"

A script is `callable(request, n) -> Reply` (or a coroutine function); `n` counts requests from 0. It runs on the
server's thread. `Gate` holds a reply back until the test opens it, so that no test has to sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support import fake_dialects as dialects

HEAD_LIMIT = 1 << 20
BODY_LIMIT = 256 << 20


class Gate:
    """Closed at first; `open()` may be called from any thread, before or after somebody waits."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        with self._lock:
            self._opened.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._opened.is_set():
                return
            self._waiters.append((asyncio.get_running_loop(), event))
        await event.wait()


@dataclass(slots=True)
class Reply:
    """What the model does with one request. Without anything set: it says "ok" and stops.

    `delay` and `chunk_delay` are seconds before the first byte and between chunks. `gate` holds the reply before its
    first byte, `hold_after=(k, gate)` after k events. `cut_after` resets the connection after that many events,
    `stall_after` stops sending and keeps it open. `raw` replaces the whole body, `events` the event stream.
    `slice_bytes` sends the stream in pieces of that size, whatever they cut apart.
    """

    text: str = "ok"
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    reasoning: str = ""
    signature: str = "c2lnbmF0dXJl"
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    completion_tokens: int | None = None
    usage: bool = True
    done: bool = True

    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    events: Iterable[bytes] | None = None

    chunks: int = 4
    delay: float = 0.0
    chunk_delay: float = 0.0
    gate: Gate | None = None
    hold_after: tuple[int, Gate] | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    refuse: bool = False
    slice_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; `body` is byte for byte what was sent."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.json.get("messages", ()))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Role and text of every message, whatever form its content has."""
        return [(m.get("role", ""), dialects.text_of(m.get("content"))) for m in self.messages]

    @property
    def is_anthropic(self) -> bool:
        return self.path.split("?")[0].rstrip("/").endswith("/messages")


Script: TypeAlias = Callable[[dict[str, Any], int], "Reply | Awaitable[Reply]"]


def call(name: str, arguments: dict[str, Any] | str | None = None, id: str = "") -> dict[str, Any]:
    """A tool call for `Reply.tool_calls`; text arguments are sent exactly so. Without `id`, the server makes one."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, separators=(",", ":"))
    return {"id": id, "name": name, "arguments": text}


def sequence(*replies: Reply | Script) -> Script:
    """Plays the replies in order; the last one again and again."""

    def script(request: dict[str, Any], n: int) -> Reply | Awaitable[Reply]:
        reply = replies[min(n, len(replies) - 1)]
        return reply(request, n) if callable(reply) else reply

    return script


def failure(status: int, message: str = "The model is not available", **more: Any) -> Reply:
    """An HTTP error in the form that both dialects use; `type`, `code` go into the error object, the rest to Reply."""
    error = {"message": message, "type": more.pop("type", "server_error"), "code": more.pop("code", None)}
    return Reply(status=status, error=error, **more)


class _Protocol(asyncio.StreamReaderProtocol):
    """Streams, and an event for the client's end: noticed without reading what may be its next request."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        super().__init__(asyncio.StreamReader(limit=HEAD_LIMIT), serve)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool:
        self.gone.set()
        return bool(super().eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


async def _gone(writer: asyncio.StreamWriter) -> None:
    protocol = writer.transport.get_protocol()
    assert isinstance(protocol, _Protocol)
    await protocol.gone.wait()


class FakeLLM:
    """The server. Attributes may be read from any thread; `requests` holds the last `keep` ones.

    `count` counts all requests, `connections` what was accepted for them, `disconnects` the streams whose client went
    away before their end.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        models: Iterable[str | dict[str, Any]] = ("fake-model",),
        keep: int | None = None,
        name: str = "fake-model",
    ) -> None:
        self.script: Script = script or (lambda request, n: Reply())
        self.models = [{"id": m, "object": "model"} if isinstance(m, str) else m for m in models]
        self.name = name
        self.requests: deque[Request] = deque(maxlen=keep)
        self.model_queries = 0
        self.count = 0
        self.connections = 0
        self.disconnects = 0
        self.port = 0
        self._calls = 0
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-llm", daemon=True)
        self._thread.start()
        self._started.wait(10)

    # ---------------------------------------------------------------- addresses and readings

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.origin

    @property
    def bodies(self) -> list[bytes]:
        return [r.body for r in list(self.requests)]

    def environment(self, model: str | None = None) -> dict[str, str]:
        """What a daemon needs to ask this model in either dialect."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": "sk-test-key-of-the-fake-model",
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": "sk-ant-test-key-of-the-fake-model",
            "SIDECAR_MODEL": model or f"openai/{self.name}",
        }

    async def wait_for(self, count: int, timeout: float = 10.0) -> Request:
        """Returns the `count`-th request (from 1) of those kept, once it is there; TimeoutError names what came."""
        end = time.monotonic() + timeout
        while self.count < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.count} of {count} requests came within {timeout} s")
            await asyncio.sleep(0.002)
        return self.requests[count - 1 - self.count + len(self.requests)]

    async def wait_for_disconnect(self, count: int = 1, timeout: float = 10.0) -> None:
        end = time.monotonic() + timeout
        while self.disconnects < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.disconnects} of {count} streams were left within {timeout} s")
            await asyncio.sleep(0.002)

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server and ends every open connection."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    # ---------------------------------------------------------------- the server's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Protocol(self._connection), "127.0.0.1", 0, backlog=512)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; False when the connection is to end."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, _, rest = head.partition("\r\n")
        method, path, _ = request_line.split(" ", 2)
        headers = {k.strip().lower(): v.strip() for k, _, v in (h.partition(":") for h in rest.split("\r\n") if h)}
        length = int(headers.get("content-length", 0))
        if length > BODY_LIMIT:
            return False
        body = await reader.readexactly(length)
        if method == "GET":
            self.model_queries += 1
            await _send_json(writer, 200, {"object": "list", "data": self.models})
            return True
        request = Request(path, headers, body, time.monotonic())
        n = self.count
        self.requests.append(request)
        self.count += 1
        reply = self.script(request.json, n)
        if inspect.isawaitable(reply):
            reply = await reply
        return await self._answer(writer, request, self._numbered(reply))

    def _numbered(self, reply: Reply) -> Reply:
        for tool_call in reply.tool_calls:
            if tool_call.get("id") == "":
                self._calls += 1
                tool_call["id"] = f"call_{self._calls}"
        return reply

    async def _answer(self, writer: asyncio.StreamWriter, request: Request, reply: Reply) -> bool:
        gone = asyncio.ensure_future(_gone(writer))
        work = asyncio.ensure_future(self._send(writer, request, reply))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.disconnects += 1
                return False
            return work.result() and not gone.done()
        except ConnectionError:
            self.disconnects += 1
            return False
        finally:
            for task in (gone, work):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task

    async def _send(self, writer: asyncio.StreamWriter, request: Request, reply: Reply) -> bool:
        """Whether the connection can be used again."""
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.refuse:
            writer.transport.abort()
            return False
        if reply.status != 200:
            if reply.raw is not None:
                await _send_body(writer, reply.status, reply.raw, reply.headers)
            else:
                await _send_json(writer, reply.status, _error_body(request, reply), reply.headers)
            return True
        asked = request.json
        counts = _counts(request, reply)
        if not asked.get("stream") and reply.events is None:
            if reply.raw is not None:
                await _send_body(writer, 200, reply.raw, reply.headers)
            else:
                whole = dialects.anthropic_whole if request.is_anthropic else dialects.openai_whole
                await _send_json(writer, 200, whole(asked, reply, counts), reply.headers)
            return True
        return await _stream(writer, _events(request, asked, reply, counts), reply)


def _counts(request: Request, reply: Reply) -> dialects.Counts:
    prompt = reply.prompt_tokens if reply.prompt_tokens is not None else max(1, len(request.body) // 4)
    said = len(reply.text) + len(reply.reasoning) + sum(len(c["arguments"]) for c in reply.tool_calls)
    completion = reply.completion_tokens if reply.completion_tokens is not None else max(1, said // 4)
    return dialects.Counts(prompt, reply.cached_tokens, completion)


def _events(request: Request, asked: dict[str, Any], reply: Reply, counts: dialects.Counts) -> Iterator[bytes]:
    if reply.raw is not None:
        return iter([reply.raw])
    if reply.events is not None:
        return iter(reply.events)
    stream = dialects.anthropic_stream if request.is_anthropic else dialects.openai_stream
    return stream(asked, reply, counts)


def _error_body(request: Request, reply: Reply) -> dict[str, Any]:
    error = reply.error if reply.error is not None else {"message": "boom", "type": "server_error"}
    return {"type": "error", "error": error} if request.is_anthropic else {"error": error}


async def _stream(writer: asyncio.StreamWriter, events: Iterator[bytes], reply: Reply) -> bool:
    headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers}
    writer.write(_head(200, headers))
    if reply.slice_bytes:
        events = _sliced(events, reply.slice_bytes)
    paced = reply.chunk_delay or reply.hold_after or reply.cut_after is not None or reply.stall_after is not None
    for i, event in enumerate(events):
        if reply.hold_after is not None and i == reply.hold_after[0]:
            await writer.drain()
            await reply.hold_after[1].wait()
        if reply.cut_after is not None and i >= reply.cut_after:
            await writer.drain()
            await asyncio.sleep(0)
            writer.close()
            return False
        if reply.stall_after is not None and i >= reply.stall_after:
            await asyncio.Event().wait()
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        if paced:
            await writer.drain()
            await asyncio.sleep(reply.chunk_delay)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _sliced(events: Iterable[bytes], size: int) -> Iterator[bytes]:
    rest = b""
    for event in events:
        rest += event
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _send_body(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]) -> None:
    base = {"content-type": "application/json", "content-length": str(len(body))}
    writer.write(_head(status, {**base, **headers}) + body)
    await writer.drain()


async def _send_json(
    writer: asyncio.StreamWriter, status: int, value: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    await _send_body(writer, status, json.dumps(value).encode(), headers or {})
