"""Domain events to notifications, and peers as sessions see them. The only place that knows both."""

from __future__ import annotations

from typing import Any

from protocol.events import ChatEvent, ReasoningDelta, TextDelta
from sidecar.rpc.codec import notification
from sidecar.rpc.port import Delta, Peer, PeerError, PeerGone, SharedEvent
from sidecar.sessions.ports import ClientGone, ClientRefused

EVENT = "agent.chat.event"


class EventEncoder:
    """Serialises each durable event once, however many peers get it."""

    def __init__(self) -> None:
        self._last: tuple[ChatEvent, SharedEvent] | None = None

    def encode(self, told: ChatEvent) -> SharedEvent | Delta:
        event = told.event
        if isinstance(event, TextDelta | ReasoningDelta):
            return Delta(
                session_id=told.session_id,
                agent_id=told.agent_id,
                event_id=told.event_id,
                turn_id=told.turn_id,
                kind="text_delta" if isinstance(event, TextDelta) else "reasoning_delta",
                message_id=event.message_id,
                offset=event.offset,
                text=event.text,
            )
        if self._last is None or self._last[0] is not told:
            self._last = (told, SharedEvent(told.session_id, notification(EVENT, told)))
        return self._last[1]


class PeerClient:
    """A `Peer` as the `Client` of sessions."""

    def __init__(self, peer: Peer, encoder: EventEncoder) -> None:
        self._peer = peer
        self._encoder = encoder

    @property
    def id(self) -> str:
        return self._peer.id

    @property
    def closed(self) -> bool:
        return self._peer.closed

    @property
    def can_approve(self) -> bool:
        return self._peer.capabilities.approvals

    @property
    def can_answer(self) -> bool:
        return self._peer.capabilities.questions

    @property
    def lends_files(self) -> bool:
        return self._peer.capabilities.files

    @property
    def lends_terminal(self) -> bool:
        return self._peer.capabilities.terminal

    @property
    def congested(self) -> bool:
        return self._peer.congested

    async def writable(self) -> None:
        await self._peer.writable()

    def event(self, event: ChatEvent) -> None:
        self._peer.notify_event(self._encoder.encode(event))

    def notify(self, method: str, params: Any) -> None:
        self._peer.notify(method, params)

    async def request(self, method: str, params: Any, request_id: str) -> Any:
        try:
            return await self._peer.request(method, params, request_id=request_id)
        except PeerGone:
            raise ClientGone from None
        except PeerError as error:
            raise ClientRefused(error.message) from None
