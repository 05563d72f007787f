"""The queue of one connection: order, merging, sizes, waiting."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from sidecar.rpc.codec import notification
from sidecar.rpc.outbox import Outbox
from sidecar.rpc.port import Delta, Limits, SharedEvent

SOFT, HARD = 4096, 65536
pytestmark = pytest.mark.anyio


def delta(offset: int, text: str, **changes: Any) -> Delta:
    fields: dict[str, Any] = {
        "session_id": "s",
        "agent_id": "main",
        "event_id": "0-1",
        "turn_id": "t",
        "kind": "text_delta",
        "message_id": "m",
    }
    return Delta(**{**fields, **changes}, offset=offset, text=text)


def event(n: int, session_id: str = "s") -> SharedEvent:
    return SharedEvent(session_id, notification("agent.chat.event", {"n": n, "session_id": session_id}))


def taken(outbox: Outbox) -> list[Any]:
    data = b""
    while outbox.size:
        data += outbox.take("lines", 1000)
        outbox.written()
    return [json.loads(line)["params"] for line in data.splitlines()]


def fill(outbox: Outbox) -> None:
    outbox.put(notification("filler", {"x": "x" * SOFT}))


async def test_deltas_are_kept_apart_below_the_soft_bound() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    for i in range(3):
        outbox.put_event(delta(i * 2, "ab"))
    events = taken(outbox)
    assert [e["event"] for e in events] == [
        {"type": "text_delta", "message_id": "m", "text": "ab", "offset": i * 2} for i in range(3)
    ]
    assert {k: events[0][k] for k in ("session_id", "agent_id", "event_id", "turn_id")} == {
        "session_id": "s",
        "agent_id": "main",
        "event_id": "0-1",
        "turn_id": "t",
    }


async def test_past_the_soft_bound_deltas_of_one_message_become_one() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    fill(outbox)
    text = ""
    for i in range(1000):
        outbox.put_event(delta(len(text), f"<{i}\U0001f600>"))
        text += f"<{i}\U0001f600>"
    assert outbox.size < SOFT + len(text) + 2000
    _, only = taken(outbox)
    assert only["event"] == {"type": "text_delta", "message_id": "m", "text": text, "offset": 0}


async def test_only_what_belongs_together_is_merged() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    fill(outbox)
    parts = [
        delta(0, "a"),
        delta(0, "r", kind="reasoning_delta"),
        delta(0, "x", session_id="other"),
        delta(0, "c", agent_id="child"),
        delta(1, "b"),
        delta(1, "y", session_id="other"),
        delta(7, "gap"),
        delta(0, "n", message_id="m2"),
    ]
    for part in parts:
        outbox.put_event(part)
    got = [(e["session_id"], e["agent_id"], e["event"]["type"], e["event"]["text"]) for e in taken(outbox)[1:]]
    assert got == [
        ("s", "main", "text_delta", "ab"),
        ("s", "main", "reasoning_delta", "r"),
        ("other", "main", "text_delta", "xy"),
        ("s", "child", "text_delta", "c"),
        ("s", "main", "text_delta", "gap"),
        ("s", "main", "text_delta", "n"),
    ]


async def test_a_delta_never_passes_a_durable_event_of_its_session() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    fill(outbox)
    for part in (delta(0, "a"), event(2), delta(1, "b"), delta(2, "c"), event(3, "other"), delta(3, "d")):
        outbox.put_event(part)
    got = taken(outbox)[1:]
    assert [e.get("n") or e["event"]["text"] for e in got] == ["a", 2, "bcd", 3]


async def test_what_the_writer_has_taken_is_merged_into_no_more() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    fill(outbox)
    outbox.put_event(delta(0, "a"))
    first = outbox.take("lines", 1 << 20)
    outbox.put_event(delta(1, "b"))
    assert b'"text":"a"' in first
    assert outbox.size > SOFT
    outbox.written()
    assert [e["event"]["text"] for e in taken(outbox)] == ["b"]


async def test_frames_are_taken_whole_and_joined_up_to_a_size() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    for i in range(10):
        outbox.put(b'{"i":%d,"x":"%s"}' % (i, b"x" * 300))
    assert outbox.take("lines", 1000).count(b"\n") == 4
    assert outbox.take("headers", 1).startswith(b"Content-Length: 314\r\n\r\n{")
    outbox.put(b"[" + b"1," * 50_000 + b"1]")
    rest = outbox.take("lines", 1 << 20)
    assert rest.count(b"\n") == 6
    assert len(rest) > 100_000


async def test_waiting_for_room_ends_when_there_is_some() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    order: list[str] = []

    async def produce(name: str) -> None:
        await outbox.wait_under(SOFT)
        fill(outbox)
        order.append(name)

    fill(outbox)
    async with anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            tasks.start_soon(produce, name)
        await anyio.wait_all_tasks_blocked()
        assert order == []
        for seen in (["a"], ["a", "b"]):
            outbox.take("lines", 1)
            outbox.written()
            await anyio.wait_all_tasks_blocked()
            assert order == seen


async def test_release_and_discard_let_everybody_go() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    fill(outbox)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.wait_under, 1)
        tasks.start_soon(outbox.wait_under, 1)
        await anyio.wait_all_tasks_blocked()
        outbox.release()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.wait_empty)
        await anyio.wait_all_tasks_blocked()
        outbox.discard()
    assert outbox.size == 0


async def test_one_large_frame_is_no_backlog() -> None:
    outbox = Outbox(Limits(1 << 20, SOFT, HARD))
    small, large, larger = b"1" * 1000, b"2" * 100_000, b"3" * 200_000
    for payload in (small, large, larger, small):
        outbox.put(payload)
    waiting = outbox.size
    assert outbox.backlog < waiting - len(larger) < outbox.backlog + 100
    # What is being written counts until it was.
    outbox.take("lines", 2000)
    assert outbox.size == waiting
    outbox.written()
    assert len(larger) < outbox.size < len(larger) + 2000
    assert outbox.backlog < 2000
    outbox.take("lines", 1 << 20)
    outbox.written()
    assert outbox.size == outbox.backlog == 0
