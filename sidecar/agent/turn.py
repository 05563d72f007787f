"""A running turn: what only lives while it runs. Everything that must survive is a record."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from protocol.messages import Message, ReasoningBlock, TextPart, ToolCall, TurnResult, Usage
from sidecar.tools.port import ToolOutcome


@dataclass(slots=True)
class Draft:
    """The assistant message that is being streamed. `message_id` stays the same when the step is tried again."""

    message_id: str
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    text_chars: int = 0
    reasoning_chars: int = 0

    @property
    def shown(self) -> bool:
        return self.text_chars > 0 or self.reasoning_chars > 0

    def reset(self) -> None:
        self.text.clear()
        self.reasoning.clear()
        self.text_chars = self.reasoning_chars = 0

    def message(
        self,
        *,
        time: int,
        model: str,
        calls: tuple[ToolCall, ...] = (),
        blocks: tuple[ReasoningBlock, ...] = (),
        partial: bool = False,
    ) -> Message:
        text = "".join(self.text)
        reasoning = "".join(self.reasoning)
        return Message(
            id=self.message_id,
            role="assistant",
            content=(TextPart(text),) if text else (),
            time=time,
            tool_calls=calls or None,
            reasoning=reasoning or None,
            reasoning_blocks=blocks or None,
            model=model,
            partial=partial,
        )


@dataclass(slots=True)
class Turn:
    """One turn. `results` holds outcomes, and how many ms they took, of calls whose turn to be appended has not come
    yet."""

    turn_id: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    step: int = 0
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0, 0))
    draft: Draft | None = None
    results: dict[str, tuple[ToolOutcome, int]] = field(default_factory=dict)
    attempts: int = 0
    retries: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
        self.scope.cancel()


class TurnHandle:
    """Where waiters find the end of a turn."""

    __slots__ = ("_done", "cancelled", "result", "turn_id")

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.result: TurnResult | None = None
        self.cancelled = False
        self._done = anyio.Event()

    def finish(self, result: TurnResult) -> None:
        self.result = result
        self._done.set()

    async def wait(self) -> TurnResult:
        await self._done.wait()
        assert self.result is not None
        return self.result
