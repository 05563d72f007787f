"""What a turn costs over the HTTP call that it is made of, and whether a long history makes it dearer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import orjson

from scripts.benchmarks.daemon import Daemon, running_daemon
from scripts.benchmarks.rows import Row, median, row

WARM, TURNS, DELTAS = 20, 150, 80
SHORT, LONG = 10, 10_000
STEPS, ROUNDS = 12, 5
"""Steps in a row on one history, and how often the two histories take turns."""

LARGE = {"model": {"window": 50_000_000}}
"""No compaction."""


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with running_daemon() as (daemon, port):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", trust_env=False) as http:
            rows = [await _overhead(daemon, http), await _first_delta(daemon, port)]
        if daemon.cpu_ns():
            rows.append(await _cpu(daemon))
    return rows


# ---------------------------------------------------------------- overhead


async def _overhead(daemon: Daemon, http: httpx.AsyncClient) -> Row:
    session = await daemon.create("openai/instant", LARGE)
    for _ in range(WARM):
        await daemon.turn(session, "hello")
        await _bare_call(http)
    turns, calls = [], []
    for _ in range(TURNS):
        began = time.perf_counter()
        await daemon.turn(session, "hello")
        middle = time.perf_counter()
        await _bare_call(http)
        turns.append((middle - began) * 1e3)
        calls.append((time.perf_counter() - middle) * 1e3)
    overhead = median(turns) - median(calls)
    return row(
        "turn over the bare HTTP call (httpx, streamed)",
        overhead,
        "ms",
        median(calls),
        goal="at most 3 ms",
        ok=overhead <= 3,
    )


async def _bare_call(http: httpx.AsyncClient) -> None:
    body = {"model": "instant", "stream": True, "messages": [{"role": "user", "content": "hello"}] * 20}
    async with http.stream("POST", "/chat/completions", content=orjson.dumps(body)) as response:
        async for _ in response.aiter_bytes():
            pass


# ---------------------------------------------------------------- the first delta


async def _first_delta(daemon: Daemon, port: int) -> Row:
    """From the model's write to the host's read, less the same over a bare socket."""
    session = await daemon.create("openai/stamped", LARGE)
    through, bare = [], []
    delays: list[int] = []

    def note(params: dict[str, Any], moment: int) -> None:
        if params["event"]["type"] == "text_delta":
            delays.append(moment - int(params["event"]["text"]))

    daemon.on_event = note
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for n in range(DELTAS + 10):
        delays.clear()
        await daemon.turn(session, "hello")
        sample = await _bare_delta(reader, writer)
        if n >= 10:
            through.append(delays[0] / 1e6)
            bare.append(sample / 1e6)
    daemon.on_event = None
    writer.close()
    share = median(through) - median(bare)
    return row(
        "daemon's share of the first delta, provider byte to host byte",
        share,
        "ms",
        median(bare),
        goal="at most 1 ms",
        ok=share <= 1,
    )


async def _bare_delta(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    body = b'{"model":"stamped"}'
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    held, delay = b"", 0
    while not held.endswith(b"0\r\n\r\n"):
        held += await reader.read(65536)
        moment = time.monotonic_ns()
        at = held.find(b'"content": "')
        if delay == 0 and at >= 0:
            delay = moment - int(held[at + 12 : at + 28])
    return delay


# ---------------------------------------------------------------- a step on a long history


async def _cpu(daemon: Daemon) -> Row:
    """CPU of the daemon for a step, all threads, user and system: the request's bytes are sent, whatever they are."""
    sessions = [await _with_history(daemon, count) for count in (SHORT, LONG)]
    figures: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for kind, session in enumerate(sessions):
            before = daemon.cpu_ns()
            for _ in range(STEPS):
                await daemon.turn(session, "next")
            figures[kind].append((daemon.cpu_ns() - before) / STEPS / 1e6)
    short, long = median(figures[0]), median(figures[1])
    return row(
        f"CPU of a step with {LONG:,} messages before it, against {SHORT}",
        long,
        "ms",
        short,
        goal="at most 1.3 x",
        ok=long <= 1.3 * short,
    )


async def _with_history(daemon: Daemon, count: int) -> str:
    session = await daemon.create("openai/instant", LARGE)
    history = [
        {"id": f"h{n}", "role": "user" if n % 2 == 0 else "assistant", "content": [_text(n)], "time": 1}
        for n in range(count)
    ]
    await daemon.turn(session, "go on", history=history)
    for _ in range(WARM):
        await daemon.turn(session, "next")
    return session


def _text(n: int) -> dict[str, str]:
    return {"type": "text", "text": f"message {n} of the history"}
