"""The compaction service of one agent: what the loop's hooks and the host's calls set going.

Decisions are in the pure modules; `Runs` carries out compactions, `Rewrites` the free half. The service only puts them
in order. All of it runs on the agent's event loop; the hooks are called between steps, by one turn at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from protocol.events import ContextSoftLimit
from protocol.info import CacheDiagnostics, ContextInfo, Recovered
from record_store.records import Breakers
from sidecar.compaction import breakers as circuit
from sidecar.compaction import triggers
from sidecar.compaction.circuits import Circuits
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.info import context_info
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.rewrites import Rewrites
from sidecar.compaction.run import Runs
from sidecar.compaction.running import End, Running
from sidecar.compaction.shape import Span, build_shape
from sidecar.compaction.triggers import Verdict
from sidecar.compaction.uncompact import uncompact
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError

MAX_QUEUED_INSTRUCTIONS: Final = 8
"""Requests for the next step beyond this many are one with the last of them."""

OVERFLOW_HINT: Final = "compact the session, remove large content, or choose a model with a larger window"


@dataclass(frozen=True, slots=True)
class CompactOutcome:
    """What a manual compaction came to; tokens are those of the whole context."""

    outcome: Literal["landed", "nothing_to_compact"]
    compaction_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class CompactionService:
    """Attaches to one agent's loop; made once its log was read.

    `resumed`: the session was opened again, so that the provider's cache may be cold.
    """

    def __init__(self, port: AgentPort, *, resumed: bool = False) -> None:
        self._port = port
        self._gauge = Gauge(port, resumed=resumed)
        self._circuits = Circuits(port)
        self._runs = Runs(port, self._gauge, self._circuits)
        self._rewrites = Rewrites(port, self._gauge)
        self._queued: list[str | None] = []
        self._soft_told = False
        self._steps_since_micro = 0

    # ------------------------------------------------------------ hooks

    async def on_will_begin_step(self, turn_id: str | None) -> None:
        """Before steering enters and the request is built. May wait for a compaction; cancelling that wait cancels
        the compaction. Raises `Fault` (`store_write_failed`)."""
        policy = self._refresh()
        await self._runs.land_if_ready()
        if self._queued:
            await self._run_queued(policy)
        self._tell_soft(policy)
        self._free_half(policy, self._verdict(policy), before_request=True)
        self._start_if_due(policy)
        await self._wait_at_block(policy)

    async def on_did_finish_step(self, turn_id: str | None) -> None:
        """After `step.end` is in the log."""
        self._gauge.step_finished()
        self._steps_since_micro += 1
        policy = self._refresh()
        await self._runs.land_if_ready()
        if policy.background:
            self._free_half(policy, self._verdict(policy), before_request=False)
            self._start_if_due(policy)

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
            raise _overflow("Automatic compaction is off (compaction.auto = false)")
        if self._gauge.overflow.count > policy.max_overflow_attempts:
            raise _overflow(f"{policy.max_overflow_attempts} compactions in a row did not make it fit")
        return await self._make_room(policy)

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
        end = await self._compact_manually(self._refresh(), instruction)
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
        del self._queued[MAX_QUEUED_INSTRUCTIONS - 1 :]
        self._queued.append(instruction)

    def cancel_manual(self) -> bool:
        """Ends a manual compaction that runs; whether there was one that could still be ended."""
        running = self._runs.running
        return running is not None and running.manual and self._runs.cancel(running, "cancelled")

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

    # ------------------------------------------------------------ deciding and acting

    def _refresh(self) -> Policy:
        self._circuits.close_for_larger_window()
        self._circuits.announce()
        policy = self._gauge.policy()
        self._gauge.tell_notices(policy)
        return policy

    def _verdict(self, policy: Policy) -> Verdict:
        state = self._port.state
        return triggers.should_start(policy, self._port.used(), state.breakers, state.tokens_after_landing)

    def _tell_soft(self, policy: Policy) -> None:
        used = self._port.used()
        due, self._soft_told = triggers.soft_notice_due(policy, used, self._soft_told)
        if due:
            self._port.emit(ContextSoftLimit(used=used, window=policy.window))

    def _free_half(self, policy: Policy, verdict: Verdict, *, before_request: bool) -> None:
        """At most one of: the periodic pass, pruning instead of a summary, relief where no summary may help, snip."""
        if not policy.auto or self._runs.running is not None:
            return
        interval = policy.micro_compact_interval_steps
        if interval and before_request and self._steps_since_micro >= interval:
            self._steps_since_micro = 0
            if self._rewrites.micro(policy):
                return
        used, landed = self._port.used(), self._port.state.tokens_after_landing
        if verdict == "start":
            if policy.prune_at_trigger:
                self._rewrites.prune_below_trigger(policy)
        elif verdict != "below" and landed is not None and landed >= policy.trigger_at:
            self._rewrites.last_pass(policy)
        elif verdict != "below" and used >= policy.force_at and policy.prune_at_trigger:
            self._rewrites.prune_below_trigger(policy, force=True)
        elif before_request and used >= policy.snip_at and policy.snip_when != "never":
            cold = self._gauge.is_cold(policy)
            if cold or policy.snip_when == "always":
                self._rewrites.snip(policy, cold=cold)

    def _start_if_due(self, policy: Policy) -> Running | None:
        """Starts an automatic compaction if one is due and there is something to compact."""
        if self._runs.running is not None or self._verdict(policy) != "start":
            return None
        if not self._has_something(policy):
            self._rewrites.last_pass(policy)
            return None
        blocking = triggers.must_wait(policy, self._port.used()) or not policy.summarizer
        return self._runs.start(policy, "auto", "blocking" if blocking else "background")

    async def _wait_at_block(self, policy: Policy) -> None:
        """Goes on only with a compaction's end. A result that turned out stale is followed by one fresh attempt."""
        for _ in range(2):
            running = self._runs.running
            if running is None:
                return
            at_block = triggers.must_wait(policy, self._port.used())
            if not at_block and running.mode == "background":
                return
            end = await self._runs.wait(running, at_block=at_block)
            if end.kind == "failed" and self._port.used() >= policy.block_at:
                self._rewrites.last_pass(policy)
            if end.reason != "stale":
                return
            self._start_if_due(policy)

    async def _run_queued(self, policy: Policy) -> None:
        wishes = [text for text in self._queued if text]
        self._queued.clear()
        await self._compact_manually(policy, "\n".join(dict.fromkeys(wishes)) or None)

    async def _compact_manually(self, policy: Policy, instruction: str | None) -> End | None:
        """A compaction that somebody asked for, or the running one in its place if that lands. None: nothing to
        compact."""
        at_block = triggers.must_wait(policy, self._port.used()) and self._port.state.open_turn is not None
        running = self._runs.running
        if running is not None:
            end = await self._runs.wait(running, at_block=at_block)
            if end.kind == "landed" or end.reason == "cancelled":
                return end
        if not self._has_something(policy):
            self._circuits.close()
            return None
        return await self._runs.wait(self._runs.start(policy, "manual", "blocking", instruction), at_block=at_block)

    async def _make_room(self, policy: Policy) -> bool:
        """Answers an overflow: the running compaction, or one of its own, or at last whatever can be made short."""
        running = self._runs.running
        if running is not None and (await self._runs.wait(running, at_block=True)).kind == "landed":
            return True
        if self._has_something(policy):
            end = await self._runs.wait(self._runs.start(policy, "overflow", "blocking"), at_block=True)
            if end.kind == "landed":
                return True
        if self._rewrites.last_pass(policy):
            return True
        raise _overflow("There is nothing left in the context that compaction could make smaller")

    def _has_something(self, policy: Policy) -> bool:
        """Whether the shape would leave out anything that no compaction made."""
        port = self._port
        span = Span("probe", port.state.entries, 0, self._gauge.prefix_tokens(), port.wire_path, ((1, 1),))
        return build_shape(policy, span, "", self._gauge.sizes()).shadows


def _overflow(why: str) -> Fault:
    return Fault("context_overflow", f"The request is too large for the model. {why}", hint=OVERFLOW_HINT)
