"""What a client can run into.

SidecarError            the daemon answered with an error: `code`, `reason`, `data`
  ConnectionLost        the connection ended before the answer: whether the call took effect is not known
  EventsLost            events of a session were missed: read `sessions.messages` and go on
ToolFailed              raised by a host's own tool: its text is the error result that the model reads
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SidecarError(Exception):
    """`reason` is the stable word of the protocol's error table, `data` the error's whole `data`."""

    def __init__(self, code: int, reason: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{reason} ({code}): {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.data: Mapping[str, Any] = data or {}

    @property
    def hint(self) -> str | None:
        """What to do about it, if the daemon knows."""
        hint = self.data.get("hint")
        return hint if isinstance(hint, str) else None

    @classmethod
    def from_wire(cls, error: Mapping[str, Any]) -> SidecarError:
        """From the `error` object of a reply, whatever is missing in it."""
        data = error.get("data")
        data = data if isinstance(data, Mapping) else {}
        code = error.get("code")
        return cls(
            code if isinstance(code, int) else -32000,
            str(data.get("reason") or "unknown"),
            str(error.get("message") or "no message"),
            data,
        )


class ConnectionLost(SidecarError):
    def __init__(self, message: str = "The connection to the daemon ended") -> None:
        super().__init__(0, "connection_lost", message)


class EventsLost(SidecarError):
    """Raised once by an event stream, which goes on afterwards. `last_event_id` is the last one before the gap."""

    def __init__(self, session_id: str | None, last_event_id: str | None, message: str) -> None:
        super().__init__(0, "events_lost", message, {"session_id": session_id, "last_event_id": last_event_id})
        self.session_id = session_id
        self.last_event_id = last_event_id


class ToolFailed(Exception):
    """A host's tool could not do what was asked; the text is for the model."""
