"""What happens between two steps: what is due, in order, each thing only where the pure modules say so."""

from __future__ import annotations

from typing import Final

from protocol.events import ContextSoftLimit
from sidecar.compaction import triggers
from sidecar.compaction.circuits import Circuits
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.landing import has_gain
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.rewrites import Rewrites
from sidecar.compaction.run import Runs
from sidecar.compaction.running import End
from sidecar.compaction.shape import Shaped, Span, build_shape
from sidecar.compaction.triggers import Verdict
from sidecar.errors import Fault

MAX_QUEUED_INSTRUCTIONS: Final = 8
"""Requests for the next step beyond this many are one with the last of them."""

OVERFLOW_HINT: Final = "compact the session, remove large content, or choose a model with a larger window"


class Boundary:
    """One agent's boundaries. Its state is what no log needs: what is queued, what was told, steps since a pass."""

    def __init__(self, port: AgentPort, gauge: Gauge, circuits: Circuits, runs: Runs) -> None:
        self._port = port
        self._gauge = gauge
        self._circuits = circuits
        self._runs = runs
        self._rewrites = Rewrites(port, gauge)
        self._queued: list[str | None] = []
        self._soft_told = False
        self._steps_since_micro = 0

    async def before_step(self, policy: Policy) -> None:
        """Lands what is ready, runs what is queued, makes things short, starts, waits."""
        await self._runs.land_if_ready()
        if self._queued:
            await self._run_queued(policy)
        self._tell_soft(policy)
        self._free_half(policy, before_request=True)
        self._start_if_due(policy)
        await self._wait_at_block(policy)

    async def after_step(self, policy: Policy) -> None:
        """Lands what is ready; starts if that may run beside the next step."""
        self._steps_since_micro += 1
        await self._runs.land_if_ready()
        if policy.background:
            self._free_half(policy, before_request=False)
            self._start_if_due(policy)

    def queue(self, instruction: str | None) -> None:
        """A compaction for the next boundary before a step."""
        del self._queued[MAX_QUEUED_INSTRUCTIONS - 1 :]
        self._queued.append(instruction)

    async def compact_manually(self, policy: Policy, instruction: str | None) -> End | None:
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

    async def make_room(self, policy: Policy) -> bool:
        """Answers an overflow: the running compaction, or one of its own, or at last whatever can be made short."""
        running = self._runs.running
        if running is not None and (await self._runs.wait(running, at_block=True)).kind == "landed":
            return True
        if self._could_shrink(policy):
            end = await self._runs.wait(self._runs.start(policy, "overflow", "blocking"), at_block=True)
            if end.kind == "landed":
                return True
        if self._rewrites.last_pass(policy):
            return True
        raise overflow_fault("There is nothing left in the context that compaction could make smaller")

    def _verdict(self, policy: Policy) -> Verdict:
        state = self._port.state
        return triggers.should_start(policy, self._port.used(), state.breakers, state.tokens_after_landing)

    def _tell_soft(self, policy: Policy) -> None:
        used = self._port.used()
        due, self._soft_told = triggers.soft_notice_due(policy, used, self._soft_told)
        if due:
            self._port.emit(ContextSoftLimit(used=used, window=policy.window))

    def _free_half(self, policy: Policy, *, before_request: bool) -> None:
        """At most one of: the periodic pass, pruning instead of a summary, relief where no summary may help, snip."""
        if not policy.auto or self._runs.running is not None:
            return
        interval = policy.micro_compact_interval_steps
        if interval and before_request and self._steps_since_micro >= interval:
            self._steps_since_micro = 0
            if self._rewrites.micro(policy):
                return
        verdict = self._verdict(policy)
        used = self._port.used()
        if verdict == "start":
            if policy.prune_at_trigger:
                self._rewrites.prune_below_trigger(policy)
        elif verdict != "below" and self._last_landing_was_too_large(policy):
            self._rewrites.last_pass(policy, at_least=policy.min_gain)
        elif verdict != "below" and used >= policy.force_at and policy.prune_at_trigger:
            self._rewrites.prune_below_trigger(policy, force=True)
        elif before_request and used >= policy.snip_at and policy.snip_when != "never":
            cold = self._gauge.is_cold(policy)
            if cold or policy.snip_when == "always":
                self._rewrites.snip(policy, cold=cold)

    def _last_landing_was_too_large(self, policy: Policy) -> bool:
        """Whether what the last compaction left is the pressure; not so where somebody took one back since."""
        state = self._port.state
        last = state.last_landing
        if last is None or last.post_tokens != state.tokens_after_landing:
            return False
        return last.post_tokens >= policy.trigger_at

    def _start_if_due(self, policy: Policy) -> None:
        """Starts an automatic compaction if one is due and there is something to compact."""
        if self._runs.running is not None or self._verdict(policy) != "start":
            return
        if not self._has_something(policy):
            self._rewrites.last_pass(policy)
            return
        blocking = triggers.must_wait(policy, self._port.used()) or not policy.summarizer
        self._runs.start(policy, "auto", "blocking" if blocking else "background")

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
            if end.kind != "discarded" and triggers.must_wait(policy, self._port.used()):
                self._rewrites.last_pass(policy)
            if end.reason != "stale":
                return
            self._start_if_due(policy)

    async def _run_queued(self, policy: Policy) -> None:
        wishes = [text for text in self._queued if text]
        self._queued.clear()
        await self.compact_manually(policy, "\n".join(dict.fromkeys(wishes)) or None)

    def _has_something(self, policy: Policy) -> bool:
        """Whether the shape would leave out anything that does not come back by itself."""
        return self._probe(policy).shadows

    def _could_shrink(self, policy: Policy) -> bool:
        """Whether a landing with the shortest summary there is would count as a gain: else nobody need be asked for
        one."""
        probe = self._probe(policy)
        return probe.shadows and has_gain(self._port.used(), self._gauge.prefix_tokens() + probe.tokens)

    def _probe(self, policy: Policy) -> Shaped:
        """What a compaction would leave now, with the shortest summary there is."""
        port = self._port
        span = Span("probe", port.state.entries, 0, self._gauge.prefix_tokens(), port.wire_path, ((1, 1),))
        return build_shape(policy, span, "", self._gauge.sizes())


def overflow_fault(why: str) -> Fault:
    """An overflow that nothing can be done about."""
    return Fault("context_overflow", f"The request is too large for the model. {why}", hint=OVERFLOW_HINT)
