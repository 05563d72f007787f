"""`sidecar acp`: the agent for editors, over this process's stdio, with a daemon in this process or at a socket."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ByteStream, TaskGroup

if TYPE_CHECKING:
    from sidecar.client import SidecarClient
    from sidecar.rpc.stdio import StdioTransport


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser("acp", help="an Agent Client Protocol agent on stdio, for editors")
    p.add_argument("--connect", metavar="SOCKET", help="use the daemon that listens there, and share its sessions")
    p.add_argument("--model", metavar="PROVIDER/MODEL", help="the model of new sessions")
    p.add_argument("--tools", choices=("none", "read", "edit", "all"), default="all", help="built-in tools (all)")
    p.add_argument("--config", metavar="FILE")
    p.add_argument("--log-file", metavar="FILE")
    p.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ends the process itself: a thread that hangs in a read of stdin cannot be joined."""
    from sidecar.rpc.aside import keep_stdio_aside

    stdio = keep_stdio_aside()
    from sidecar import logs

    logs.configure(args.log_level, args.log_file)
    code = anyio.run(_serve, args, stdio)
    logs.flush()
    sys.stderr.flush()
    os._exit(code)


async def _serve(args: argparse.Namespace, stdio: tuple[int, int]) -> int:
    from sidecar.acp.agent import Defaults
    from sidecar.acp.main import serve
    from sidecar.client import SidecarClient
    from sidecar.rpc.stdio import StdioTransport

    async with anyio.create_task_group() as tasks:
        end = tasks.cancel_scope.cancel
        if args.connect:
            tasks.start_soon(_end_on_signal, end)
            dial = partial(SidecarClient.connect, args.connect)
        else:
            dial = partial(in_process, tasks, end, args)
        await serve(_EditorStream(StdioTransport(*stdio)), dial, Defaults(model=args.model, builtin=args.tools))
        end()
    return 0


@asynccontextmanager
async def in_process(
    tasks: TaskGroup, on_end: Callable[[], object], args: argparse.Namespace, **host: Any
) -> AsyncIterator[SidecarClient]:
    """A daemon in this process behind two pipes: the same edge, gate and limits as any other host has.

    It ends when the client leaves, or by a signal; `on_end` is called when it has ended.
    """
    from sidecar.client import SidecarClient
    from sidecar.rpc.port import Application, ListenSpec, ServeOptions
    from sidecar.rpc.server import serve
    from sidecar.rpc.stdio import StdioTransport

    def load() -> Application:
        from sidecar.app import build

        return build(ServeOptions(args.config, args.log_file, args.log_level))

    to_daemon, from_client = os.pipe()
    to_client, from_daemon = os.pipe()
    ended = anyio.Event()

    async def daemon() -> None:
        try:
            await serve(ListenSpec(stdio=(to_daemon, from_daemon)), load)
        finally:
            ended.set()
            on_end()

    tasks.start_soon(daemon)
    try:
        async with SidecarClient.over(_Pipe(StdioTransport(to_client, from_client)), **host) as client:
            yield client
    finally:
        with anyio.CancelScope(shield=True):
            await ended.wait()


class _EditorStream:
    """Stdio as the agent's transport wants it."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport

    async def receive(self) -> bytes:
        return await self._transport.receive()

    async def send(self, data: bytes) -> None:
        from sidecar.rpc.transport import Broken

        try:
            await self._transport.send(data)
        except Broken:
            raise ConnectionResetError from None

    def close(self) -> None:
        self._transport.close()


class _Pipe(ByteStream):
    """The client's end as the byte stream that it wants."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = await self._transport.receive()
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        from sidecar.rpc.transport import Broken

        try:
            await self._transport.send(item)
        except Broken:
            raise anyio.BrokenResourceError from None

    async def send_eof(self) -> None:
        self._transport.close()

    async def aclose(self) -> None:
        self._transport.close()


async def _end_on_signal(end: Callable[[], object]) -> None:
    import signal

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            end()
