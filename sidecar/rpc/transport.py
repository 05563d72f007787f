"""What carries the bytes of one connection."""

from __future__ import annotations

import socket
from typing import Protocol

import anyio

from sidecar.rpc.port import TransportName

READ_BYTES = 65536
FINISH_S = 0.5


class Broken(Exception):
    """Nothing can be written any more."""


class Transport(Protocol):
    @property
    def name(self) -> TransportName: ...

    async def receive(self) -> bytes:
        """Some bytes as soon as there are any; empty at the end, however it came."""
        ...

    def input_hung_up(self) -> bool:
        """Whether the other end sends nothing more, even if not all was received; false where `send` finds out."""
        ...

    async def send(self, data: bytes) -> None:
        """Returns when the operating system has all of it. Raises `Broken`."""
        ...

    async def finish(self) -> None:
        """Says that nothing more will be sent, so that the other end gets all of it before `close`."""
        ...

    def close(self) -> None: ...


class SocketTransport:
    """Owns a connected socket."""

    def __init__(self, connected: socket.socket, name: TransportName) -> None:
        self.name = name
        self._socket = connected
        connected.setblocking(False)
        if name == "tcp":
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def receive(self) -> bytes:
        while True:
            await anyio.wait_readable(self._socket)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    def input_hung_up(self) -> bool:
        return False

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError:
                raise Broken from None

    async def finish(self) -> None:
        """Closing with unread input would reset the connection, and the other end might lose what it has not read."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return
        with anyio.move_on_after(FINISH_S):
            while await self.receive():
                pass

    def close(self) -> None:
        self._socket.close()
