"""The hook that waits and tries a failed request again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio

from protocol.events import RetryScheduled
from sidecar.agent.ports import HookBase
from sidecar.agent.turn import Turn
from sidecar.providers.errors import ProviderError
from sidecar.providers.retry import next_delay

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent


class RetryHook(HookBase):
    """Recovers from what passes: rate limits, overload, lost connections. Cancelling the turn ends the wait."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        policy = self._agent.model.binding.provider.retry
        wait = next_delay(error, turn.retries, policy, random.random())
        if wait is None:
            return False
        turn.retries += 1
        self._agent.emit(
            RetryScheduled(attempt=turn.retries, delay_ms=int(wait * 1000), reason=error.reason, status=error.status),
            turn.turn_id,
        )
        await anyio.sleep(wait)
        return True
