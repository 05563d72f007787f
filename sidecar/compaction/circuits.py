"""Tells the host when a circuit opens or closes, whatever record made it so."""

from __future__ import annotations

from protocol.events import CircuitClosed, CircuitOpened
from record_store.records import Breakers, ConfigUpdate
from sidecar.compaction import breakers
from sidecar.compaction.ports import AgentPort


class Circuits:
    """Compares the breakers in the log with those told last. Events only; the decisions are in `breakers`."""

    def __init__(self, port: AgentPort) -> None:
        self._port = port
        self._told = port.state.breakers
        self._window = port.state.window or port.window().tokens

    def announce(self) -> None:
        """Emits an event for each circuit that changed since the last call."""
        now = self._port.state.breakers
        for reason, is_open in breakers.transitions(self._told, now):
            self._port.emit(CircuitOpened(reason=reason) if is_open else CircuitClosed(reason=reason))
        self._told = now

    def close_for_larger_window(self) -> None:
        """A larger window than before closes what is open."""
        window = self._port.window().tokens
        grown, self._window = window > self._window, window
        if grown:
            self.close()

    def close(self) -> None:
        """Closes both circuits, by record, if that changes anything."""
        port = self._port
        closed = port.state.breakers.closed()
        if closed != port.state.breakers:
            port.append(ConfigUpdate(port.now_ms(), breakers=closed))
        self.announce()


def after_manual_request(now: Breakers) -> Breakers | None:
    """What a manual compaction makes of the breakers as it starts; None if nothing."""
    closed = now.closed()
    return closed if closed != now else None
