"""`sidecar run`: a session without a host, in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from protocol.events import ChatEvent
from protocol.messages import TurnResult
from sidecar.app import App
from sidecar.errors import Fault
from sidecar.headless.approving import ask_terminal, may_ask
from sidecar.headless.options import EXIT_ERROR, RunOptions, exit_code
from sidecar.headless.terminal import Progress
from sidecar.sessions.ports import ClientRefused
from sidecar.sessions.session import Session


class LocalClient:
    """The person at the terminal as a session's client."""

    def __init__(self, options: RunOptions) -> None:
        self._stream = options.output == "stream-json"
        self._progress = Progress()
        self.unread = anyio.Event()
        """Set when the reader of our output has left."""

    id = "run"
    closed = False
    congested = False
    can_answer = False
    lends_files = False
    lends_terminal = False

    @property
    def can_approve(self) -> bool:
        return may_ask()

    def event(self, event: ChatEvent) -> None:
        if self._stream:
            try:
                write_line(event)
            except BrokenPipeError:
                self._stream = False
                self.unread.set()
        self._progress.show(event.event)

    def notify(self, method: str, params: Any) -> None:
        return None

    async def request(self, method: str, params: Any, request_id: str) -> Any:
        if method != "approval.request":
            raise ClientRefused(method)
        return await ask_terminal(params)

    async def writable(self) -> None:
        return None


def write_line(value: Any) -> None:
    """One JSON value on a line of stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


async def run(app: App, options: RunOptions) -> int:
    """Runs one turn and prints its result; the exit code."""
    async with app.lifespan():
        try:
            client = LocalClient(options)
            session = await _session(app, options, client)
            result, timed_out = await _turn(session, options, client.unread)
        except Fault as fault:
            complain(fault)
            return EXIT_ERROR
        finally:
            with anyio.CancelScope(shield=True):
                await app.shutdown("graceful")
    print_result(session.session_id, result, options, timed_out)
    return exit_code(result.stop_reason, timed_out=timed_out)


async def _session(app: App, options: RunOptions, client: LocalClient) -> Session:
    session_id = options.session_id
    if session_id is None and options.resume_last:
        sessions, _ = await app.manager.page(cwd=options.cwd, limit=1, cursor=None)
        if not sessions:
            raise Fault("session_not_found", "There is no session to continue in this directory.")
        session_id = sessions[0].session_id
    if session_id is None:
        return await app.manager.create(
            client,
            session_id=None,
            cwd=options.cwd,
            model=options.model,
            system_prompt=None,
            title=None,
            config=options.config(new=True),
            tools=None,
        )
    session, _ = await app.manager.resume(session_id, model=options.model, config=options.config(new=False) or None)
    await session.attach(client, None)
    return session


async def _turn(session: Session, options: RunOptions, unread: anyio.Event) -> tuple[TurnResult, bool]:
    """The turn's result, and whether it ran out of time. An interrupt cancels it, and so does a reader who leaves."""
    timed_out = False
    handle = await session.send(options.prompt)
    async with _interrupts(session, unread):
        with anyio.move_on_after(options.timeout_s) as limit:
            return await handle.wait(), False
        timed_out = limit.cancelled_caught
        session.turns.abandon(handle)
        return await handle.wait(), timed_out


@asynccontextmanager
async def _interrupts(session: Session, unread: anyio.Event) -> AsyncIterator[None]:
    """The first SIGINT or SIGTERM cancels the running turn; a second one ends the process as usual. `unread` cancels
    it too."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    session.turns.cancel(None)
                    break

        async def leave() -> None:
            await unread.wait()
            session.turns.cancel(None)

        group.start_soon(leave)
        if sys.platform != "win32":
            group.start_soon(watch)
        yield
        group.cancel_scope.cancel()


def print_result(session_id: str, result: TurnResult, options: RunOptions, timed_out: bool) -> None:
    if options.output == "text":
        if result.text:
            print(result.text, flush=True)
    else:
        write_line({**msgspec.to_builtins(result), "session_id": session_id})
    if result.error is not None:
        print(f"sidecar: {result.error.message}", file=sys.stderr)
        if result.error.hint:
            print(f"  {result.error.hint}", file=sys.stderr)
    elif result.stop_reason != "end_turn":
        why = "time ran out" if timed_out else result.stop_reason
        print(f"sidecar: the turn ended early: {why}", file=sys.stderr)


AT_A_SHELL = {
    "session_not_found": "`sidecar sessions` lists those that there are",
    "session_locked": "end the process that has it, or reach it with --connect",
}
"""Hints for who types commands, where those for callers of the protocol name methods."""


def complain(fault: Fault) -> None:
    """A fault as a person reads it."""
    print(f"sidecar: {fault.message}", file=sys.stderr)
    hint = AT_A_SHELL.get(fault.reason, fault.hint)
    if hint:
        print(f"  {hint}", file=sys.stderr)
