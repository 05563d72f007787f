"""`agent.chat.*`"""

from __future__ import annotations

import anyio

from protocol.chat import (
    CancelParams,
    CancelResult,
    CompactParams,
    CompactResult,
    SendParams,
    SendResult,
    SteerParams,
    SteerResult,
    UncompactParams,
    UncompactResult,
    UndoParams,
    UndoResult,
)
from protocol.common import SessionParams
from protocol.messages import TurnResult
from protocol.session import SessionResult
from sidecar.rpc.bind import TypedHandler
from sidecar.rpc.port import Peer
from sidecar.sessions.manager import SessionManager


class ChatHandlers:
    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    def table(self) -> dict[str, TypedHandler]:
        return {
            "agent.chat.send": self.send,
            "agent.chat.steer": self.steer,
            "agent.chat.cancel": self.cancel,
            "agent.chat.compact": self.compact,
            "agent.chat.uncompact": self.uncompact,
            "agent.chat.undo": self.undo,
            "agent.chat.clear": self.clear,
        }

    async def send(self, peer: Peer, p: SendParams) -> SendResult | TurnResult:
        async with self._manager.using(p.session_id) as session:
            handle = await session.send(p.content, history=p.history, client_message_id=p.client_message_id)
        if not p.wait:
            return SendResult(turn_id=handle.turn_id)
        try:
            return await handle.wait()
        except anyio.get_cancelled_exc_class():
            session.turns.abandon(handle)
            raise

    async def steer(self, peer: Peer, p: SteerParams) -> SteerResult:
        async with self._manager.using(p.session_id) as session:
            started = await session.steer(p.content)
        return SteerResult(accepted=True, turn_id=started.turn_id if started is not None else None)

    async def cancel(self, peer: Peer, p: CancelParams) -> CancelResult:
        async with self._manager.using(p.session_id) as session:
            return CancelResult(cancelled=session.cancel(p.turn_id))

    async def compact(self, peer: Peer, p: CompactParams) -> CompactResult:
        async with self._manager.using(p.session_id) as session:
            return await session.compact(p.agent_id, p.instruction, p.when)

    async def uncompact(self, peer: Peer, p: UncompactParams) -> UncompactResult:
        async with self._manager.using(p.session_id) as session:
            tokens = await session.uncompact(p.compaction_id)
            return UncompactResult(session=session.info(), tokens=tokens)

    async def undo(self, peer: Peer, p: UndoParams) -> UndoResult:
        async with self._manager.using(p.session_id) as session:
            removed = await session.undo(p.turns)
            return UndoResult(removed_turns=removed, session=session.info())

    async def clear(self, peer: Peer, p: SessionParams) -> SessionResult:
        async with self._manager.using(p.session_id) as session:
            await session.clear()
            return SessionResult(session=session.info())
