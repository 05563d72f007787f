"""One compaction at a time: its bracket in the log, its task, its landing, and exactly one end.

A compaction is a task of the session, not of the turn. It lands between steps only: from its own task when no step is
open, else from the next hook, or while a hook waits for it. The check of the history and the append stand in one
piece of code without an `await`.
"""

from __future__ import annotations

import anyio

from protocol.events import (
    CompactionBlocked,
    CompactionDiscarded,
    CompactionFailed,
    CompactionLanded,
    CompactionStarted,
)
from record_store.fold import Bracket, span_length
from record_store.records import Breakers, CompactionCancel, CompactionStart, CompactionSummary, Limits, Mode, Trigger
from sidecar import ids
from sidecar.compaction import breakers as circuit
from sidecar.compaction import excerpt, regions
from sidecar.compaction.asking import Asker, Failure, Summary
from sidecar.compaction.circuits import Circuits, after_manual_request
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.lander import Lander
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.running import End, Running
from sidecar.errors import Fault


class Runs:
    """Starts, waits for, lands and cancels the compactions of one agent."""

    def __init__(self, port: AgentPort, gauge: Gauge, circuits: Circuits) -> None:
        self._port = port
        self._gauge = gauge
        self._circuits = circuits
        self._lander = Lander(port, gauge)
        self._parked = 0
        self.running: Running | None = None

    # ------------------------------------------------------------ starting

    def start(self, policy: Policy, trigger: Trigger, mode: Mode, instruction: str | None = None) -> Running:
        """Opens a bracket over the whole context and sends its task off. None may be running. Never yields."""
        port, state = self._port, self._port.state
        if state.bracket is not None:
            port.append(CompactionCancel(port.now_ms(), state.bracket.start.compaction_id, "restart"))
        running = Running(
            compaction_id=ids.new("cmp"),
            trigger=trigger,
            mode=mode,
            policy=policy,
            original=tuple(state.entries),
            lines=regions.span_lines(state.entries, state.last_landing),
            pre_tokens=port.used(),
            started_at=port.now_ms(),
            instruction=instruction,
        )
        port.append(
            CompactionStart(
                running.started_at,
                running.compaction_id,
                trigger,
                mode,
                span=running.lines,
                message_count=len(running.original),
                pre_tokens=running.pre_tokens,
                instruction=instruction,
                breakers=after_manual_request(state.breakers) if running.manual else None,
                limits=_limits(policy),
            )
        )
        self.running = running
        port.emit(
            CompactionStarted(
                compaction_id=running.compaction_id, trigger=trigger, mode=mode, pre_tokens=running.pre_tokens
            )
        )
        self._circuits.announce()
        port.spawn(lambda: self._work(running), f"compaction {running.compaction_id}")
        return running

    async def _work(self, running: Running) -> None:
        try:
            with running.scope:
                await self._make_summary(running)
                await self.land_if_ready()
        except Fault as fault:
            self._fail(running, fault.reason)
        except Exception as error:
            self._port.report(error, "compacting a context")
            self._fail(running, "internal")
        finally:
            if running.end is None and running.summary is None:
                self._discard(running, "cancelled")

    async def _make_summary(self, running: Running) -> None:
        """Sets `summary`, or ends the compaction as failed. The paid answer is on disk before anything is done with
        it."""
        port, policy = self._port, running.policy
        await port.sync()
        if not policy.summarizer:
            running.summary = _excerpt(running, self._gauge)
            return
        asker = Asker(
            port,
            self._gauge,
            policy,
            running.compaction_id,
            running.original,
            running.pre_tokens,
            running.instruction,
        )
        made = await asker.ask()
        if running.end is not None:
            return
        running.attempts = made.attempts
        if isinstance(made, Failure):
            running.failure = made.reason
            if running.at_block:
                running.summary = _excerpt(running, self._gauge)
            else:
                self._fail(running, made.reason)
            return
        self._gauge.summary_tokens = self._gauge.sizes().text(made.text)
        port.append(
            CompactionSummary(
                port.now_ms(), running.compaction_id, made.text, made.usage, made.attempts, made.dropped, made.model
            )
        )
        with anyio.CancelScope(shield=True):
            await port.sync()
        running.summary = made

    # ------------------------------------------------------------ waiting and cancelling

    async def wait(self, running: Running, *, at_block: bool) -> End:
        """Until it ended. The caller is between steps, so it may land meanwhile. Cancelling the wait cancels it."""
        blocks, running.at_block = at_block and not running.at_block, running.at_block or at_block
        self._parked += 1
        try:
            await self.land_if_ready()
            if running.end is None:
                if blocks:
                    self._port.emit(CompactionBlocked(compaction_id=running.compaction_id))
                await running.done.wait()
        except anyio.get_cancelled_exc_class():
            self.cancel(running, "cancelled")
            raise
        finally:
            self._parked -= 1
        assert running.end is not None
        return running.end

    def cancel(self, running: Running, reason: str) -> bool:
        """Ends it without effect; False if it has ended or is landing."""
        if running.end is not None or running.closing:
            return False
        self._discard(running, reason)
        running.scope.cancel()
        return True

    def cancel_if_stale(self) -> None:
        """Stops paying for a summary of what is no longer there."""
        running = self.running
        if running is not None and not self._lander.is_safe(running):
            self.cancel(running, "stale")

    # ------------------------------------------------------------ landing

    async def land_if_ready(self) -> None:
        """Lands a finished summary if this is a moment between steps."""
        running = self.running
        between_steps = self._port.state.open_step is None or self._parked > 0
        if running is None or running.summary is None or running.closing or not between_steps:
            return
        running.closing = True
        with anyio.CancelScope(shield=True):
            await self._close(running, running.summary)

    async def settle(self, bracket: Bracket, policy: Policy) -> End:
        """What a crash left open: a paid summary lands if it still may, anything else is cancelled."""
        state, start, paid = self._port.state, bracket.start, bracket.summary
        running = Running(
            compaction_id=start.compaction_id,
            trigger=start.trigger,
            mode=start.mode,
            policy=policy,
            original=tuple(state.entries[: span_length(bracket, start.message_count)]),
            lines=start.span,
            pre_tokens=start.pre_tokens,
            started_at=start.time,
        )
        self.running = running
        if paid is None:
            self._discard(running, "restart")
        elif bracket.rewrites != state.rewrites or len(running.original) < start.message_count:
            self._discard(running, "stale")
        else:
            running.closing = True
            running.attempts = paid.attempts
            running.started_at += self._port.now_ms() - paid.time
            summary = Summary(paid.summary, "model", paid.usage, paid.attempts, paid.dropped_messages, paid.model)
            await self._close(running, summary)
        assert running.end is not None
        return running.end

    async def _close(self, running: Running, summary: Summary) -> None:
        """Lands `summary`, or an excerpt where it brings nothing and a turn waits, or says why not. Ends the
        compaction, whatever happens."""
        try:
            line, end = self._lander.land(running, summary)
            if end.kind == "failed" and running.at_block and summary.kind == "model":
                running.failure = end.reason
                summary = _excerpt(running, self._gauge)
                line, end = self._lander.land(running, summary)
            match end.kind:
                case "landed":
                    await self._port.sync()
                    self._tell_landed(running, summary, line, end)
                case "discarded":
                    self._discard(running, end.reason or "stale")
                case "failed":
                    self._fail(running, end.reason or "no_gain")
        except Fault as fault:
            self._fail(running, fault.reason)
        except Exception as error:
            self._port.report(error, "landing a compaction")
            self._fail(running, "internal")

    def _tell_landed(self, running: Running, summary: Summary, line: int, end: End) -> None:
        """After the record is on disk, and not before."""
        self._port.emit(
            CompactionLanded(
                compaction_id=running.compaction_id,
                pre_tokens=end.pre_tokens,
                post_tokens=end.post_tokens,
                summary_kind=summary.kind,
                duration_ms=self._port.now_ms() - running.started_at,
                line=line,
            )
        )
        self._finish(running, end)
        self._port.checkpoint()

    # ------------------------------------------------------------ the other ends

    def _discard(self, running: Running, reason: str) -> None:
        now = circuit.after_discard(self._port.state.breakers, running.pre_tokens, manual=running.manual)
        self._cancel_record(running, reason, now)
        self._port.emit(CompactionDiscarded(compaction_id=running.compaction_id, reason=reason))
        self._finish(running, End(running.compaction_id, "discarded", reason))

    def _fail(self, running: Running, reason: str) -> None:
        if running.end is not None:
            return
        state = self._port.state
        now = circuit.after_failure(state.breakers, running.pre_tokens, running.policy, manual=running.manual)
        self._cancel_record(running, reason, now)
        self._port.emit(CompactionFailed(compaction_id=running.compaction_id, reason=reason, attempts=running.attempts))
        self._finish(running, End(running.compaction_id, "failed", reason))

    def _cancel_record(self, running: Running, reason: str, now: Breakers) -> None:
        """Closes the bracket in the log. A full disk must not keep a compaction from ending: the bracket is then
        closed by the next one, or by resume."""
        port = self._port
        bracket = port.state.bracket
        if bracket is None or bracket.start.compaction_id != running.compaction_id:
            return
        changed = now if now != port.state.breakers else None
        try:
            port.append(CompactionCancel(port.now_ms(), running.compaction_id, reason, breakers=changed))
        except Fault as fault:
            port.report(fault, "closing the bracket of a compaction")

    def _finish(self, running: Running, end: End) -> None:
        running.end = end
        self.running = None
        self._circuits.announce()
        running.done.set()


def _limits(policy: Policy) -> Limits:
    return Limits(policy.window, policy.trigger_at, policy.block_at, policy.margin, policy.compaction_max_attempts)


def _excerpt(running: Running, gauge: Gauge) -> Summary:
    """A summary that no model was asked for."""
    return Summary(excerpt.excerpt(running.original, running.policy.window, gauge.sizes()), "excerpt")
