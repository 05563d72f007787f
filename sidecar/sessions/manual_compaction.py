"""A compaction that a host asked for, as something that can be cancelled from its first measuring on."""

from __future__ import annotations

import anyio

from sidecar.compaction.service import CompactOutcome
from sidecar.errors import Fault
from sidecar.sessions.assembly import Seat


class ManualCompaction:
    """One that is under way. The agent is idle and stays so."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._scope = anyio.CancelScope()

    async def run(self, instruction: str | None) -> CompactOutcome:
        """Raises `compaction_failed` with `cause`: the context is unchanged then."""
        agent = self._seat.agent
        with self._scope:
            await agent.measuring.estimator.warm(e.message for e in agent.meter.unmeasured(agent.state))
            return await self._seat.compaction.compact_now(instruction)
        raise Fault("compaction_failed", "The compaction was cancelled.", cause="cancelled")

    def cancel(self) -> bool:
        """Ends it; False when it is landing, which cannot be taken back."""
        compaction = self._seat.compaction
        if compaction.cancel_manual():
            return True
        if compaction.is_landing:
            return False
        self._scope.cancel()
        return True
