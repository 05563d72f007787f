"""Applies a finished summary: the check of the history and the one append, with no `await` between them.

The policy is that of the moment: an overflow or a host may have changed it since the compaction began.
"""

from __future__ import annotations

from protocol.messages import Message, Origin, TextPart
from record_store import pins
from record_store.records import AppendMessage, ApplyCompaction, Record
from sidecar.compaction import breakers, landing, regions, sizes, summary_prompt
from sidecar.compaction.asking import Summary
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.running import End, Running
from sidecar.compaction.shape import Shaped, Span, build_shape
from sidecar.errors import Fault


class Lander:
    """Changes one agent's context by a landing. Nothing here yields to the event loop."""

    def __init__(self, port: AgentPort, gauge: Gauge) -> None:
        self._port = port
        self._gauge = gauge

    def land(self, running: Running, summary: Summary) -> tuple[int, End]:
        """The line of the landing's record (0 without one) and the end: `landed`, `discarded` as `stale`, or `failed`
        with `no_gain` (or with why only an excerpt was left to land). Raises `Fault` with the context untouched."""
        if not self.is_safe(running):
            return 0, End(running.compaction_id, "discarded", "stale")
        policy = self._gauge.policy()
        shaped, pre, post = self._weigh(policy, running, summary)
        if not landing.has_gain(pre, post):
            return 0, End(running.compaction_id, "failed", running.failure or "no_gain")
        return self._apply(policy, running, summary, shaped, pre, post)

    def is_safe(self, running: Running) -> bool:
        """Whether what was summarised is still there."""
        return landing.history_safe_to_compact(self._port.state.entries, running.original, running.policy.landing)

    def _weigh(self, policy: Policy, running: Running, summary: Summary) -> tuple[Shaped, int, int]:
        """The shape, and the whole context's tokens before and after it."""
        port, state, measure = self._port, self._port.state, self._gauge.sizes()
        added = state.entries[len(running.original) :]
        around = self._gauge.prefix_tokens() + sizes.total((e.message for e in added), measure)
        stays = pins.shown(state.skills, (e.message.text for e in (*added, *(p.entry for p in state.pending))))
        span = Span(
            compaction_id=running.compaction_id,
            entries=running.original,
            time=port.now_ms(),
            around_tokens=around,
            wire_path=port.wire_path,
            windows=[*((past.first_line, past.last_line) for past in state.landings), running.lines],
            record_access=port.settings.tools.record_access,
            todos=state.todos,
            skills=[s for s in state.skills_in_use() if s not in stays],
            elided=state.elided_tokens,
        )
        shaped = build_shape(policy, span, summary.text, measure)
        return shaped, port.used(), around + shaped.tokens

    def _apply(
        self, policy: Policy, running: Running, summary: Summary, shaped: Shaped, pre: int, post: int
    ) -> tuple[int, End]:
        """One append: from here on the context is the compacted one."""
        port, state = self._port, self._port.state
        now = breakers.after_landing(state.breakers, post, policy, manual=running.manual)
        applied = ApplyCompaction(
            port.now_ms(),
            running.compaction_id,
            policy.shape,
            summary.kind,
            message_count=len(running.original),
            replacement=shaped.replacement,
            pre_tokens=pre,
            post_tokens=post,
            replacement_count=len(shaped.replacement),
            elided_tokens=shaped.elided,
            breakers=now,
        )
        records: list[Record] = [applied]
        if now.refills_open and not state.breakers.refills_open:
            records.append(AppendMessage(port.now_ms(), self._thrashing_reminder(running)))
        line = port.append(*records)[0]
        try:
            port.enable_record_access()
        except Fault as fault:
            port.report(fault, "offering the record tools")
        return line, End(running.compaction_id, "landed", None, pre, post)

    def _thrashing_reminder(self, running: Running) -> Message:
        return Message(
            id=f"{running.compaction_id}.thrashing",
            role="user",
            content=(TextPart(summary_prompt.THRASHING),),
            time=self._port.now_ms(),
            origin=Origin("injection", variant=regions.THRASHING_VARIANT),
        )
