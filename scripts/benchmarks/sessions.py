"""Two hundred sessions in one daemon: what an idle one holds, and whether one's compaction holds up the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from scripts.benchmarks.compaction import MESSAGES, history
from scripts.benchmarks.daemon import Daemon, running_daemon
from scripts.benchmarks.rows import Row, median, row

SESSIONS = 200
AT_ONCE = 16
TEXTS = [f"{n} " + "some words of a conversation that is not very long yet " * 36 for n in range(20)]
CONTEXT = [
    {
        "id": f"h{n}",
        "role": "user" if n % 2 == 0 else "assistant",
        "time": 1,
        "content": [{"type": "text", "text": text}],
    }
    for n, text in enumerate(TEXTS)
]
CONTEXT_KIB = sum(map(len, TEXTS)) / 1024
"""About 40."""

COMPACTIONS = 5
STRETCH_S = 0.8
LIMIT_MS, LIMIT_KIB = 50, 200


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with running_daemon() as (daemon, _):
        await _warm(daemon)
        before = daemon.rss_kib()
        made = await _limited(SESSIONS, lambda n: _session(daemon))
        await asyncio.sleep(0.5)
        held = (daemon.rss_kib() - before) / SESSIONS - CONTEXT_KIB
        rows = []
        if before:
            rows.append(
                row(
                    f"memory of one of {SESSIONS} idle sessions, over its context of {CONTEXT_KIB:.0f} KiB",
                    held,
                    "KiB",
                    goal=f"at most {LIMIT_KIB} KiB",
                    ok=held <= LIMIT_KIB,
                )
            )
        rows += await _delays(daemon, made)
    return rows


async def _warm(daemon: Daemon) -> None:
    """Everything is loaded, the vocabulary too: it is not the sessions' memory."""
    for _ in range(3):
        await _session(daemon)
    await asyncio.sleep(1.5)


async def _session(daemon: Daemon) -> str:
    session = await daemon.create("openai/ticking")
    await daemon.call("agent.session.configure", session_id=session, model="openai/instant")
    await daemon.turn(session, "go on", history=CONTEXT)
    await daemon.call("agent.session.configure", session_id=session, model="openai/ticking")
    return session


async def _limited(count: int, make: Callable[[int], Awaitable[str]]) -> list[str]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> str:
        async with gate:
            return await make(n)

    return await asyncio.gather(*(one(n) for n in range(count)))


# ---------------------------------------------------------------- delays


class Delays:
    """From the model's write to the host's read, of every delta: the moment of the write, and the delay, in ns."""

    def __init__(self, sessions: int) -> None:
        self.seen: list[tuple[int, int]] = []
        self.all_running = asyncio.Event()
        self._waiting_for = sessions
        self._running: set[str] = set()

    def __call__(self, params: dict[str, Any], moment: int) -> None:
        event = params["event"]
        if event["type"] == "text_delta":
            self._running.add(params["session_id"])
            if len(self._running) == self._waiting_for:
                self.all_running.set()
            self.seen += ((int(stamp), moment - int(stamp)) for stamp in event["text"].split())

    def longest(self, begin: int, end: int) -> float:
        """In ms, of what was written between two moments; 0 if nothing was."""
        return max((delay for stamp, delay in self.seen if begin <= stamp <= end), default=0) / 1e6


async def _delays(daemon: Daemon, sessions: list[str]) -> list[Row]:
    """Quiet stretches and compactions take turns while all sessions stream; the medians of their longest delays."""
    large = [await _large(daemon) for _ in range(COMPACTIONS)]
    delays = daemon.on_event = Delays(len(sessions))
    quiet: list[float] = []
    busy: list[float] = []
    async with asyncio.TaskGroup() as group:
        turns = [group.create_task(daemon.turn(session, "next")) for session in sessions]
        await asyncio.wait_for(delays.all_running.wait(), 10)
        for session in large:
            begin = time.monotonic_ns()
            await asyncio.sleep(STRETCH_S)
            middle = time.monotonic_ns()
            await daemon.call("agent.chat.compact", session_id=session)
            await asyncio.sleep(max(0.1, STRETCH_S - (time.monotonic_ns() - middle) / 1e9))
            end = time.monotonic_ns()
            await asyncio.sleep(0.1)
            quiet.append(delays.longest(begin, middle))
            busy.append(delays.longest(middle, end))
        if any(turn.done() for turn in turns):
            raise RuntimeError("turns ended before the last compaction: the machine is too busy for this figure")
    daemon.on_event = None
    value, baseline = median(busy), median(quiet)
    return [
        row(
            f"longest delay of an event of {SESSIONS} running sessions while another compacts {MESSAGES:,} messages, "
            "against a stretch without",
            value,
            "ms",
            baseline,
            goal=f"at most {LIMIT_MS} ms more",
            ok=value - baseline <= LIMIT_MS,
        )
    ]


async def _large(daemon: Daemon) -> str:
    session = await daemon.create("openai/summary", {"model": {"window": 50_000_000}})
    await daemon.turn(session, "go on", history=history(MESSAGES))
    return session
