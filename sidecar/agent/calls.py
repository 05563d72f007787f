"""Tool calls of a step: their ids and arguments made safe, run, and their results appended in call order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from protocol.events import ToolCallStarted, ToolResult
from protocol.messages import Message, Part, TextPart, ToolCall
from record_store.records import AppendMessage
from sidecar import ids
from sidecar.agent.turn import Turn
from sidecar.groups import task_group
from sidecar.providers.jsontext import parsed_object
from sidecar.tools.port import ToolOutcome

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent

NO_OUTPUT = "(no output)"
CANCELLED = "Cancelled before it finished; it may have had effects."
ENDED = "The turn ended before this call finished; it may have had effects."
NOT_RUN = "Not run: the reply was cut off at its output limit. Make the call again, in a shorter reply."


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """`arguments` is None when the model's text is not a JSON object."""

    call: ToolCall
    arguments: dict[str, Any] | None


def arguments_of(text: str) -> dict[str, Any] | None:
    """The object that the model's text stands for; empty text counts as `{}`. None: it is no JSON object."""
    return parsed_object(text) if text.strip() else {}


def with_unique_ids(made: Sequence[ToolCall], is_taken: Callable[[str], bool]) -> tuple[ToolCall, ...]:
    """The calls with ids that are not empty, not taken and not twice among them; good ones stay as they are."""
    seen: set[str] = set()
    out: list[ToolCall] = []
    for call in made:
        name = call.id
        if not name or name in seen or is_taken(name):
            name = ids.new("call")
        seen.add(name)
        out.append(call if name == call.id else ToolCall(name, call.name, call.arguments))
    return tuple(out)


async def run_all(agent: Agent, turn: Turn, made: Sequence[ToolCall]) -> None:
    """Runs the calls, stage after stage, the calls of a stage at once; results go to the log in call order, each as
    soon as those before it are there. On cancel, what finished is in `turn.results`."""
    parsed = [ParsedCall(c, arguments_of(c.arguments)) for c in made]
    for p in parsed:
        agent.emit(ToolCallStarted(tool_call_id=p.call.id, name=p.call.name, arguments=p.arguments), turn.turn_id)
    landing = _InOrder(agent, turn, list(made))
    limiter = anyio.CapacityLimiter(agent.settings.loop_control.max_parallel_tools)

    async def one(p: ParsedCall) -> None:
        async with limiter:
            started = agent.clock.monotonic()
            outcome = await agent.tools.keep(p.call.name, await agent.tools.run(turn, p))
            landing.finished(p.call, outcome, int((agent.clock.monotonic() - started) * 1000))

    for stage in agent.tools.stages(parsed):
        async with task_group() as group:
            for index in stage:
                group.start_soon(one, parsed[index])
    await agent.writable()


class _InOrder:
    """Holds results back until all earlier ones were appended."""

    def __init__(self, agent: Agent, turn: Turn, order: list[ToolCall]) -> None:
        self._agent, self._turn = agent, turn
        self._waiting = list(order)

    def finished(self, call: ToolCall, outcome: ToolOutcome, duration_ms: int) -> None:
        self._turn.results[call.id] = (outcome, duration_ms)
        while self._waiting and self._waiting[0].id in self._turn.results:
            answer(self._agent, self._turn, self._waiting.pop(0))


def answer(agent: Agent, turn: Turn, call: ToolCall, otherwise: str = "") -> None:
    """Appends and tells the result of a call: the finished one, else an error that says `otherwise`."""
    outcome, duration_ms = turn.results.pop(call.id, (ToolOutcome.error(otherwise), 0))
    content = agent.tools.shorten(call.name, outcome.content)
    message = result_message(call, content, outcome.is_error, agent.clock.now_ms())
    agent.append(AppendMessage(time=message.time, message=message, turn_id=turn.turn_id))
    event = ToolResult(
        tool_call_id=call.id,
        name=call.name,
        content=message.content,
        is_error=outcome.is_error,
        duration_ms=duration_ms,
        locations=outcome.locations,
        diff=dict(outcome.diff) if outcome.diff is not None else None,
    )
    agent.emit(event, turn.turn_id)


def result_message(call: ToolCall, content: tuple[Part, ...], is_error: bool, time: int) -> Message:
    """The tool message that answers `call`; a provider never gets an empty one."""
    if not any(not isinstance(p, TextPart) or p.text.strip() for p in content):
        content = (TextPart(NO_OUTPUT),)
    return Message(
        id=ids.new("msg"),
        role="tool",
        content=content,
        time=time,
        tool_call_id=call.id,
        name=call.name,
        is_error=is_error,
    )


def refuse_all(agent: Agent, turn: Turn, made: Sequence[ToolCall], text: str = NOT_RUN) -> None:
    """Answers calls without running them; finished results that were held back are used where there are any."""
    for call in made:
        answer(agent, turn, call, text)
