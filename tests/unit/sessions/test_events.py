"""Numbers, replay and order of a session's events."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.events import ChatEvent, Notice, TextDelta
from sidecar.sessions.events import EPOCH, KEPT_EVENTS, PAST_HUBS, EventHub, PastHubs

pytestmark = pytest.mark.anyio


class Recorder:
    """A client that notes what it gets; `during` is called while it waits."""

    id = "c"
    closed = congested = can_approve = can_answer = lends_files = lends_terminal = False

    def __init__(self, during: Any = None) -> None:
        self.got: list[ChatEvent] = []
        self._during = during

    def event(self, event: ChatEvent) -> None:
        self.got.append(event)

    def notify(self, method: str, params: Any) -> None: ...

    async def request(self, method: str, params: Any, request_id: str) -> Any: ...

    async def writable(self) -> None:
        if self._during is not None:
            self._during()

    @property
    def numbers(self) -> list[int]:
        return [int(e.event_id.split("-")[1]) for e in self.got]


def note(hub: EventHub, count: int = 1) -> None:
    for _ in range(count):
        hub.emit("main", Notice(kind="k", message="m"), None)


async def test_a_replay_is_what_followed_and_then_everything_new() -> None:
    hub = EventHub("s")
    note(hub, 300)
    client = Recorder()
    assert await hub.attach(client, f"{EPOCH}-100") == (200, False)
    note(hub)
    assert client.numbers == list(range(101, 302))


async def test_what_happens_during_a_replay_comes_once_and_in_order() -> None:
    hub = EventHub("s")
    note(hub, 200)
    left = [5]

    def during() -> None:
        if left[0]:
            left[0] -= 1
            note(hub, 3)

    client = Recorder(during)
    sent, resync = await hub.attach(client, f"{EPOCH}-0")
    assert (sent, resync) == (215, False)
    assert client.numbers == list(range(1, 216))


async def test_attaching_again_sends_nothing_twice() -> None:
    hub = EventHub("s")
    client = Recorder(lambda: note(hub) if len(client.got) < 70 else None)
    await hub.attach(client, None)
    note(hub, 60)
    client.got.clear()
    await hub.attach(client, f"{EPOCH}-10")
    assert client.numbers == list(range(11, 11 + len(client.got)))


@pytest.mark.parametrize(
    "after", ["00000000-1", "nonsense", f"{EPOCH}-99", f"{EPOCH}-x", f"{EPOCH}-", "-1", f"{EPOCH}--1"]
)
async def test_an_id_that_means_nothing_here_asks_for_a_resync(after: str) -> None:
    hub = EventHub("s")
    note(hub, 3)
    assert await hub.attach(Recorder(), after) == (0, True)


async def test_a_gap_asks_for_a_resync() -> None:
    hub = EventHub("s")
    note(hub, KEPT_EVENTS + 10)
    assert (await hub.attach(Recorder(), f"{EPOCH}-9"))[1]
    assert await hub.attach(Recorder(), f"{EPOCH}-10") == (KEPT_EVENTS, False)


async def test_a_delta_carries_the_last_durable_number_and_is_not_kept() -> None:
    hub = EventHub("s")
    client = Recorder()
    await hub.attach(client, None)
    note(hub)
    hub.emit("main", TextDelta(message_id="m", text="a", offset=0), "t")
    note(hub)
    assert client.numbers == [1, 1, 2]
    other = Recorder()
    assert await hub.attach(other, f"{EPOCH}-0") == (2, False)


async def test_a_resting_hub_keeps_the_newest_events_that_fit() -> None:
    hub = EventHub("s")
    for n in range(200):
        hub.emit("main", Notice(kind="k", message=f"{n} " + "m" * 1000), None)
    hub.rest()
    assert (await hub.attach(Recorder(), f"{EPOCH}-0"))[1]
    assert await hub.attach(Recorder(), f"{EPOCH}-190") == (10, False)
    note(hub)
    assert await hub.attach(Recorder(), f"{EPOCH}-190") == (11, False)


async def test_no_number_is_given_twice_whatever_is_forgotten_of_the_past() -> None:
    past = PastHubs()
    first = past.take("first")
    await first.attach(Recorder(), None)
    note(first, 7)
    past.keep(first)
    assert past.take("first") is first
    assert not first.clients
    past.keep(first)
    for n in range(PAST_HUBS):
        other = past.take(f"other-{n}")
        note(other)
        past.keep(other)
    again = past.take("first")
    note(again)
    assert (await again.attach(Recorder(), f"{EPOCH}-6"))[1]
    assert again.number == 8


async def test_names_of_sessions_that_never_were_push_no_others_out_of_the_past() -> None:
    past = PastHubs()
    hub = past.take("real")
    note(hub, 3)
    past.keep(hub)
    for n in range(PAST_HUBS + 10):
        past.keep(past.take(f"never-{n}"))
    assert await past.take("real").attach(Recorder(), f"{EPOCH}-0") == (3, False)
