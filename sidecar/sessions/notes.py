"""What enters the tail of the context before a turn: what the model was not told yet. Never the prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.events import MemoryRecalled
from protocol.messages import Message
from sidecar.agent.runtime import Agent


@dataclass(frozen=True, slots=True)
class Notes:
    """`messages` are user messages of origin `injection` that go before the turn's input. `recalled` is told after
    `turn_started`; of an empty memory it is told apart from the turn."""

    messages: tuple[Message, ...] = ()
    recalled: MemoryRecalled | None = None
    of_turn: bool = True


class TailNotes(Protocol):
    async def before_turn(self, agent: Agent, inputs: Sequence[Message]) -> Notes:
        """Never raises for what it looks at."""
        ...
