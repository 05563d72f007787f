"""`sidecar compact`: one compaction, here or in a running daemon."""

from __future__ import annotations

import sys

import anyio

from protocol.chat import CompactResult
from record_store.backend import MAIN_AGENT
from sidecar import settings
from sidecar.app import App, layers_of
from sidecar.client.client import SidecarClient
from sidecar.client.errors import ConnectionLost, SidecarError
from sidecar.errors import Fault
from sidecar.headless.options import EXIT_ERROR


def compact(session_id: str, instruction: str | None, *, connect: str | None, config: str | None) -> int:
    """Prints what it came to; 0 if the context is smaller now or there was nothing to do."""
    if connect is not None:
        try:
            done = anyio.run(_connected, session_id, instruction, connect)
        except SidecarError as error:
            print(f"sidecar: {error}", file=sys.stderr)
            return EXIT_ERROR
        except (ConnectionLost, OSError):
            print(f"sidecar: no daemon answers at {connect}", file=sys.stderr)
            return EXIT_ERROR
    else:
        environment = settings.environment()
        outcome = anyio.run(_here, App(layers_of(config, environment), environment), session_id, instruction)
        if isinstance(outcome, Fault):
            raise outcome
        done = outcome
    if done.outcome == "landed":
        print(f"compacted from {done.tokens_before:,} to {done.tokens_after:,} tokens")
    else:
        print("nothing to compact")
    return 0


async def _here(app: App, session_id: str, instruction: str | None) -> CompactResult | Fault:
    """A failure is handed back: raised in here, the group of the app's tasks would wrap it."""
    async with app.lifespan():
        try:
            if session_id == "last":
                sessions, _ = await app.manager.page(cwd=None, limit=1, cursor=None)
                if not sessions:
                    raise Fault("session_not_found", "There are no sessions yet.")
                session_id = sessions[0].session_id
            session, _ = await app.manager.resume(session_id)
            return await session.compact(MAIN_AGENT, instruction, "now")
        except Fault as fault:
            return fault
        finally:
            with anyio.CancelScope(shield=True):
                await app.shutdown("graceful")


async def _connected(session_id: str, instruction: str | None, socket: str) -> CompactResult:
    async with SidecarClient.connect(socket, name="sidecar compact", reconnect=False) as client:
        if session_id == "last":
            listed = await client.sessions.list(limit=1)
            if not listed.sessions:
                raise Fault("session_not_found", "There are no sessions yet.")
            session_id = listed.sessions[0].session_id
        await client.sessions.resume(session_id)
        return await client.chat.compact(session_id, instruction)
