"""The raw conversation of an open log, kept up with it for hosts that send their own transcript along."""

from __future__ import annotations

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

    async def messages(self) -> list[Message]:
        """Every message that ever entered and was not undone, in order. Not to be changed by the caller."""
        if self._transcript is None:
            self._transcript = Transcript()
        try:
            await follow(self._transcript, self._journal)
            refs = self._transcript.refs()
            same = 0
            while same < min(len(refs), len(self._refs)) and refs[same] is self._refs[same]:
                same += 1
            if same < len(refs) or same < len(self._refs):
                new = await read_messages(self._transcript, self._journal, same)
                self._messages = self._messages[:same] + new
                self._refs = refs
        except StoreError as error:
            raise store_fault(error) from error
        return self._messages
