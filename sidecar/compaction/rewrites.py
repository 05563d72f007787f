"""Carries out the free half: one record and one event per pass."""

from __future__ import annotations

from typing import Literal

from protocol.events import ContextRewritten
from record_store.records import Rewrite
from sidecar.compaction import free_half
from sidecar.compaction.free_half import Edits, Pass
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort, SnipLimits

Action = Literal["snip", "prune", "image_offload", "micro_compact"]


class Rewrites:
    """Plans with the pure module, appends what is worth it. The caller makes sure that no compaction runs."""

    def __init__(self, port: AgentPort, gauge: Gauge) -> None:
        self._port = port
        self._gauge = gauge
        self._looked_at: int | None = None

    def micro(self, policy: Policy) -> bool:
        """A prune pass whatever the pressure."""
        edits = free_half.micro_pass(policy, self._port.state.entries, self._gauge.sizes())
        return self._apply("micro_compact", edits)

    def prune_below_trigger(self, policy: Policy, *, force: bool = False) -> bool:
        """Images and old results, as far as needed to be a margin below the trigger; nothing if that is not reached,
        unless by `force`."""
        enough = self._port.used() - (policy.trigger_at - policy.margin)
        before, sizes = self._horizon(policy), self._gauge.sizes()
        found = free_half.prune_pass(policy, self._port.state.entries, sizes, before=before, enough=enough)
        if found.gain < enough and not force:
            return False
        return self._apply_pass("prune", found)

    def snip(self, policy: Policy, *, cold: bool) -> bool:
        """Images and old results in short. A warm cache is given up for a worthwhile gain only, and not looked at
        again before the context grew by as much."""
        used = self._port.used()
        forced = used >= policy.force_at
        looked = self._looked_at
        if looked is not None and looked <= used < looked + policy.min_gain and not (cold or forced):
            return False
        before, sizes = self._horizon(policy), self._gauge.sizes()
        found = free_half.snip_pass(policy, self._port.state.entries, sizes, self.limits_of, before=before)
        worth = found.gain >= policy.min_gain or cold or forced
        self._looked_at = used - (found.gain if worth else 0)
        return worth and self._apply_pass("snip", found)

    def last_pass(self, policy: Policy, *, at_least: int = 1) -> bool:
        """Everything that can be made short, newest results last, if it frees `at_least` tokens: lossy beats stuck."""
        enough = max(1, self._port.used() - (policy.trigger_at - policy.margin))
        found = free_half.last_pass(
            policy, self._port.state.entries, self._gauge.sizes(), self.limits_of, enough=enough
        )
        return found.gain >= at_least and self._apply_pass("prune", found)

    def limits_of(self, tool: str) -> SnipLimits:
        """What the tool says, else by whether it has side effects."""
        limits = self._port.snip_limits(tool)
        if limits is not None:
            return limits
        return free_half.SIDE_EFFECT_LIMITS if self._port.has_side_effects(tool) else free_half.READ_ONLY_LIMITS

    def _horizon(self, policy: Policy) -> int:
        return free_half.horizon(policy, self._port.state.messages(), self._gauge.sizes())

    def _apply_pass(self, action: Action, found: Pass) -> bool:
        offloaded = self._apply("image_offload", found.images)
        return self._apply(action, found.results) or offloaded

    def _apply(self, action: Action, edits: Edits) -> bool:
        if not edits:
            return False
        pre = self._port.used()
        post = max(0, pre - edits.gain)
        record = Rewrite(self._port.now_ms(), action, pre, post, edits=edits.edits)
        (line,) = self._port.append(record)
        self._port.emit(ContextRewritten(action=action, pre_tokens=pre, post_tokens=post, line=line))
        return True
