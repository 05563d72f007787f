"""Keeps one connection to a daemon: makes it, says who calls, and makes it again when it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskStatus

from protocol.system import ClientInfo, InitializeParams, InitializeResult
from protocol.version import PROTOCOL_VERSION, VERSION
from sidecar.client.attachments import Attachments
from sidecar.client.errors import ConnectionLost, SidecarError
from sidecar.client.host import Host
from sidecar.client.links import Dial, Link
from sidecar.client.peer import Peer

RECONNECT_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0)
"""Seconds before each attempt to reach a daemon again; after the last one in a row the connection counts as lost."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What `system.initialize` says of this client."""

    name: str = "sidecar-client"
    version: str = VERSION
    token: str | None = None


class Connection:
    """`peer` is None while there is no connection; `lost` is set once there will be none again.

    `on_missed` is told the sessions whose events could not be caught up with after a reconnect, and why; `on_lost`,
    once, that there will be no connection any more.
    """

    def __init__(
        self,
        dial: Dial,
        identity: Identity,
        host: Host,
        attachments: Attachments,
        on_missed: Callable[[str, str], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._dial = dial
        self._identity = identity
        self._host = host
        self._attachments = attachments
        self._on_missed = on_missed
        self._on_lost = on_lost
        self._changed = anyio.Event()
        self.peer: Peer | None = None
        self.link: Link | None = None
        self.server: InitializeResult | None = None
        self.lost: ConnectionLost | None = None

    async def ready(self) -> Peer:
        """The peer, once there is one. Raises `ConnectionLost` when there will be none."""
        # A peer whose connection has just ended is still here until its place is cleared.
        while self.peer is None or self.peer.lost is not None:
            if self.lost is not None:
                raise self.lost
            await self._changed.wait()
        return self.peer

    @asynccontextmanager
    async def running(self, *, reconnect: bool) -> AsyncIterator[None]:
        """Connected inside the block; the first connection must succeed."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._supervise, reconnect)
                yield
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _single(group) from None

    async def _supervise(self, reconnect: bool, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        link = await self._dial()
        await self._serve(link, task_status)
        failures = 0
        while reconnect and failures < len(RECONNECT_DELAYS):
            await anyio.sleep(RECONNECT_DELAYS[failures])
            try:
                link = await self._dial()
                await self._serve(link, None)
                failures = 0
            except* SidecarError:
                failures += 1
        self.lost = ConnectionLost()
        self._announce()
        self._on_lost()

    async def _serve(self, link: Link, first: TaskStatus[None] | None) -> None:
        """One connection from its start to its end. Raises if it could not be brought into use."""
        peer = Peer(link.stream, self._host)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.run)
                self.server = await self._initialize(peer)
                self.link = link
                for session_id, why in await self._attachments.take_up(peer):
                    self._on_missed(session_id, why)
                self.peer = peer
                self._announce()
                if first is not None:
                    first.started()
        finally:
            self.peer = None
            peer.close()
            await link.close()

    async def _initialize(self, peer: Peer) -> InitializeResult:
        params = InitializeParams(
            protocol_version=PROTOCOL_VERSION,
            client=ClientInfo(self._identity.name, self._identity.version),
            capabilities=self._host.answers.capabilities(),
            token=self._identity.token,
        )
        answer: InitializeResult = await peer.call("system.initialize", params, InitializeResult)
        return answer

    def _announce(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in nested groups; the group itself when there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
