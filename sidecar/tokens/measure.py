"""The size of an agent's next request in tokens, kept up with its context. Pure but for the sums that it keeps.

    used = what the provider counted last (prompt + completion) + an estimate of what was appended since
         | an estimate of system prompt + tools + messages, before any count and after every rewrite

Estimates are raw counts times the model's factor.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from protocol.messages import Message, ToolSpec
from record_store.fold import Entry, State
from sidecar.tokens.port import Estimator


class PrefixText(Protocol):
    """What stands before the messages, as it is sent."""

    @property
    def system(self) -> str: ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]: ...


class ContextMeter:
    """Follows one agent's state. Each call costs as much as was appended since the last one.

    While `state.rewrites` is the same, entries already counted are not looked at again; when it differs, entries that
    are the same object keep their count. A new vocabulary makes all sums anew.
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._generation = -1
        self._rewrites = -1
        self._entries: list[Entry] = []
        self._sums = array("q", (0,))
        self._system: tuple[str, int] = ("", 0)
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    async def settle(self, state: State) -> None:
        """Counts what is new, in a thread where it is much. To be awaited before the plain calls after a message came
        in: they then return at once and are exact."""
        await self._estimator.warm(self._unseen(state))

    def used(self, state: State, prefix: PrefixText, factor: float = 1.0) -> int:
        """Tokens of the next request, in the model's own tokens as far as they are known."""
        self._follow(state)
        if state.anchor_tokens is None:
            return round((self._prefix(prefix) + self._sums[-1]) * factor)
        since = min(state.anchor_count, len(self._entries))
        return state.anchor_tokens + round((self._sums[-1] - self._sums[since]) * factor)

    def estimate(self, state: State, prefix: PrefixText) -> int:
        """The raw estimate of the whole next request: what `Calibration.observe` compares a report with."""
        self._follow(state)
        return self._prefix(prefix) + self._sums[-1]

    def messages_tokens(self, state: State, start: int = 0, stop: int | None = None) -> int:
        """Raw tokens of the context's messages from `start` up to `stop`, like a slice."""
        self._follow(state)
        first, last, _ = slice(start, stop).indices(len(self._entries))
        return self._sums[max(first, last)] - self._sums[first]

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        """Raw tokens of the tools; counted once while it is the same tuple."""
        self._renew()
        if self._tools[0] is not tools:
            self._tools = tools, self._estimator.tools_tokens(tools)
        return self._tools[1]

    # ---------------------------------------------------------------- following

    def _prefix(self, prefix: PrefixText) -> int:
        self._renew()
        if self._system[0] != prefix.system:
            self._system = prefix.system, self._estimator.text_tokens(prefix.system)
        return self._system[1] + self.tools_tokens(prefix.tools)

    def _renew(self) -> None:
        if self._generation != self._estimator.generation:
            self._generation = self._estimator.generation
            self._rewrites = -1
            self._entries = []
            self._sums = array("q", (0,))
            self._system, self._tools = ("", 0), ((), 0)

    def _unseen(self, state: State) -> Sequence[Message]:
        same = self._generation == self._estimator.generation and self._rewrites == state.rewrites
        if same:
            return [e.message for e in state.entries[len(self._entries) :]]
        if self._generation != self._estimator.generation:
            return state.messages()
        known = set(map(id, self._entries))
        return [e.message for e in state.entries if id(e) not in known]

    def _follow(self, state: State) -> None:
        self._renew()
        if self._rewrites != state.rewrites or len(state.entries) < len(self._entries):
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
