"""Runs the agent over a byte stream until the editor closes it."""

from __future__ import annotations

import anyio
from acp import run_agent

from sidecar.acp.agent import Defaults, SidecarAgent
from sidecar.acp.bridge import Bridge, Dial
from sidecar.acp.transport import ByteTransport, EditorTransport


async def serve(stream: ByteTransport, dial: Dial, defaults: Defaults) -> None:
    """Returns at the end of the editor's input. Sessions stay stored; the connection to the daemon is closed."""
    async with anyio.create_task_group() as tasks:
        transport = EditorTransport(stream, tasks)
        agent = SidecarAgent(transport, Bridge(tasks, dial), defaults)
        await run_agent(agent, transport, use_unstable_protocol=True)
        tasks.cancel_scope.cancel()
