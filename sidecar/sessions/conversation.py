"""The raw conversation of an open log, kept up with it for hosts that send their own transcript along."""

from __future__ import annotations

import anyio

from protocol.messages import Message
from record_store.backend import Journal
from record_store.errors import StoreError
from record_store.transcript import Ref, Transcript, follow, read_messages
from sidecar.store_errors import store_fault


class Conversation:
    """Costs nothing until it is asked for, and then what is new since."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._transcript: Transcript | None = None
        self._refs: list[Ref] = []
        self._messages: list[Message] = []
        # Two readers at once would each take in the same lines.
        self._reading = anyio.Lock()

    async def messages(self) -> list[Message]:
        """Every message that ever entered and was not undone, in order. Not to be changed by the caller."""
        async with self._reading:
            try:
                return await self._kept_up()
            except StoreError as error:
                raise store_fault(error) from error

    async def _kept_up(self) -> list[Message]:
        if self._transcript is None:
            self._transcript = Transcript()
        await follow(self._transcript, self._journal)
        refs = self._transcript.refs()
        same = 0
        while same < min(len(refs), len(self._refs)) and refs[same] is self._refs[same]:
            same += 1
        if same < len(refs) or same < len(self._refs):
            new = await read_messages(self._transcript, self._journal, same)
            self._messages = self._messages[:same] + new
            self._refs = refs
        return self._messages
