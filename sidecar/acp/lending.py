"""The editor's open files and its terminals, for the daemon's tools."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from acp import RequestError
from acp.schema import TerminalToolCallContent, ToolCallProgress

from protocol.editor import FileReadParams, FileWriteParams, TerminalRunParams, TerminalRunResult
from sidecar.acp.session import BridgedSession

log = logging.getLogger("sidecar.acp")

CREATE_S = 10.0
CLEAN_UP_S = 5.0
SHELL = ("bash", "-c")


async def read_file(editor: Any, params: FileReadParams) -> str | None:
    """The editor's text, with what is not saved yet; None when it does not give one."""
    try:
        response = await editor.read_text_file(session_id=params.session_id, path=params.path)
    except RequestError as error:
        log.info("the editor did not read a file (%d)", error.code)
        return None
    return str(response.content)


async def write_file(editor: Any, params: FileWriteParams) -> bool:
    try:
        await editor.write_text_file(session_id=params.session_id, path=params.path, content=params.text)
    except RequestError as error:
        log.info("the editor did not write a file (%d)", error.code)
        return False
    return True


async def run_command(editor: Any, session: BridgedSession, params: TerminalRunParams) -> TerminalRunResult:
    """Runs it in a terminal of the editor, shown inside the call. Cancelling this kills it there.

    Raises `RequestError` only while nothing has been started.
    """
    try:
        return await _run(editor, session, params)
    except TimeoutError:
        return TerminalRunResult(output="", truncated=True, timed_out=True)


async def _run(editor: Any, session: BridgedSession, params: TerminalRunParams) -> TerminalRunResult:
    async with _terminal(editor, params) as terminal_id:
        session.projection.in_terminal(params.tool_call_id)
        await session.show([_shown(params.tool_call_id, terminal_id)])
        where = {"session_id": params.session_id, "terminal_id": terminal_id}
        ended = None
        with anyio.move_on_after(params.timeout_s) as limit:
            ended = await _quietly(editor.wait_for_terminal_exit(**where))
        if ended is None:
            await _quietly(editor.kill_terminal(**where))
        printed = await _quietly(editor.terminal_output(**where))
    return TerminalRunResult(
        output=printed.output if printed is not None else "",
        exit_code=ended.exit_code if ended is not None else None,
        signal=ended.signal if ended is not None else None,
        truncated=printed is None or bool(printed.truncated),
        timed_out=limit.cancelled_caught,
    )


@asynccontextmanager
async def _terminal(editor: Any, params: TerminalRunParams) -> AsyncIterator[str]:
    """A terminal that runs the command; nothing of it is left when the block ends, however it does.

    Raises `TimeoutError` when the editor does not answer.
    """
    made = None
    # Not to be cancelled half-way: a terminal whose id nobody learnt could not be ended.
    with anyio.move_on_after(CREATE_S, shield=True):
        made = await editor.create_terminal(
            session_id=params.session_id,
            command=SHELL[0],
            args=[*SHELL[1:], params.command],
            cwd=params.cwd,
            output_byte_limit=params.output_bytes,
        )
    if made is None:
        raise TimeoutError
    where = {"session_id": params.session_id, "terminal_id": made.terminal_id}
    try:
        yield made.terminal_id
    except BaseException:
        with anyio.move_on_after(CLEAN_UP_S, shield=True):
            await _quietly(editor.kill_terminal(**where))
        raise
    finally:
        with anyio.move_on_after(CLEAN_UP_S, shield=True):
            await _quietly(editor.release_terminal(**where))


async def _quietly(request: Awaitable[Any]) -> Any:
    """The answer, or None for an error: what was started must not be started again elsewhere."""
    try:
        return await request
    except (RequestError, ConnectionError) as error:
        log.info("the editor's terminal failed (%s)", type(error).__name__)
        return None


def _shown(call_id: str, terminal_id: str) -> Any:
    content = [TerminalToolCallContent(type="terminal", terminal_id=terminal_id)]
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=call_id, status="in_progress", content=content
    )
