"""Turns a span into what a summary request shows: images as text, the oldest left out, cut inside at last. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from protocol.messages import ImagePart, Message, Origin, Part, TextPart
from record_store.fold import Entry
from sidecar.compaction import free_half, regions
from sidecar.compaction.sizes import Sizes, cut_text
from sidecar.compaction.summarizer import Material

CUT_MARK = "\n[… cut to fit …]\n"
MIN_PIECE_TOKENS = 16


def without_images(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries with pointers in place of images; the very same objects where there are none."""
    return tuple(_without_images(e) for e in entries)


def _without_images(entry: Entry) -> Entry:
    content = free_half.offload(entry)
    return entry if content is None else Entry(replace(entry.message, content=content), entry.line)


def material_of(entries: Sequence[Entry], sizes: Sizes, max_attempts: int) -> Material:
    """What the failure ladder needs to know of the span."""
    messages = [e.message for e in entries]
    safe = regions.safe_starts(messages)
    starts = [safe[i] and m.role != "tool" for i, m in enumerate(messages)]
    earlier = max((i for i, m in enumerate(messages) if regions.is_summary(m)), default=None)
    return Material([sizes.message(m) for m in messages], starts, max_attempts, earlier)


def shown(entries: Sequence[Entry], first: int, cut: int | None, sizes: Sizes) -> tuple[Entry, ...]:
    """The entries from `first` on, after an earlier summary, cut down to `cut` tokens if that is given. Never empty for
    a span that is not."""
    earlier = [e for e in entries[:first] if regions.is_summary(e.message)][-1:]
    rest = (*earlier, *entries[first:])
    return rest if cut is None else _cut_group(rest, cut, sizes)


def _cut_group(entries: Sequence[Entry], budget: int, sizes: Sizes) -> tuple[Entry, ...]:
    """One message, or a call and its results, each cut to its share; what cannot be cut (a call's arguments) becomes
    text first."""
    fixed = sum(sizes.message(replace(e.message, content=())) for e in entries)
    if 2 * fixed > budget and any(e.message.tool_calls for e in entries):
        entries = (_as_text(entries),)
        fixed = sizes.message(replace(entries[0].message, content=()))
    room = max(MIN_PIECE_TOKENS, budget - fixed)
    wanted = [sizes.text(e.message.text) for e in entries]
    share = _fair_share(wanted, room)
    return tuple(
        e if tokens <= share else Entry(replace(e.message, content=_cut(e.message, share, sizes)), e.line)
        for e, tokens in zip(entries, wanted, strict=True)
    )


def _fair_share(wanted: Sequence[int], room: int) -> int:
    """The bound per message under which all of them together stay within `room`."""
    left = room
    ordered = sorted(wanted)
    for i, tokens in enumerate(ordered):
        share = left // (len(ordered) - i)
        if tokens > share:
            return max(MIN_PIECE_TOKENS, share)
        left -= tokens
    return max(room, *ordered)


def _cut(message: Message, budget: int, sizes: Sizes) -> tuple[Part, ...]:
    room = max(MIN_PIECE_TOKENS, budget - sizes.text(CUT_MARK))
    head = cut_text(message.text, room // 2, sizes, "start")
    tail = cut_text(message.text, room - room // 2, sizes, "end")
    images = tuple(part for part in message.content if isinstance(part, ImagePart))
    return (TextPart(f"{head}{CUT_MARK}{tail}"), *images)


def _as_text(entries: Sequence[Entry]) -> Entry:
    """A call with its results told as one message."""
    first = entries[0]
    lines: list[str] = []
    for entry in entries:
        message = entry.message
        who = f"result of {message.name or 'tool'}" if message.role == "tool" else message.role
        lines.append(f"[{who}] {message.text}")
        lines += [f"[calls {call.name}] {call.arguments}" for call in message.tool_calls or ()]
    told = Message(
        id=first.message.id,
        role="user",
        content=(TextPart("\n".join(lines)),),
        time=first.message.time,
        origin=Origin("injection", variant="compaction_cut"),
    )
    return Entry(told, first.line)
