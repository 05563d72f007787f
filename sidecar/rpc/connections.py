"""The connections that are open: each one's way from its first byte to the moment when nothing of it is left."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio

from sidecar.rpc.gate import Gate
from sidecar.rpc.intake import Guard
from sidecar.rpc.peer import Connection
from sidecar.rpc.port import Limits
from sidecar.rpc.transport import Transport

MAX_CONNECTIONS = 512

DRAIN_S = 5.0
"""How long a host that has ended its side may wait for the answers to what it had asked."""


class Connections:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._limits = Limits()
        self._open: list[Connection] = []
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    @property
    def is_full(self) -> bool:
        return len(self._open) >= MAX_CONNECTIONS

    def apply(self, limits: Limits) -> None:
        self._limits = limits
        for peer in self._open:
            peer.apply(limits)

    @asynccontextmanager
    async def open(self, transport: Transport, guard: Guard | None = None) -> AsyncIterator[Connection]:
        """A connection whose outbox is being written; the caller reads it inside.

        On leaving, the application hears that the peer is gone; what the host had asked is still answered, for a while.
        """
        peer = Connection(
            f"{transport.name}-{next(self._numbers)}",
            transport,
            self._limits,
            lambda call: self._gate.accept(call, peer),
            guard,
        )
        self._open.append(peer)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.write)
                await self._gate.introduce(peer)
                yield peer
                peer.closed = True
                await self._gate.gone(peer)
                with anyio.move_on_after(DRAIN_S):
                    await peer.calls.wait_idle()
                    await peer.flush()
                    await transport.finish()
                tasks.cancel_scope.cancel()
        finally:
            peer.lose()
            self._open.remove(peer)
            transport.close()

    def release(self) -> None:
        for peer in self._open:
            peer.release()

    async def wait_idle(self) -> None:
        for peer in self:
            await peer.calls.wait_idle()

    def cancel_calls(self) -> None:
        for peer in self:
            peer.calls.cancel_all()

    async def flush(self) -> None:
        """All outboxes written; those of hosts that do not read keep nobody else waiting."""
        async with anyio.create_task_group() as tasks:
            for peer in self:
                tasks.start_soon(peer.flush)
