"""The hook that counts new messages before anyone decides by their size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.agent.ports import HookBase
from sidecar.agent.turn import Turn

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent


class MeasureHook(HookBase):
    """First in the chain: large texts are counted and images read in a thread here, so that the plain calls after it
    are exact and quick."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def on_will_begin_step(self, turn: Turn) -> None:
        agent = self._agent
        await agent.model.images.fetch(e.message for e in agent.model.unseen(agent.state))
        await self._warm()

    async def on_did_finish_step(self, turn: Turn) -> None:
        await self._warm()

    async def _warm(self) -> None:
        agent = self._agent
        new = agent.meter.unmeasured(agent.state)
        if new:
            await agent.measuring.estimator.warm(e.message for e in new)
