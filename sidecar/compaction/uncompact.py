"""Takes the last landing back: its span returns to the context, by a record like everything else."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.events import ContextRewritten
from record_store.fold import Entry, Landing, span_length
from record_store.records import ApplyCompaction, Kept, New, Replacement, Rewrite
from sidecar.compaction import sizes
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.ports import AgentPort
from sidecar.errors import Fault


async def uncompact(port: AgentPort, gauge: Gauge, compaction_id: str | None) -> int:
    """Brings the span of the last landing back if the context then stays under block; its size in tokens after that.

    Raises `undo_blocked` with `cause` `nothing_to_bring_back` or `does_not_fit`; the context is then untouched.
    """
    last = port.state.last_landing
    if last is None or compaction_id not in (None, last.compaction_id):
        raise _nothing()
    applied = await port.read_record(last.line)
    then = await port.state_before(last.line)
    elided = await _elided_before(port, last)
    if not isinstance(applied, ApplyCompaction):
        raise _nothing()
    span = then.entries[: span_length(then.bracket, applied.message_count)]
    if len(span) < applied.message_count:
        raise _nothing()
    current = port.state.entries
    standing = current[: applied.replacement_count]
    if port.state.last_landing is not last or [e.message.id for e in standing] != _ids(applied):
        raise _nothing()
    pre, post = port.used(), _size(gauge, [*span, *current[len(standing) :]])
    if post >= gauge.policy().block_at:
        raise Fault(
            "undo_blocked",
            f"The compacted part does not fit: the context would have {post} tokens",
            hint="read it with record_search and record_read, or choose a model with a larger window",
            cause="does_not_fit",
        )
    record = Rewrite(
        port.now_ms(),
        "uncompact",
        pre,
        post,
        message_count=len(standing),
        replacement=_replacement(span, standing),
        compaction_id=last.compaction_id,
        elided_tokens=elided,
        turn_marks=tuple(mark for mark in then.turn_marks if mark.start < len(span)),
    )
    (line,) = port.append(record)
    port.emit(ContextRewritten(action="uncompact", pre_tokens=pre, post_tokens=post, line=line))
    return port.used()


def _replacement(span: Sequence[Entry], standing: Sequence[Entry]) -> tuple[Replacement, ...]:
    """What the landing kept stays as it is now; everything else comes back whole, with the line it first stood on."""
    kept = {e.message.id for e in standing}
    return tuple(Kept(e.message.id) if e.message.id in kept else New(e.message, e.line) for e in span)


def _ids(applied: ApplyCompaction) -> list[str]:
    return [item.message.id if isinstance(item, New) else item.message_id for item in applied.replacement]


def _size(gauge: Gauge, entries: Sequence[Entry]) -> int:
    return gauge.prefix_tokens() + sizes.total((e.message for e in entries), gauge.sizes())


async def _elided_before(port: AgentPort, last: Landing) -> int:
    """What earlier landings had left out of the user's words."""
    earlier = port.state.landings[-2] if len(port.state.landings) > 1 else None
    if earlier is None or earlier.line >= last.line:
        return 0
    record = await port.read_record(earlier.line)
    return record.elided_tokens if isinstance(record, ApplyCompaction) else 0


def _nothing() -> Fault:
    return Fault(
        "undo_blocked",
        "There is no compaction that can be taken back",
        hint="only the last landing can, while what it put in place is still there",
        cause="nothing_to_bring_back",
    )
