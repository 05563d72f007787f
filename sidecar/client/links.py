"""Ways to a daemon: a child over stdio, a Unix socket, TCP, or a stream that is there already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import ByteStream, Process
from anyio.streams.stapled import StapledByteStream

from sidecar.client.errors import ConnectionLost

DAEMON = (sys.executable, "-m", "sidecar", "serve", "--stdio")
"""How a child is started unless the host says otherwise."""

CLOSE_GRACE_S = 10.0
"""A daemon ends by itself within 5 s of its stdin's end; after this it is terminated, then killed."""


@dataclass(slots=True)
class Link:
    """A stream to a daemon; `process` is the child behind it, if it is ours."""

    stream: ByteStream
    process: Process | None = None

    async def close(self) -> None:
        """Ends the connection, and the child with it. Safe under cancellation, bounded in time."""
        with anyio.CancelScope(shield=True):
            if self.process is None:
                with anyio.move_on_after(2):
                    await self.stream.aclose()
            else:
                await _end(self.process)


Dial = Callable[[], Awaitable[Link]]


async def _end(process: Process) -> None:
    try:
        if process.stdin is not None:
            await process.stdin.aclose()
        if await _ended(process, CLOSE_GRACE_S):
            return
        process.terminate()
        if not await _ended(process, 2.0):
            process.kill()
            await process.wait()
    except ProcessLookupError:
        pass
    finally:
        # Closes the pipes' transports as well, so that nothing is left to the garbage collector.
        await process.aclose()


async def _ended(process: Process, seconds: float) -> bool:
    """Whether it ended in time. Its stdout is read meanwhile: a full pipe would keep it from ending."""
    with anyio.move_on_after(seconds):
        if process.stdout is not None:
            try:
                while True:
                    await process.stdout.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass
        await process.wait()
    return process.returncode is not None


def child(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None, stderr: int | IO[bytes] | None
) -> Dial:
    """A daemon of our own; `env` replaces the whole environment, `stderr` is inherited unless given."""

    async def dial() -> Link:
        process = await anyio.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env, cwd=cwd
        )
        assert process.stdin is not None
        assert process.stdout is not None
        return Link(StapledByteStream(process.stdin, process.stdout), process)

    return dial


def unix_socket(path: str | Path) -> Dial:
    async def dial() -> Link:
        try:
            return Link(await anyio.connect_unix(str(path)))
        except OSError as error:
            raise ConnectionLost(f"No daemon answers at this socket: {error.strerror or 'refused'}") from None

    return dial


def tcp(host: str, port: int) -> Dial:
    async def dial() -> Link:
        try:
            return Link(await anyio.connect_tcp(host, port))
        except OSError as error:
            raise ConnectionLost(f"No daemon answers at {host}:{port}: {error.strerror or 'refused'}") from None

    return dial
