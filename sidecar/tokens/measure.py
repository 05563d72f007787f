"""The size of an agent's next request in tokens, kept up with its context. Pure but for the sums that it keeps.

    used = what the provider counted last (prompt + completion) + an estimate of what was appended since
         | an estimate of system prompt + tools + messages, before any count and after every rewrite

Estimates are raw counts times the model's factor.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from protocol.messages import Message, ToolSpec
from record_store.fold import Entry, State
from record_store.records import Edit
from sidecar.tokens.port import Calibration, Estimator


class PrefixText(Protocol):
    """What stands before the messages, as it is sent."""

    @property
    def system(self) -> str: ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]: ...


class ContextMeter:
    """Follows one agent's state. Each call costs as much as was appended since the last one.

    While `state.rewrites` is the same, entries already counted are not looked at again; when it differs, entries that
    are the same object keep their count. A new vocabulary makes all sums anew. `model` is `provider/model`.
    """

    def __init__(self, estimator: Estimator, calibration: Calibration) -> None:
        self._estimator = estimator
        self._calibration = calibration
        self._generation = -1
        self._rewrites = -1
        self._entries: list[Entry] = []
        self._sums = array("q", (0,))
        self._places: dict[int, int] = {}
        self._placed = 0
        self._system: tuple[str, int] = ("", 0)
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def unmeasured(self, state: State) -> list[Entry]:
        """The entries that the next plain call has to count. Large ones are only sampled by it, and stay so until
        the next rewrite, unless `Estimator.warm` gets their messages first."""
        if self._generation != self._estimator.generation:
            return list(state.entries)
        if self._is_append(state):
            return state.entries[len(self._entries) :]
        known = set(map(id, self._entries))
        return [e for e in state.entries if id(e) not in known]

    def used(self, state: State, prefix: PrefixText, model: str) -> int:
        """Tokens of the next request, in the model's own tokens as far as they are known."""
        self._follow(state)
        factor = self._calibration.factor(model)
        if state.anchor_tokens is None:
            return round((self.prefix_tokens(prefix) + self._sums[-1]) * factor)
        since = min(state.anchor_count, len(self._entries))
        return state.anchor_tokens + round((self._sums[-1] - self._sums[since]) * factor)

    def raw(self, state: State, prefix: PrefixText) -> int:
        """The raw estimate of the whole next request: what `Calibration.observe` compares a report with."""
        self._follow(state)
        return self.prefix_tokens(prefix) + self._sums[-1]

    def messages_tokens(self, state: State, start: int = 0, stop: int | None = None) -> int:
        """Raw tokens of the context's messages from `start` up to `stop`, like a slice."""
        self._follow(state)
        first, last, _ = slice(start, stop).indices(len(self._entries))
        return self._sums[max(first, last)] - self._sums[first]

    def message_tokens(self, message: Message) -> int:
        """Raw tokens of any message; a look-up for one of the context. For code that asks for all of them, often."""
        if self._placed < len(self._entries):
            new = self._entries[self._placed :]
            self._places.update((id(e.message), i) for i, e in enumerate(new, self._placed))
            self._placed = len(self._entries)
        place = self._places.get(id(message))
        if place is None or self._generation != self._estimator.generation:
            return self._estimator.message_tokens(message)
        return self._sums[place + 1] - self._sums[place]

    def saved_by(self, state: State, edits: Iterable[Edit], model: str) -> int:
        """Tokens by which these edits would make the context smaller, in the model's own tokens."""
        content = {edit.message_id: edit.content for edit in edits}
        count = self._estimator.message_tokens
        saved = 0
        for entry in state.entries if content else ():
            new = content.get(entry.message.id)
            if new is not None:
                saved += count(entry.message) - count(replace(entry.message, content=new))
        return round(saved * self._calibration.factor(model))

    def prefix_tokens(self, prefix: PrefixText) -> int:
        """Raw tokens of the system prompt and the tools; each counted once while it is the same."""
        self._renew()
        if self._system[0] != prefix.system:
            self._system = prefix.system, self._estimator.text_tokens(prefix.system)
        return self._system[1] + self.tools_tokens(prefix.tools)

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        """Raw tokens of the tools; counted once while it is the same tuple."""
        self._renew()
        if self._tools[0] is not tools:
            self._tools = tools, self._estimator.tools_tokens(tools)
        return self._tools[1]

    # ---------------------------------------------------------------- following

    def _is_append(self, state: State) -> bool:
        return self._rewrites == state.rewrites and len(state.entries) >= len(self._entries)

    def _renew(self) -> None:
        if self._generation != self._estimator.generation:
            self._generation = self._estimator.generation
            self._rewrites = -1
            self._entries = []
            self._sums = array("q", (0,))
            self._places, self._placed = {}, 0
            self._system, self._tools = ("", 0), ((), 0)

    def _follow(self, state: State) -> None:
        self._renew()
        if not self._is_append(state):
            self._rebuild(state)
        count, sums = self._estimator.message_tokens, self._sums
        for entry in state.entries[len(self._entries) :]:
            sums.append(sums[-1] + count(entry.message))
            self._entries.append(entry)

    def _rebuild(self, state: State) -> None:
        """Takes over the counts of entries that are still there. The old list keeps them alive, so ids are unique."""
        old = self._sums
        known = {id(e): old[i + 1] - old[i] for i, e in enumerate(self._entries)}
        count = self._estimator.message_tokens
        sums, total = array("q", (0,)), 0
        for entry in state.entries:
            tokens = known.get(id(entry))
            total += count(entry.message) if tokens is None else tokens
            sums.append(total)
        self._entries, self._sums, self._rewrites = list(state.entries), sums, state.rewrites
        self._places, self._placed = {}, 0
