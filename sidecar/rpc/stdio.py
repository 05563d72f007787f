"""The connection over stdin and stdout, whatever they are: pipes, sockets, a terminal, files, on any platform.

Pipes and sockets are waited for on the event loop; all else (and everything on Windows) is read and written by a
thread, one piece at a time. A thread that hangs in a read cannot be stopped: the process ends around it.
"""

from __future__ import annotations

import os
import select
import stat
import sys

import anyio
from anyio import to_thread

from sidecar.rpc.port import TransportName
from sidecar.rpc.transport import READ_BYTES, Broken

PARENT_CHECK_S = 1.0


class StdioTransport:
    """Owns both descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.name: TransportName = "stdio"
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._polls_input = _is_pollable(read_fd)
        self._polls_output = _is_pollable(write_fd) and not _is_same_file(write_fd, 2)
        if self._polls_output:
            os.set_blocking(write_fd, False)

    def has_input(self) -> bool:
        """Whether something (the end, too) can be read at once; false where only a thread could tell."""
        return self._polls_input and bool(select.select([self._read_fd], [], [], 0)[0])

    def input_hung_up(self) -> bool:
        if not self._polls_input or not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(self._read_fd, 0)
        return bool(poll.poll(0))

    async def receive(self) -> bytes:
        try:
            if self._polls_input:
                await anyio.wait_readable(self._read_fd)
                return os.read(self._read_fd, READ_BYTES)
            return await to_thread.run_sync(os.read, self._read_fd, READ_BYTES, abandon_on_cancel=True)
        except (OSError, anyio.ClosedResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        try:
            if self._polls_output:
                await self._send_polled(memoryview(data))
            else:
                await to_thread.run_sync(_write_all, self._write_fd, data, abandon_on_cancel=True)
        except (OSError, anyio.ClosedResourceError):
            raise Broken from None

    async def _send_polled(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._write_fd, data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._write_fd)

    async def finish(self) -> None:
        """A pipe keeps what was written."""

    def close(self) -> None:
        """The host sees the end of stdout now, not only when the process is gone."""
        try:
            if self._polls_output:
                os.set_blocking(self._write_fd, True)
            os.close(self._write_fd)
        except OSError:
            pass


def _is_pollable(fd: int) -> bool:
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _is_same_file(fd: int, other: int) -> bool:
    """Whether both may share one open file: making one non-blocking would then make the other so, too."""
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(other))
    except OSError:
        return False


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def wait_for_parent_death(parent: int) -> None:
    """Returns when the process that started this one is gone, within `PARENT_CHECK_S`.

    It finds what the end of stdin does not: a parent that died while another process holds the pipe open. A process
    whose parent was gone at the start, and Windows, know nothing here: then it never returns.
    """
    if sys.platform == "win32" or parent <= 1:
        await anyio.sleep_forever()
    while os.getppid() == parent:  # noqa: ASYNC110  (no event tells it on all systems)
        await anyio.sleep(PARENT_CHECK_S)
