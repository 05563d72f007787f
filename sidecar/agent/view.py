"""The context as a provider may see it: every call answered, every result behind its call. Pure.

A well-formed context passes through as it is, the same objects in the same order. What cannot be sent is left out
or closed: an orphan result, a blank assistant message, a call that nothing answered (a damaged log, a host's seed).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages import ImagePart, Message, TextPart, ToolCall
from record_store.fold import Entry, State

INTERRUPTED = "No result: the call was interrupted; it may have had effects."


def is_blank(message: Message) -> bool:
    """No text, no image, no call: a provider refuses it."""
    return not message.tool_calls and not any(
        isinstance(p, ImagePart) or (isinstance(p, TextPart) and p.text.strip()) for p in message.content
    )


def synthetic_result(call: ToolCall, time: int, text: str = INTERRUPTED) -> Message:
    """The result of a call that has none. Its id follows from the call's, so that it is the same every time."""
    return Message(
        id=f"{call.id}-interrupted",
        role="tool",
        content=(TextPart(text),),
        time=time,
        tool_call_id=call.id,
        name=call.name,
        is_error=True,
    )


def open_calls(entries: Sequence[Entry]) -> list[ToolCall]:
    """The calls at the end of the context that have no result yet, in call order."""
    answered: set[str] = set()
    for entry in reversed(entries):
        message = entry.message
        if message.role == "tool":
            answered.add(message.tool_call_id or "")
        elif message.tool_calls:
            return [c for c in message.tool_calls if c.id not in answered]
        else:
            return []
    return []


class WellFormed:
    """Follows a state; costs what is new. `entries` only grows while `state.rewrites` stays."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seen = 0
        self._rewrites = -1
        self._open: list[ToolCall] = []
        self._line = 0

    def follow(self, state: State) -> list[Entry]:
        """The entries to send. Calls at the very end that have no result yet are closed too, as a request must."""
        if state.rewrites != self._rewrites or len(state.entries) < self._seen:
            self.entries = []
            self._open = []
            self._seen = 0
            self._rewrites = state.rewrites
        for i in range(self._seen, len(state.entries)):
            self._take(state.entries[i])
        self._seen = len(state.entries)
        self._close()
        return self.entries

    def unseen(self, state: State) -> list[Entry]:
        """The entries that `follow` has not looked at; after a rewrite, none: their bytes are mostly known."""
        return state.entries[self._seen :] if state.rewrites == self._rewrites else []

    def _take(self, entry: Entry) -> None:
        message = entry.message
        if message.role == "tool":
            for i, call in enumerate(self._open):
                if call.id == message.tool_call_id:
                    del self._open[i]
                    self.entries.append(entry)
                    return
            return
        self._close()
        if message.role == "assistant" and is_blank(message):
            return
        self.entries.append(entry)
        if message.tool_calls:
            self._open = list(message.tool_calls)
            self._line = entry.line

    def _close(self) -> None:
        for call in self._open:
            time = self.entries[-1].message.time
            self.entries.append(Entry(synthetic_result(call, time), self._line))
        self._open = []
