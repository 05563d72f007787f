"""The turn, as an outline: request, calls, again. It knows nothing of compaction, retries, storage or hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.agent import calls, step
from sidecar.agent.outcome import Outcome
from sidecar.agent.turn import Turn

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent


async def run_turn(agent: Agent, turn: Turn) -> Outcome:
    """Runs a turn whose input is in the context. Raises `ProviderError`, `Fault` and `StoreWriteError`; what was
    done until then is in the log, open calls and the streamed text are the caller's to close."""
    while turn.step < agent.settings.loop_control.max_steps:
        turn.step += 1
        await agent.hooks.on_will_begin_step(turn)
        agent.begin_step(turn)
        reply = await step.ask(agent, turn)
        if reply.calls and reply.reason == "length":
            calls.refuse_all(agent, turn, reply.calls)
        elif reply.calls:
            await calls.run_all(agent, turn, reply.calls)
        agent.end_step(turn)
        await agent.hooks.on_did_finish_step(turn)
        match reply.reason:
            case "content_filter":
                return Outcome("refused")
            case "length":
                return Outcome("max_tokens")
        if not reply.calls:
            return Outcome("end_turn")
    return Outcome("max_steps")
