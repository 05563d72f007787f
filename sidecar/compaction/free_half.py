"""The free half of compaction: old results and images made short, with no model call and no message lost. Pure.

Everything here returns `Edits`: new contents for messages, oldest first, and how many tokens they free. Only results
of tools and images are touched; calls, assistant text and reasoning never are. What was made short says which record
holds the whole, and nothing that could change: making it short again changes no byte.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from protocol.messages import ImagePart, Message, Part, TextPart
from record_store.fold import Entry
from record_store.records import Edit
from sidecar.compaction import regions
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import SnipLimits
from sidecar.compaction.sizes import Sizes

MIN_RESULT_BYTES: Final = 1_024
"""Results up to this size are left alone: a marker would gain little and hide all."""

READ_ONLY_LIMITS: Final = SnipLimits(80, 12, 10_000, 2_000)
"""A file or a listing matters most at its start."""

SIDE_EFFECT_LIMITS: Final = SnipLimits(40, 40, 8_000, 8_000)
"""A command's outcome stands at its end."""

LimitsOf = Callable[[str], SnipLimits]
"""Tool name to its limits."""

Maker = Callable[[Entry], "tuple[Part, ...] | None"]
"""The shorter content of an entry's message; None if there is nothing to shorten."""

_SNIPPED = re.compile(r"\[snipped tool result — (.*), (\d+) bytes, \d+ lines omitted, original: record (\d+)\]")
_ELIDED_START = "[elided tool result — "


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes of one pass, oldest message first, and the tokens that they free."""

    edits: tuple[Edit, ...] = ()
    gain: int = 0

    def __bool__(self) -> bool:
        return bool(self.edits)


# ---------------------------------------------------------------- where


def horizon(policy: Policy, messages: Sequence[Message], sizes: Sizes) -> int:
    """The position from which on everything stays raw: where the next compaction's kept tail would begin.

    A shape without a tail protects the last `tail_tokens` all the same. What is shortened inside a tail is lost to
    the summary after the next, which would read it as it is then.
    """
    if policy.shape == "span":
        return regions.tail_by_messages(messages, policy.keep_last_messages)
    at_least = 2 if policy.shape == "ladder" else 0
    return regions.tail_by_tokens(messages, policy.tail_tokens, sizes, at_least=at_least)


def old_results(entries: Sequence[Entry], before: int, keep_last: int) -> list[Entry]:
    """Tool results before a position, the last `keep_last` of the whole context left out; errors after all others.
    The text of a skill in use is no result that gets old."""
    results = [i for i, e in enumerate(entries) if e.message.role == "tool" and not regions.is_skill_text(e.message)]
    results = results[: max(0, len(results) - keep_last)]
    old = [entries[i] for i in results if i < before]
    return [e for e in old if not e.message.is_error] + [e for e in old if e.message.is_error]


def old_images(entries: Sequence[Entry], before: int, keep_last: int) -> list[tuple[Entry, int]]:
    """Messages before a position that hold old images, and how many of the last `keep_last` images of the whole
    context each of them holds, which stay."""
    holders = [i for i, e in enumerate(entries) if _images(e.message)]
    old: list[tuple[Entry, int]] = []
    recent = keep_last
    for i in reversed(holders):
        held = len(_images(entries[i].message))
        if i < before and held > recent:
            old.append((entries[i], recent))
        recent = max(0, recent - held)
    return old[::-1]


# ---------------------------------------------------------------- how


def offload(entry: Entry, keep: int = 0) -> tuple[Part, ...] | None:
    """The images of a message as text pointers, all but the last `keep` of them; None if that is none."""
    old = len(_images(entry.message)) - keep
    if old <= 0:
        return None
    content: list[Part] = []
    for part in entry.message.content:
        if isinstance(part, ImagePart) and old > 0:
            old -= 1
            content.append(pointer(part, entry.line))
        else:
            content.append(part)
    return tuple(content)


def pointer(image: ImagePart, line: int) -> TextPart:
    """What stands for an image: enough to know that there was one and to find it again."""
    return TextPart(f"[image offloaded: {_digest(image)[:12]}, {image.media_type}, record {line}]")


def _digest(image: ImagePart) -> str:
    if image.blob is not None:
        return image.blob
    data = image.data or ""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = data.encode()
    return hashlib.sha256(raw).hexdigest()


def snip(entry: Entry, limits_of: LimitsOf) -> tuple[Part, ...] | None:
    """The first and last lines of a result around a marker; None if it is small, fits, or was shortened before."""
    text = entry.message.text
    size = len(text.encode())
    if size <= MIN_RESULT_BYTES or text.startswith(_ELIDED_START) or _snip_marker(entry, text):
        return None
    tool = entry.message.name or "tool"
    limits = limits_of(tool)
    lines = text.removesuffix("\n").split("\n")
    head = "\n".join(lines[: limits.head_lines])[: limits.head_chars]
    rest = "\n".join(lines)[len(head) :]
    last = rest.split("\n")[-limits.tail_lines :] if limits.tail_lines else []
    tail = "\n".join(last)
    tail = tail[max(0, len(tail) - limits.tail_chars) :]
    omitted = rest[: len(rest) - len(tail)]
    count = omitted.removeprefix("\n").removesuffix("\n").count("\n") + 1
    marker = f"[snipped tool result — {tool}, {size} bytes, {count} lines omitted, original: record {entry.line}]"
    shorter = "\n".join(piece for piece in (head, marker, tail) if piece)
    if not omitted or len(shorter.encode()) >= size:
        return None
    return (TextPart(shorter), *_images(entry.message))


def prune(entry: Entry, excerpt_chars: int) -> tuple[Part, ...] | None:
    """A marker in a result's place, with `excerpt_chars` of its head and tail; None if small or pruned before.

    A snipped result is pruned further; the marker tells the size of the original.
    """
    text = entry.message.text
    if text.startswith(_ELIDED_START) or len(text.encode()) <= MIN_RESULT_BYTES:
        return None
    snipped = _snip_marker(entry, text)
    size = int(snipped[2]) if snipped else len(text.encode())
    tool = entry.message.name or "tool"
    marker = f"{_ELIDED_START}{tool}, {size} bytes, original: record {entry.line}]"
    shorter = "\n".join((marker, *_excerpts(text, snipped, excerpt_chars)))
    if len(shorter.encode()) >= len(text.encode()):
        return None
    return (TextPart(shorter), *_images(entry.message))


def _excerpts(text: str, snipped: re.Match[str] | None, chars: int) -> tuple[str, ...]:
    if chars <= 0:
        return ()
    before = text[: snipped.start()] if snipped else text
    after = text[snipped.end() :] if snipped else text
    if not snipped and len(text) <= 2 * chars:
        return (text,)
    return tuple(piece for piece in (before[:chars].rstrip("\n"), "…", after[-chars:].lstrip("\n")) if piece)


def _snip_marker(entry: Entry, text: str) -> re.Match[str] | None:
    """Our own marker in a text that was snipped: text that merely looks like one names another tool or record."""
    for found in _SNIPPED.finditer(text):
        if found[1] == (entry.message.name or "tool") and int(found[3]) == entry.line:
            return found
    return None


def _images(message: Message) -> tuple[ImagePart, ...]:
    return tuple(part for part in message.content if isinstance(part, ImagePart))


# ---------------------------------------------------------------- how much


def plan(entries: Iterable[Entry], make: Maker, sizes: Sizes, enough: int | None = None) -> Edits:
    """Shortens messages in the given order until `enough` tokens are freed (None: all of them).

    What would free nothing is left as it is. The edits come back in the order of their lines.
    """
    found: list[tuple[int, Edit]] = []
    gain = 0
    for entry in entries:
        if enough is not None and gain >= enough:
            break
        content = make(entry)
        if content is None:
            continue
        freed = sizes.message(entry.message) - sizes.message(replace(entry.message, content=content))
        if freed > 0:
            found.append((entry.line, Edit(entry.message.id, content)))
            gain += freed
    found.sort(key=lambda pair: pair[0])
    return Edits(tuple(edit for _, edit in found), gain)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass does: one `context.rewrite` record each for images and for results, where there is something."""

    images: Edits
    results: Edits

    @property
    def gain(self) -> int:
        return self.images.gain + self.results.gain


def prune_pass(
    policy: Policy, entries: Sequence[Entry], sizes: Sizes, *, before: int, enough: int | None = None
) -> Pass:
    """Images, then results pruned, all before a position, as far as needed to free `enough` tokens."""
    images = _offload_pass(policy, entries, sizes, before, enough)
    if enough is not None and images.gain >= enough:
        return Pass(images, Edits())
    old = old_results(entries, before, policy.keep_last_tool_results)
    left = None if enough is None else enough - images.gain
    shown = _after(old, images)
    return Pass(images, plan(shown, lambda e: prune(e, policy.fold_excerpt_chars), sizes, left))


def snip_pass(policy: Policy, entries: Sequence[Entry], sizes: Sizes, limits_of: LimitsOf, *, before: int) -> Pass:
    """Images, then results snipped, all before a position."""
    images = _offload_pass(policy, entries, sizes, before, None)
    old = old_results(entries, before, policy.keep_last_tool_results)
    return Pass(images, plan(_after(old, images), lambda e: snip(e, limits_of), sizes))


def last_pass(policy: Policy, entries: Sequence[Entry], sizes: Sizes, limits_of: LimitsOf, *, enough: int) -> Pass:
    """Without a horizon, for a context that nothing else makes small: old results go first, then the newest ones are
    snipped, and pruned only if that is still not enough."""
    everything = prune_pass(policy, entries, sizes, before=len(entries), enough=enough)
    if everything.gain >= enough:
        return everything
    touched = {edit.message_id for edit in everything.results.edits}
    newest = [e for e in old_results(entries, len(entries), 0) if e.message.id not in touched]
    newest = _after(newest, everything.images)
    left = enough - everything.gain
    more = plan(newest, lambda e: snip(e, limits_of), sizes)
    if more.gain < left:
        more = plan(newest, lambda e: prune(e, policy.fold_excerpt_chars), sizes)
    results = Edits(everything.results.edits + more.edits, everything.results.gain + more.gain)
    return Pass(everything.images, results)


def micro_pass(policy: Policy, entries: Sequence[Entry], sizes: Sizes) -> Edits:
    """All results but the last `keep_last_tool_results` pruned, whatever the pressure and wherever they stand."""
    old = old_results(entries, len(entries), policy.keep_last_tool_results)
    return plan(old, lambda e: prune(e, policy.fold_excerpt_chars), sizes)


def _offload_pass(policy: Policy, entries: Sequence[Entry], sizes: Sizes, before: int, enough: int | None) -> Edits:
    if not policy.image_offload:
        return Edits()
    old = old_images(entries, before, policy.keep_last_images)
    keep = {entry.message.id: kept for entry, kept in old}
    return plan([entry for entry, _ in old], lambda e: offload(e, keep[e.message.id]), sizes, enough)


def _after(entries: Sequence[Entry], images: Edits) -> list[Entry]:
    """The entries as they stand once the images are offloaded."""
    new = {edit.message_id: edit.content for edit in images.edits}
    if not new:
        return list(entries)
    return [Entry(replace(e.message, content=new[e.message.id]), e.line) if e.message.id in new else e for e in entries]
