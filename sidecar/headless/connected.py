"""`sidecar run --connect`: the same turn, in a daemon that runs already."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.events import ChatEvent, TurnEnded
from protocol.messages import TurnResult
from sidecar.client.client import SidecarClient
from sidecar.client.errors import ConnectionLost, EventsLost, SidecarError
from sidecar.client.events import EventStream
from sidecar.errors import Fault
from sidecar.headless.approving import ask_terminal, may_ask
from sidecar.headless.options import EXIT_ERROR, RunOptions, exit_code
from sidecar.headless.run import print_result, write_line
from sidecar.headless.terminal import Progress


async def run_connected(options: RunOptions) -> int:
    """Runs one turn over the socket and prints its result; the exit code."""
    assert options.connect is not None
    approve = _approve if may_ask() else None
    try:
        async with SidecarClient.connect(
            options.connect, name="sidecar run", approve=approve, reconnect=False
        ) as client:
            session_id = await _session(client, options)
            with client.events(session_id) as events:
                result, timed_out = await _turn(client, session_id, events, options)
    except (ConnectionLost, OSError):
        print(f"sidecar: no daemon answers at {options.connect}", file=sys.stderr)
        return EXIT_ERROR
    except SidecarError as error:
        print(f"sidecar: {error}", file=sys.stderr)
        return EXIT_ERROR
    print_result(session_id, result, options, timed_out)
    return exit_code(result.stop_reason, timed_out=timed_out)


async def _approve(params: ApprovalParams) -> ApprovalResult:
    answer = await ask_terminal(params)
    return ApprovalResult(outcome=answer["outcome"], reason=answer.get("reason"))


async def _session(client: SidecarClient, options: RunOptions) -> str:
    session_id = options.session_id
    if session_id is None and options.resume_last:
        listed = await client.sessions.list(cwd=options.cwd, limit=1)
        if not listed.sessions:
            raise Fault("session_not_found", "There is no session to continue in this directory.")
        session_id = listed.sessions[0].session_id
    if session_id is None:
        made = await client.sessions.create(cwd=options.cwd, model=options.model, config=options.config(new=True))
        return made.session_id
    await client.sessions.resume(session_id)
    if options.model is not None or options.config(new=False):
        await client.sessions.configure(session_id, model=options.model, config=options.config(new=False) or None)
    return session_id


async def _turn(
    client: SidecarClient, session_id: str, events: EventStream, options: RunOptions
) -> tuple[TurnResult, bool]:
    """The turn's result, and whether it ran out of time. Raises `ConnectionLost` when the daemon goes away before."""
    timed_out = False
    key = f"run-{secrets.token_hex(8)}"
    sent = await client.chat.send(session_id, options.prompt, client_message_id=key)

    async def cancel() -> None:
        # Whether the daemon is there to hear it is told by the events.
        with suppress(SidecarError, OSError):
            await client.chat.cancel(session_id, sent.turn_id)

    async def limit() -> None:
        nonlocal timed_out
        if options.timeout_s is not None:
            await anyio.sleep(options.timeout_s)
            timed_out = True
            await cancel()

    async def interrupts() -> None:
        if sys.platform != "win32":
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    await cancel()
                    break

    async with anyio.create_task_group() as group:
        group.start_soon(limit)
        group.start_soon(interrupts)
        try:
            result = await _followed(events, sent.turn_id, options, cancel)
        except EventsLost:
            # The same key is never a second input: it asks for the result of the first.
            result = await client.chat.run(session_id, options.prompt, client_message_id=key)
        group.cancel_scope.cancel()
    return result, timed_out


async def _followed(
    events: EventStream, turn_id: str, options: RunOptions, cancel: Callable[[], Awaitable[None]]
) -> TurnResult:
    """Shows the turn's events up to its end. Raises `ConnectionLost` when the connection ends first."""
    progress = Progress()
    streaming = options.output == "stream-json"
    async for told in events.of_turn(turn_id):
        if streaming and not _written(told):
            # The reader has left. The turn is ended; saying its result tells of it.
            streaming = False
            await cancel()
        progress.show(told.event)
        if isinstance(told.event, TurnEnded):
            return _result(told.event)
    raise ConnectionLost


def _written(told: ChatEvent) -> bool:
    try:
        write_line(told)
    except BrokenPipeError:
        return False
    return True


def _result(event: TurnEnded) -> TurnResult:
    return TurnResult(
        turn_id=event.turn_id, stop_reason=event.stop_reason, text=event.text, usage=event.usage, error=event.error
    )
