"""A model that answers at once: chat completions over HTTP on 127.0.0.1, in a process of its own.

    python -m scripts.benchmarks.model        prints its port, ends when its stdin does

The name of the model chooses the answer: `instant` one short chunk, `summary` a long one, `stamped` one chunk that
holds the moment at which it is sent (CLOCK_MONOTONIC, ns) 3 ms after the headers, `ticking` thirty of them, two a
second from a chance moment on. `summary` ends with the moments when its request had arrived and its answer is sent.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SUMMARY = "The goal is to keep the service running while its store moves; ports and limits stay as they are. " * 24
TICKS, TICK_S = 30, 0.5
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.I)
_MODEL = re.compile(rb'"model":\s*"([a-z]+)"')


def event(delta: dict[str, str], finish: str | None = None, usage: dict[str, object] | None = None) -> bytes:
    """One server-sent event as one HTTP chunk."""
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body: dict[str, object] = {"id": "b", "object": "chat.completion.chunk", "model": "b", "choices": choices}
    if usage:
        body["usage"] = usage
    data = b"data: %b\n\n" % json.dumps(body).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def ending(request_bytes: int) -> bytes:
    """Finish reason, usage (a quarter token a byte, all but the newest of it cached), the end of the stream."""
    prompt = max(1, request_bytes // 4)
    details = {"cached_tokens": max(0, prompt - 64)}
    usage = {"prompt_tokens": prompt, "completion_tokens": 12, "prompt_tokens_details": details}
    done = b"data: [DONE]\n\n"
    return event({}, "stop") + event({}, None, usage) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)


def now() -> str:
    return f"{time.monotonic_ns():016d} "


class Connection(asyncio.Protocol):
    """One kept-alive connection; requests come one after the other."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._need = 0
        self._model = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._need:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._held, 0, end + 2)
            self._need = end + 4 + (int(length[1]) if length else 0)
        if len(self._held) < self._need:
            return
        head = bytes(self._held[:4096])
        tail = bytes(self._held[-512:])
        found = _MODEL.search(head) or _MODEL.search(tail)
        size, self._held, self._need = self._need, bytearray(), 0
        self._answer(found[1] if found else b"instant", size)

    def _answer(self, model: bytes, size: int) -> None:
        if model == b"stamped":
            self._task = asyncio.ensure_future(self._tick(1, 0.003, size))
        elif model == b"ticking":
            self._task = asyncio.ensure_future(self._tick(TICKS, TICK_S, size))
        elif model == b"summary":
            text = f"{SUMMARY}arrived {now()}"
            self._transport.write(HEAD + event({"content": f"{text}sent {now()}"}) + ending(size))
        else:
            self._transport.write(HEAD + event({"content": "Done, nothing is left to do."}) + ending(size))

    async def _tick(self, count: int, every_s: float, size: int) -> None:
        self._transport.write(HEAD)
        if count > 1:
            await asyncio.sleep(random.random() * every_s)
        for _ in range(count):
            await asyncio.sleep(every_s)
            self._transport.write(event({"content": now()}))
        await asyncio.sleep(0.003)  # as in life, what follows does not come in the same packet
        self._transport.write(ending(size))


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
