"""What a compaction of a long context costs, the model left out: from the request to the daemon until the model has
the summary request, and from the model's answer until the landing is told (and on disk)."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import orjson

from scripts.benchmarks.daemon import Daemon, running_daemon
from scripts.benchmarks.rows import Row, median, row

MESSAGES = 10_000
REPEATS = 5
WINDOW = 50_000_000
_MOMENTS = re.compile(r"arrived (\d{16}) sent (\d{16})")


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with running_daemon() as (daemon, _):
        await daemon.turn(await daemon.create("openai/instant"), "warm up")
        planned, landed, plain = [], [], []
        for n in range(REPEATS + 1):
            planning, landing = await _compaction(daemon)
            baseline = _plain()
            if n:  # the first one warms what only compactions use
                planned.append(planning)
                landed.append(landing)
                plain.append(baseline)
    both = [p + q for p, q in zip(planned, landed, strict=True)]
    value = median(both)
    return [
        row(
            f"compaction of {MESSAGES:,} messages, model left out (to encode them once with orjson)",
            value,
            "ms",
            median(plain),
            goal="at most 50 ms",
            ok=value <= 50,
        ),
        row("- until the model has the request", median(planned), "ms"),
        row("- from its answer to the landing that is told", median(landed), "ms"),
    ]


async def _compaction(daemon: Daemon) -> tuple[float, float]:
    """Milliseconds before the model and after it."""
    session = await daemon.create("openai/summary", {"model": {"window": WINDOW}})
    await daemon.turn(session, "go on", history=history(MESSAGES))
    landed: list[int] = []

    def note(params: dict[str, Any], moment: int) -> None:
        if params["event"]["type"] == "compaction_landed":
            landed.append(moment)

    daemon.on_event = note
    began = time.monotonic_ns()
    result = await daemon.call("agent.chat.compact", session_id=session)
    daemon.on_event = None
    if result["outcome"] != "landed":
        raise RuntimeError(f"the compaction did not land: {result}")
    found = await daemon.call("record.query", session_id=session, types=["compaction.summary"])
    moments = _MOMENTS.search(found["records"][0]["record"]["summary"])
    assert moments is not None
    arrived, sent = int(moments[1]), int(moments[2])
    await daemon.call("agent.session.delete", session_id=session)
    return (arrived - began) / 1e6, (landed[0] - sent) / 1e6


def history(count: int) -> list[dict[str, Any]]:
    """A conversation of many short messages with a question of the user's in every eight."""
    return [
        {
            "id": f"h{n}",
            "role": "user" if n % 8 == 0 else "assistant",
            "content": [{"type": "text", "text": f"message {n} of a long conversation about the move of a store"}],
            "time": 1,
        }
        for n in range(count)
    ]


def _plain() -> float:
    messages = history(MESSAGES)
    began = time.perf_counter()
    for message in messages:
        orjson.dumps(message)
    return (time.perf_counter() - began) * 1e3
