"""What a daemon listens on besides stdio: opened all or not at all, and closed without leaving anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sidecar import logs
from sidecar.rpc.intake import Guard
from sidecar.rpc.port import ListenSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.rpc.sockets import Listener


class Doors:
    """The open listeners. Every TCP connection has to pass `guard`."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.guard: Guard | None = None
        self._own_token_file: Path | None = None

    def open(self, listen: ListenSpec) -> None:
        """Blocks for look-ups: call it in a thread. Raises `StartError`; what was opened before is closed then."""
        if not listen.sockets and not listen.tcp:
            return
        from sidecar.rpc.sockets import listen_tcp, listen_unix

        try:
            if listen.tcp:
                self._choose_token(listen.token_file)
            for address in listen.tcp:
                self.listeners.append(listen_tcp(address, allow_remote=listen.allow_remote))
            # Last, because a supervisor may wait for the path: then all doors are open. They are told of first.
            for number, path in enumerate(listen.sockets):
                self.listeners.insert(number, listen_unix(path))
        except BaseException:
            self.close()
            raise
        self._name_token_file()

    def described(self) -> Iterable[dict[str, str]]:
        """For `system.ready`."""
        return ({"transport": door.transport, "address": door.address} for door in self.listeners)

    def tell_ready(self) -> None:
        """One line on stderr for each listener, for supervisors and people."""
        for door in self.listeners:
            logs.tell(f"ready: {door.transport} {door.address}")

    def close(self) -> None:
        for door in self.listeners:
            door.close()
        self.listeners.clear()
        if self._own_token_file is not None:
            self._own_token_file.unlink(missing_ok=True)

    def _choose_token(self, token_file: str | None) -> None:
        from sidecar.rpc.token import TokenGuard, fresh_token, read_token

        if token_file is not None:
            token = read_token(token_file)
        else:
            token, self._own_token_file = fresh_token()
        self.guard = TokenGuard(token)
        logs.hide(token)

    def _name_token_file(self) -> None:
        if self._own_token_file is not None:
            addresses = ", ".join(door.address for door in self.listeners if door.transport == "tcp")
            logs.tell(f"the token for tcp {addresses} is in {self._own_token_file}")
