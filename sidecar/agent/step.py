"""One model request: sent, streamed, tried again where a hook recovers, and written down as a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.events import MessageEvent, ReasoningDelta, StreamReset, TextDelta
from protocol.messages import ToolCall
from record_store.records import AppendMessage
from sidecar import ids
from sidecar.agent import calls
from sidecar.agent.turn import Draft, Turn
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import EncodedRequest, Finished, FinishReason, ReasoningChunk, TextChunk

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered: why it stopped and the calls that it made, ids unique in the session."""

    reason: FinishReason
    calls: tuple[ToolCall, ...]


async def ask(agent: Agent, turn: Turn) -> Reply:
    """One step's answer, appended to the log and told. Raises `ProviderError` when no hook recovers."""
    turn.attempts = turn.retries = 0
    draft = turn.draft = Draft(ids.new("msg"))
    while True:
        turn.attempts += 1
        try:
            request = await agent.prepare_request(turn)
            finished = await _stream(agent, turn, draft, request)
            break
        except ProviderError as error:
            agent.record_failed_attempt(turn, error)
            if not await agent.hooks.on_request_error(turn, error):
                raise
            if draft.shown:
                agent.emit(StreamReset(message_id=draft.message_id, offset=0), turn.turn_id)
                draft.reset()
    return _accept(agent, turn, draft, finished)


async def _stream(agent: Agent, turn: Turn, draft: Draft, request: EncodedRequest) -> Finished:
    binding = agent.model.binding
    message_id, turn_id = draft.message_id, turn.turn_id
    async with binding.provider.stream(binding.model, request) as stream:
        async for event in stream:
            match event:
                case TextChunk(text):
                    agent.emit(TextDelta(message_id=message_id, text=text, offset=draft.text_chars), turn_id)
                    draft.text.append(text)
                    draft.text_chars += len(text)
                case ReasoningChunk(text):
                    agent.emit(ReasoningDelta(message_id=message_id, text=text, offset=draft.reasoning_chars), turn_id)
                    draft.reasoning.append(text)
                    draft.reasoning_chars += len(text)
                case Finished():
                    return event
            await agent.writable()
    raise ProviderError("unavailable", "The provider's answer ended before it was complete.")


def _accept(agent: Agent, turn: Turn, draft: Draft, finished: Finished) -> Reply:
    made = calls.with_unique_ids(finished.tool_calls, agent.is_call)
    if finished.reason == "length":
        made = tuple(c for c in made if calls.arguments_of(c.arguments) is not None)
    elif finished.reason == "content_filter":
        made = ()
    message = draft.message(
        time=agent.clock.now_ms(),
        model=agent.model.binding.reference,
        calls=made,
        blocks=finished.reasoning_blocks,
    )
    turn.draft = None
    if made or message.text.strip():
        agent.append(AppendMessage(time=message.time, message=message, turn_id=turn.turn_id))
        agent.emit(MessageEvent(message=message), turn.turn_id)
    agent.record_usage(turn, finished.usage)
    return Reply(finished.reason, made)
