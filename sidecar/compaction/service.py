"""The compaction service of one agent: what the loop's hooks and the host's calls set going.

Decisions are in the pure modules; `Boundary` puts what is due between two steps in order, `Runs` carries out
compactions, `Rewrites` the free half. All of it runs on the agent's event loop; the hooks are called between steps, by
one turn at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from protocol.info import CacheDiagnostics, ContextInfo, Recovered
from record_store.records import Breakers
from sidecar.compaction import breakers as circuit
from sidecar.compaction import triggers
from sidecar.compaction.boundary import Boundary, overflow_fault
from sidecar.compaction.circuits import Circuits
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.info import context_info
from sidecar.compaction.policy import PRESETS, Policy, Preset
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.run import Runs
from sidecar.compaction.uncompact import uncompact
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class CompactOutcome:
    """What a manual compaction came to; tokens are those of the whole context."""

    outcome: Literal["landed", "nothing_to_compact"]
    compaction_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class CompactionService:
    """Attaches to one agent's loop; made once its log was read.

    `resumed`: the session was opened again, so that the provider's cache may be cold. Other `presets` than the
    product's are for comparing them.
    """

    def __init__(self, port: AgentPort, *, resumed: bool = False, presets: Mapping[str, Preset] = PRESETS) -> None:
        self._port = port
        self._gauge = Gauge(port, resumed=resumed, presets=presets)
        self._circuits = Circuits(port)
        self._runs = Runs(port, self._gauge, self._circuits)
        self._boundary = Boundary(port, self._gauge, self._circuits, self._runs)

    # ------------------------------------------------------------ hooks

    async def on_will_begin_step(self, turn_id: str | None) -> None:
        """Before steering enters and the request is built. May wait for a compaction; cancelling that wait cancels
        the compaction. Raises `Fault` (`store_write_failed`)."""
        await self._boundary.before_step(self._refresh())

    async def on_did_finish_step(self, turn_id: str | None) -> None:
        """After `step.end` is in the log."""
        self._gauge.step_finished()
        await self._boundary.after_step(self._refresh())

    async def on_request_error(self, turn_id: str | None, error: ProviderError) -> bool:
        """Whether the step may be tried again: an overflow was answered by a smaller context.

        False for every other error. Raises `context_overflow` when nothing (more) can be done about an overflow.
        """
        port = self._port
        used, window = port.used(), port.window().tokens
        if not triggers.is_overflow(error, used, window):
            return False
        self._gauge.overflow = self._gauge.overflow.next(turn_id, window)
        self._gauge.teach(error, used)
        policy = self._refresh()
        if not policy.auto:
            raise overflow_fault("Automatic compaction is off (compaction.auto = false)")
        if self._gauge.overflow.count > policy.max_overflow_attempts:
            raise overflow_fault(f"{policy.max_overflow_attempts} compactions in a row did not make it fit")
        return await self._boundary.make_room(policy)

    def breakers_after_step(self, used: int) -> Breakers | None:
        """For `step.end`: the breakers once a step is over with `used` tokens; None if they do not change."""
        now = self._port.state.breakers
        after = circuit.after_step(now, used, self._gauge.policy())
        return after if after != now else None

    def on_context_changed(self) -> None:
        """After undo, clear, a host's revision, a quarantine or a change of configuration: stops a compaction whose
        span is gone, and tells which circuits closed."""
        self._runs.cancel_if_stale()
        self._refresh()

    # ------------------------------------------------------------ what hosts ask for

    async def compact_now(self, instruction: str | None = None) -> CompactOutcome:
        """Compacts at once; the agent is idle and stays so. Raises `compaction_failed` with `cause`. Cancelling the
        call cancels the compaction."""
        end = await self._boundary.compact_manually(self._refresh(), instruction)
        if end is None:
            return CompactOutcome("nothing_to_compact")
        if end.kind == "landed":
            return CompactOutcome("landed", end.compaction_id, end.pre_tokens, end.post_tokens)
        raise Fault(
            "compaction_failed",
            f"The compaction did not land: {end.reason}",
            hint="the context is unchanged; it can be tried again",
            cause=end.reason,
            compaction_id=end.compaction_id,
        )

    def queue_next_step(self, instruction: str | None = None) -> None:
        """Compacts at the next boundary before a step, whatever trigger, margin and breakers say."""
        self._boundary.queue(instruction)

    def cancel_manual(self) -> bool:
        """Ends a manual compaction that runs; whether there was one that could still be ended."""
        running = self._runs.running
        return running is not None and running.manual and self._runs.cancel(running, "cancelled")

    @property
    def is_landing(self) -> bool:
        """A compaction changes the context now, and can no longer be ended."""
        running = self._runs.running
        return running is not None and running.closing

    async def uncompact(self, compaction_id: str | None = None) -> int:
        """Takes the last landing back; the tokens then. Raises `undo_blocked`."""
        tokens = await uncompact(self._port, self._gauge, compaction_id)
        self.on_context_changed()
        return tokens

    def context_info(self, cache: CacheDiagnostics | None) -> ContextInfo:
        """For `agent.context.get`."""
        return context_info(self._port, self._gauge.policy(), self._runs.running, cache)

    # ------------------------------------------------------------ life

    async def settle_on_resume(self) -> Recovered | None:
        """After open calls were answered: lands the paid summary of an open bracket without asking anyone, or cancels
        the bracket."""
        bracket = self._port.state.bracket
        if bracket is None:
            return None
        end = await self._runs.settle(bracket, self._gauge.policy())
        what = "its paid summary landed" if end.kind == "landed" else f"cancelled ({end.reason})"
        return Recovered(kind="open_compaction", detail=f"{end.compaction_id}: {what}", line=bracket.line)

    async def close(self) -> None:
        """Before the session goes: lands what is paid for if it may, and cancels what runs."""
        await self._runs.land_if_ready()
        running = self._runs.running
        if running is not None and not self._runs.cancel(running, "cancelled"):
            await running.done.wait()

    def _refresh(self) -> Policy:
        self._circuits.close_for_larger_window()
        self._circuits.announce()
        policy = self._gauge.policy()
        self._gauge.tell_notices(policy)
        return policy
