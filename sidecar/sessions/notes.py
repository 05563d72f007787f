"""What enters the tail of the context before a turn: what the model was not told yet. Never the prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol.messages import Message
from sidecar.agent.runtime import Agent


class TailNotes(Protocol):
    async def before_turn(self, agent: Agent, inputs: Sequence[Message], turn_id: str) -> list[Message]:
        """User messages of origin `injection` that go before the turn's input. Never raises for what it looks at."""
        ...


class NoNotes:
    async def before_turn(self, agent: Agent, inputs: Sequence[Message], turn_id: str) -> list[Message]:
        return []
