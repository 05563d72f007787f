"""Who is asked again when clients come, go, and refuse."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from protocol.messages import ToolSpec
from sidecar.sessions.events import EventHub
from sidecar.sessions.hosts import Answer, Hosts
from sidecar.sessions.ports import ClientRefused
from tests.unit.sessions.test_events import Recorder

pytestmark = pytest.mark.anyio


class Approver(Recorder):
    can_approve = True

    def __init__(self, name: str, answer: Any = None) -> None:
        """Refuses without an `answer`; answers once `says` is set."""
        super().__init__()
        self.id = name
        self.asked = 0
        self.says = anyio.Event()
        self._answer = answer

    async def request(self, method: str, params: Any, request_id: str) -> Any:
        self.asked += 1
        if self._answer is None:
            raise ClientRefused(method)
        await self.says.wait()
        return self._answer


async def here(hub: EventHub, hosts: Hosts, client: Approver) -> None:
    await hub.attach(client, None)
    hosts.attached(client)


async def test_a_client_that_declined_is_not_asked_again_because_others_come_and_go() -> None:
    hub = EventHub("s")
    hosts = Hosts(hub, lambda: "s-1")
    declines, thinks, passes_by = Approver("declines"), Approver("thinks", "yes"), Approver("passes by", "no")
    await here(hub, hosts, declines)
    await here(hub, hosts, thinks)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await hosts.ask_approval({}, wait_s=5))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await here(hub, hosts, passes_by)
        await anyio.wait_all_tasks_blocked()
        hub.detach(passes_by.id)
        hosts.gone(passes_by.id)
        await anyio.wait_all_tasks_blocked()
        assert (declines.asked, thinks.asked, passes_by.asked) == (1, 1, 1)
        # One that attaches again gets what is open.
        await here(hub, hosts, declines)
        await anyio.wait_all_tasks_blocked()
        assert declines.asked == 2
        thinks.says.set()
    assert [a.value for a in answers] == ["yes"]


async def test_a_client_that_hung_up_during_its_own_call_is_not_kept() -> None:
    hub = EventHub("s")
    hosts = Hosts(hub, lambda: "s-1")
    client = Approver("left")
    client.closed = True
    hosts.gone(client.id)
    hosts.bring(client, (ToolSpec(name="tool", parameters={}),), ())
    hosts.attached(client)
    assert not hosts._here
