"""The sessions whose events a client gets, and how they are taken up again after a lost connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from protocol.common import SessionParams
from protocol.events import ChatEvent
from protocol.messages import ToolSpec
from protocol.session import AttachParams, AttachResult, ResumeParams, ResumeResult, SessionResult
from sidecar.client.errors import ConnectionLost, SidecarError
from sidecar.client.host import HostTool, specs
from sidecar.client.peer import Peer


@dataclass(slots=True)
class Attachment:
    """`tools` are those that this client brought; `last_event` is the id of the last event that it saw."""

    tools: list[HostTool | ToolSpec] | None = None
    last_event: str | None = None


class Attachments:
    def __init__(self) -> None:
        self._by_session: dict[str, Attachment] = {}

    def add(self, session_id: str, tools: Iterable[HostTool | ToolSpec] | None) -> None:
        attachment = self._by_session.setdefault(session_id, Attachment())
        if tools is not None:
            attachment.tools = list(tools)

    def get(self, session_id: str) -> Attachment | None:
        """A copy, to `restore`; None when the client is not attached to the session."""
        found = self._by_session.get(session_id)
        return None if found is None else replace(found)

    def restore(self, session_id: str, attachment: Attachment) -> None:
        self._by_session[session_id] = attachment

    def remove(self, session_id: str) -> None:
        self._by_session.pop(session_id, None)

    def saw(self, event: ChatEvent) -> None:
        attachment = self._by_session.get(event.session_id)
        if attachment is not None:
            attachment.last_event = event.event_id

    async def take_up(self, peer: Peer) -> list[tuple[str, str]]:
        """Attaches to every session over a new connection, with its tools and from the last event on.

        Returns what could not be caught up with: session and why. Raises `ConnectionLost`.
        """
        missed: list[tuple[str, str]] = []
        for session_id, attachment in list(self._by_session.items()):
            try:
                resync = await _take_up(peer, session_id, attachment)
            except ConnectionLost:
                raise
            except SidecarError as error:
                self.remove(session_id)
                missed.append((session_id, f"The session could not be taken up again: {error.reason}"))
                continue
            if resync:
                attachment.last_event = None
                missed.append((session_id, "The daemon does not have the events since the last one seen"))
        return missed


async def _take_up(peer: Peer, session_id: str, attachment: Attachment) -> bool:
    """Whether events were missed for good."""
    if attachment.tools is None:
        attach = AttachParams(session_id=session_id, after_event=attachment.last_event)
        try:
            answer: AttachResult = await peer.call("agent.session.attach", attach, AttachResult)
        except SidecarError as error:
            if error.reason != "session_closed":
                raise
            # Either somebody closed it, or this is a new daemon that has not opened it yet.
            found: SessionResult = await peer.call(
                "agent.session.get", SessionParams(session_id=session_id), SessionResult
            )
            if found.session.state == "closed":
                raise
        else:
            return answer.resync_required
    resume = ResumeParams(session_id=session_id, tools=specs(attachment.tools), after_event=attachment.last_event)
    opened: ResumeResult = await peer.call("agent.session.resume", resume, ResumeResult)
    return opened.resync_required
