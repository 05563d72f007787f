"""The user's own words through a compaction: the first and the last of them verbatim, within a budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.messages import Message
from record_store.fold import Entry
from record_store.records import Kept, New, Replacement
from sidecar.compaction.sizes import Sizes, cut_message, rest_of

HEAD_TOLERANCE: Final = 4.0
"""A head that an earlier compaction cut stays as it is up to this many times its budget (half of all that is kept at
most): as far as the factor between estimate and report can move. A head cut anew each time would wear away."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A kept message: `replacement` says how it stands in the record, `message` what the model sees."""

    replacement: Replacement
    message: Message
    tokens: int


@dataclass(frozen=True, slots=True)
class UserText:
    """What stays: `head`, then a gap if something was ever left out there (`has_gap`), then `tail`.

    `elided` counts the tokens left out now. Without a gap everything is in `tail`.
    """

    head: tuple[Piece, ...]
    tail: tuple[Piece, ...]
    has_gap: bool
    elided: int = 0


def whole(entry: Entry, sizes: Sizes) -> Piece:
    """An entry kept as it is."""
    return Piece(Kept(entry.message.id), entry.message, sizes.message(entry.message))


def keep_user_text(
    entries: Sequence[Entry], gap: int | None, most: int, head: int, sizes: Sizes, id_prefix: str
) -> UserText:
    """The first `head` tokens and the last `most - head` of the messages; all of them if they fit into `most`.

    `gap` is the position before which an earlier compaction left something out: what stands after it never moves into
    the head. A message on the border is cut on the side that faces the gap, under an id that starts with `id_prefix`.
    """
    pieces = [whole(entry, sizes) for entry in entries]
    before = sum(p.tokens for p in pieces)
    if before <= most:
        split = gap or 0
        return UserText(tuple(pieces[:split]), tuple(pieces[split:]), gap is not None)
    if gap is not None and (stands := sum(p.tokens for p in pieces[:gap])) <= HEAD_TOLERANCE * head:
        head = max(head, min(stands, most // 2))
    first, taken, rest = _take_head(entries, pieces, len(entries) if gap is None else gap, head, sizes, id_prefix)
    if gap is not None:
        taken, rest = gap, None
    room = most - sum(p.tokens for p in first)
    last = _take_tail(entries, pieces, taken, rest, room, sizes, id_prefix)
    left = sum(p.tokens for p in first) + sum(p.tokens for p in last)
    return UserText(tuple(first), tuple(last), has_gap=True, elided=max(0, before - left))


def _take_head(
    entries: Sequence[Entry], pieces: Sequence[Piece], end: int, budget: int, sizes: Sizes, id_prefix: str
) -> tuple[list[Piece], int, Message | None]:
    """The kept head, how many messages it used up, and what is left of the one that was cut."""
    head: list[Piece] = []
    for i in range(end):
        if pieces[i].tokens <= budget:
            head.append(pieces[i])
            budget -= pieces[i].tokens
            continue
        message = entries[i].message
        cut = cut_message(message, f"{id_prefix}.head", budget, sizes, "start")
        if cut is None or sizes.message(cut) > budget:
            return head, i, None
        head.append(Piece(New(cut, entries[i].line), cut, sizes.message(cut)))
        return head, i + 1, rest_of(message, cut)
    return head, end, None


def _take_tail(
    entries: Sequence[Entry],
    pieces: Sequence[Piece],
    start: int,
    rest: Message | None,
    budget: int,
    sizes: Sizes,
    id_prefix: str,
) -> list[Piece]:
    """The kept tail, in order: whole messages from the end, then part of the next one, which may be the head's rest."""
    tail: list[Piece] = []
    for i in range(len(entries) - 1, start - 1, -1):
        if pieces[i].tokens > budget:
            _add_end(tail, entries[i].message, entries[i].line, budget, sizes, id_prefix)
            return tail[::-1]
        tail.append(pieces[i])
        budget -= pieces[i].tokens
    if rest is not None and rest.content:
        _add_end(tail, rest, entries[start - 1].line, budget, sizes, id_prefix)
    return tail[::-1]


def _add_end(tail: list[Piece], message: Message, line: int, budget: int, sizes: Sizes, id_prefix: str) -> None:
    cut = cut_message(message, f"{id_prefix}.tail", budget, sizes, "end")
    if cut is not None and (tokens := sizes.message(cut)) <= budget:
        tail.append(Piece(New(cut, line), cut, tokens))
