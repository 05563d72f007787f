"""kill -9 at random moments of a conversation with tools: nothing that was acknowledged is ever missing.

`SIDECAR_KILLS` sets how often the daemon is killed; a run of 200 is the full proof, fewer keep the suite short.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from sidecar.client.errors import ConnectionLost, SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.running import Sidecar, running_sidecar

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("SIDECAR_KILLS", "40"))


@host_tool("look", "Looks.", {"n": {"type": "integer"}})
async def look(call: HostCall) -> str:
    return f"seen {call.arguments['n']}"


def script(request: dict[str, Any], n: int) -> Reply:
    """Two parallel calls, then an answer; now and then a longer stream."""
    if request["messages"][-1]["role"] == "tool":
        return Reply(f"answer {n} " + "word " * (n % 40), chunks=1 + n % 12, chunk_delay=0.004)
    return Reply("looking", tool_calls=[call("look", {"n": n}, f"a{n}"), call("look", {"n": n + 1}, f"b{n}")])


def problem(messages: list[dict[str, Any]]) -> str | None:
    """Why a provider would refuse these messages."""
    waiting: list[str] = []
    for i, m in enumerate(messages):
        if m["role"] == "tool":
            if m["tool_call_id"] not in waiting:
                return f"result {i} answers nothing"
            waiting.remove(m["tool_call_id"])
            continue
        if waiting:
            return f"calls {waiting} are not answered before {i}"
        if m["role"] == "assistant":
            waiting = [c["id"] for c in m.get("tool_calls") or ()]
            if not waiting and not (m.get("content") or "").strip():
                return f"blank assistant message {i}"
    return f"calls {waiting} are open at the end" if waiting else None


async def live(sidecar: Sidecar, sid: str, rng: random.Random, said: list[str], ended: dict[str, str]) -> None:
    """Sends until it is killed; notes what the daemon acknowledged."""
    with sidecar.client.events(sid) as events:

        async def watch() -> None:
            async for told in events:
                if isinstance(told.event, e.TurnEnded) and told.event.stop_reason == "end_turn":
                    ended[told.event.turn_id] = told.event.text

        async def talk() -> None:
            while True:
                text = f"prompt-{len(said):04d}-{rng.random()}"
                if rng.random() < 0.2:
                    await sidecar.client.chat.steer(sid, text)
                    said.append(text)
                elif rng.random() < 0.4:
                    await sidecar.client.chat.send(sid, text)
                    said.append(text)
                else:
                    await sidecar.client.chat.run(sid, text)
                    said.append(text)

        async def kill() -> None:
            await anyio.sleep(rng.random() * 0.8)
            await sidecar.kill()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            group.start_soon(kill)
            try:
                await talk()
            except (ConnectionLost, SidecarError):
                await anyio.sleep_forever()


@pytest.mark.deadline(max(240, 5 * KILLS))
async def test_a_storm_of_kills(tmp_path: Path) -> None:
    rng = random.Random(20_260_101)
    said: list[str] = []
    ended: dict[str, str] = {}
    sid = ""
    with FakeLLM(script) as llm:
        for round_ in range(KILLS):
            async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
                client = sidecar.client
                if not sid:
                    made = await client.sessions.create(
                        cwd=str(sidecar.work), tools=[look], config={"model": {"window": 2_000_000}}
                    )
                    sid = made.session_id
                else:
                    await client.sessions.resume(sid, tools=[look])
                    texts = {m.text for m in (await all_messages(sidecar, sid))}
                    lost = [s for s in said if s not in texts]
                    waiting = {
                        r["message"]["content"][0]["text"]
                        for r in sidecar.records(sid)
                        if "message" in r and r.get("queued")
                    }
                    assert [s for s in lost if s not in waiting] == [], f"lost after kill {round_}"
                    for turn_id, text in ended.items():
                        assert text in texts, f"the answer of {turn_id} is gone after kill {round_}"
                await live(sidecar, sid, rng, said, ended)
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            await sidecar.client.sessions.resume(sid, tools=[look])
            result = await sidecar.client.chat.run(sid, "the last one")
            assert result.stop_reason == "end_turn"
            texts = {m.text for m in await all_messages(sidecar, sid)}
            assert [s for s in said if s not in texts] == []
            verified = await sidecar.client.records.verify(sid)
            assert [p for a in verified.agents for p in a.problems if p.kind not in ("torn_tail",)] == []
        assert [p for p in (problem(r.messages) for r in llm.requests) if p] == []
    assert len(said) >= KILLS // 8
    assert ended


async def all_messages(sidecar: Sidecar, sid: str) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = await sidecar.client.sessions.messages(sid, view="full", cursor=cursor)
        found += page.messages
        cursor = page.next_cursor
        if cursor is None:
            return found
