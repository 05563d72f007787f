"""A host's own transcript, taken into a session: what is new is appended, what differs is revised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.chat import HostMessage
from protocol.messages import Message, Origin
from record_store.backend import Blobs
from record_store.records import AppendMessage, HostRevision, Record
from sidecar import ids
from sidecar.sessions import content as border
from sidecar.sessions import seeds
from sidecar.sessions.assembly import Seat


@dataclass(frozen=True, slots=True)
class Compared:
    """The host's messages against ours. `rest` are those from the first on that is new or different."""

    match: seeds.Match
    rest: tuple[HostMessage, ...]
    raw: Sequence[Message]

    @property
    def agrees(self) -> bool:
        return not self.rest and not self.match.diverged


class Seeding:
    def __init__(self, seat: Seat, blobs: Blobs) -> None:
        self._seat = seat
        self._blobs = blobs

    async def compare(self, history: Sequence[HostMessage]) -> Compared:
        raw = await self._seat.conversation.messages()
        match = seeds.match(history, raw)
        return Compared(match, tuple(seeds.spoken(history)[match.common :]), raw)

    async def records(self, found: Compared, now_ms: int) -> list[Record]:
        """Records that make the context agree. Raises `invalid_params` for content that cannot be taken in."""
        new = [await self._message(m, i + found.match.common, now_ms) for i, m in enumerate(found.rest)]
        entries = self._seat.agent.state.entries
        if not found.match.diverged:
            new = seeds.with_ids_of_their_own(new, [e.message for e in entries])
            return [AppendMessage(time=now_ms, message=m) for m in new]
        keep, again = seeds.kept_until(entries, found.raw, found.match.ours)
        new = seeds.with_ids_of_their_own([*again, *new], [e.message for e in entries[:keep]])
        return [
            HostRevision(time=now_ms, from_message=found.match.common, keep=keep, messages=tuple(new)),
        ]

    async def _message(self, m: HostMessage, index: int, now_ms: int) -> Message:
        parts = await border.store_images(m.content, self._blobs, path=f"history[{index}].content")
        origin = None
        if m.origin is not None and m.origin.kind != "user":
            origin = Origin(m.origin.kind, m.origin.trigger, m.origin.variant)
        return Message(
            id=ids.new("msg"),
            role=m.role,
            content=parts,
            time=int(m.time) if m.time is not None else now_ms,
            origin=origin,
            tool_calls=m.tool_calls or None,
            tool_call_id=m.tool_call_id,
            name=m.name,
            is_error=bool(m.is_error),
        )
