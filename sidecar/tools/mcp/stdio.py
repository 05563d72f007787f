"""An MCP server as a child process: its own process group, its own environment, its stderr in our log."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sidecar import logs
from sidecar.tools.text import clip, printable

MAX_MESSAGE = 32 << 20
"""Bytes of one message; a server that sends a longer line is cut off."""
LEAVE_S = 0.5
"""How long a server has to end after its stdin was closed, and again after SIGTERM."""
_POLL_S = 0.01
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)

Streams = tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]

log = logs.get(__name__)


@asynccontextmanager
async def stdio_transport(
    name: str, command: Sequence[str], environment: Mapping[str, str], cwd: str | None, gone: anyio.Event
) -> AsyncIterator[Streams]:
    """Starts the server and yields the streams that `mcp` wants. `gone` is set when it closes its stdout. On leaving,
    also by cancellation, the server and its process group are gone. Raises OSError if it cannot be started."""
    process = await anyio.open_process(list(command), env=dict(environment), cwd=cwd, start_new_session=True)
    incoming, read_stream = anyio.create_memory_object_stream[Any](0)
    write_stream, outgoing = anyio.create_memory_object_stream[Any](0)
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(_read, name, process, incoming, gone)
            tasks.start_soon(_write, process, outgoing, gone)
            tasks.start_soon(_log_stderr, name, process)
            tasks.start_soon(_refuse_when, gone, outgoing)
            yield read_stream, write_stream
        finally:
            with anyio.CancelScope(shield=True):
                for stream in (read_stream, write_stream):
                    stream.close()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _read(name: str, process: Process, incoming: MemoryObjectSendStream[Any], gone: anyio.Event) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert process.stdout is not None
    try:
        with suppress(*_GONE):
            async for line in _lines(process.stdout):
                try:
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:
                    log.warning("an MCP server wrote something that is no message", server=name)
                    await incoming.send(error)
                else:
                    await incoming.send(message)
    finally:
        incoming.close()
        gone.set()


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Lines up to the end of the stream, or up to one that is too long."""
    buffer = bytearray()
    seen = 0
    while len(buffer) <= MAX_MESSAGE:
        buffer += await stream.receive()
        while (end := buffer.find(b"\n", seen)) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            seen = 0
            if line.strip():
                yield line
        seen = len(buffer)


async def _write(process: Process, outgoing: MemoryObjectReceiveStream[Any], gone: anyio.Event) -> None:
    assert process.stdin is not None
    try:
        with suppress(*_GONE):
            async with outgoing:
                async for message in outgoing:
                    data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(data.encode() + b"\n")
    finally:
        gone.set()


async def _refuse_when(gone: anyio.Event, outgoing: MemoryObjectReceiveStream[Any]) -> None:
    """Nobody waits to send to a server that is done with, or that does not read."""
    await gone.wait()
    outgoing.close()


async def _log_stderr(name: str, process: Process) -> None:
    assert process.stderr is not None
    with suppress(*_GONE):
        while True:
            text = (await process.stderr.receive(8192)).decode("utf-8", "replace")
            for line in text.split("\n"):
                if line.strip():
                    log.info("an MCP server says", server=name, line=clip(printable(line), 500))


async def _end(process: Process) -> None:
    assert process.stdin is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    if not await _ended(process):
        _signal(process, "SIGTERM")
        await _ended(process)
    _signal(process, "SIGKILL")
    await _ended(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with suppress(*_GONE):
                await stream.aclose()
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(OSError):
            transport.close()


async def _ended(process: Process) -> bool:
    """Whether it ends in time. Its return code is looked at: waiting for it would wait for whoever holds its pipes."""
    until = anyio.current_time() + LEAVE_S
    while process.returncode is None and anyio.current_time() < until:  # noqa: ASYNC110
        await anyio.sleep(_POLL_S)
    return process.returncode is not None


def _signal(process: Process, name: str) -> None:
    """To the whole group: it may have children that outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))
