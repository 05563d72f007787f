"""What a session needs from those that are connected to it. Ports and small values only."""

from __future__ import annotations

from typing import Any, Protocol

from protocol.events import ChatEvent


class ClientGone(Exception):
    """The connection ended before the answer came."""


class ClientRefused(Exception):
    """The client answered a request with an error, or with something that is no answer."""


class Client(Protocol):
    """One connected host, as a session sees it."""

    @property
    def id(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def can_approve(self) -> bool:
        """It said in `system.initialize` that it answers approvals."""
        ...

    @property
    def can_answer(self) -> bool:
        """It said in `system.initialize` that it answers questions."""
        ...

    @property
    def lends_files(self) -> bool:
        """It said in `system.initialize` that it reads and writes files for the daemon."""
        ...

    @property
    def lends_terminal(self) -> bool:
        """It said in `system.initialize` that it runs commands for the daemon."""
        ...

    def event(self, event: ChatEvent) -> None:
        """Sends an event. Never blocks; a client that does not read is merged, held or dropped by the edge."""
        ...

    def notify(self, method: str, params: Any) -> None: ...

    async def request(self, method: str, params: Any, request_id: str) -> Any:
        """The client's result, as plain values. Raises `ClientGone` or `ClientRefused`."""
        ...

    @property
    def congested(self) -> bool: ...

    async def writable(self) -> None:
        """Returns when it takes more again, or is gone. At once for clients that are dropped instead."""
        ...


class RequestIds(Protocol):
    def __call__(self) -> str:
        """A fresh id for a request of the daemon: `s-<n>`."""
        ...
