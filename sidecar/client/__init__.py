"""A typed client of the daemon, for hosts written in Python.

    async with SidecarClient.spawn(name="my-host", version="1.0") as client:
        session = await client.sessions.create(cwd="/work", tools=[add])
        with client.events(session.session_id) as events:
            sent = await client.chat.send(session.session_id, "What is 2 + 3?")
            async for event in events.of_turn(sent.turn_id):
                ...

`spawn` starts a daemon as a child and speaks over its stdio; `connect` reaches one that runs. Tools, approvals and
questions of the daemon are answered by async functions of the host (`HostTool`, `approve`, `answer`). A call that the
daemon refuses raises `SidecarError`; one whose connection went away raises `ConnectionLost`. An exception in a function
of the host goes to the logger `sidecar.client`; the daemon is told its type.
"""

from __future__ import annotations

from sidecar.client.client import SidecarClient
from sidecar.client.errors import ConnectionLost, EventsLost, SidecarError, ToolFailed
from sidecar.client.events import EventStream
from sidecar.client.host import Answers, HostCall, HostTool, host_tool

__all__ = [
    "Answers",
    "ConnectionLost",
    "EventStream",
    "EventsLost",
    "HostCall",
    "HostTool",
    "SidecarClient",
    "SidecarError",
    "ToolFailed",
    "host_tool",
]
