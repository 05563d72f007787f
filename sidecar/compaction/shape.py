"""What stands in a compacted span's place: one function for every shape. Pure.

    handoff   [system] [user's words: HEAD, note, TAIL] [summary] [pinned] [continuation]
    span      [system, first user message] [summary] [pinned] [tail]
    ladder    [system, first user message if short] [summary in tags] [pinned] [tail]

Pinned are the skills in use and the notes about edits of the standing instructions.

The result is the tuple of replacements that the landing's record carries. The fold splices it, live and in replay:
nothing of this module runs when a log is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from protocol.events import TodoItem
from protocol.messages import Message, Origin, TextPart
from record_store.fold import Entry
from record_store.pins import PinnedSkill
from record_store.records import New, Replacement
from sidecar.compaction import regions
from sidecar.compaction import summary_prompt as words
from sidecar.compaction.policy import Policy
from sidecar.compaction.sizes import Sizes, cut_message
from sidecar.compaction.user_text import Piece, UserText, keep_user_text, whole

MIN_TAIL_MESSAGES = 2
"""A tail shrinks no further than this (and what its pairs need)."""

FIRST_MESSAGE_TOKENS = 1_500
FIRST_MESSAGE_RATIO = 0.15
"""`ladder` keeps the first user message up to the smaller of the two (tokens, part of the window)."""

NOTES_TOKENS = 2_000
"""Of notes about edited instructions that stay, the newest of them; what is missing then, the next turn tells again."""

USER_TEXT_FLOOR = 0.1
"""Part of the user text's budget that stays whatever the pressure."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is compacted, and what its replacement mentions.

    `entries` is the whole context when the compaction began. `windows` are the line ranges of all compactions, this
    one last. `elided` counts the tokens of user text left out by earlier ones. `around_tokens` is what stands around
    the replacement: before the messages, and behind them what was appended since. `time` is the landing's, in ms.
    """

    compaction_id: str
    entries: Sequence[Entry]
    time: int
    around_tokens: int
    wire_path: str
    windows: Sequence[tuple[int, int]]
    record_access: bool = True
    todos: Sequence[TodoItem] = ()
    skills: Sequence[PinnedSkill] = ()
    elided: int = 0


@dataclass(frozen=True, slots=True)
class Shaped:
    """The replacement, its messages and tokens, and all user text left out so far.

    `shadows` says whether it leaves out or shortens anything that no compaction made and no turn tells again.
    """

    replacement: tuple[Replacement, ...]
    messages: tuple[Message, ...]
    tokens: int
    elided: int
    shadows: bool


def build_shape(policy: Policy, span: Span, summary: str, sizes: Sizes) -> Shaped:
    """What replaces the span.

    With what stands around it stays under `policy.target` where it can: the tail shrinks first, then the user's words
    from the gap outwards. Where even the least that is kept does not fit, it aims below the trigger instead.
    """
    made = _Made(span, policy, summary, sizes)
    if policy.shape == "handoff":
        return _handoff(policy, made)
    return _with_tail(policy, made)


class _Made:
    """The messages that a landing makes, with ids that are unique in the session and the same in every run."""

    def __init__(self, span: Span, policy: Policy, summary: str, sizes: Sizes) -> None:
        self.span = span
        self.sizes = sizes
        self.messages = [e.message for e in span.entries]
        self.system = [whole(e, sizes) for e in span.entries if e.message.role == "system"]
        text = words.summary_message(
            summary,
            tagged=policy.shape == "ladder",
            wire_path=span.wire_path,
            windows=span.windows,
            record_access=span.record_access,
            todos=span.todos,
        )
        self.summary = self.piece("summary", text, Origin("compaction_summary"))
        self.skills = [
            self.injection(f"skill-{i}", words.pinned_skill(skill), regions.SKILL_VARIANT)
            for i, skill in enumerate(span.skills, 1)
        ]

    def piece(self, suffix: str, text: str, origin: Origin) -> Piece:
        message = Message(
            id=f"{self.span.compaction_id}.{suffix}",
            role="user",
            content=(TextPart(text),),
            time=self.span.time,
            origin=origin,
        )
        return Piece(New(message), message, self.sizes.message(message))

    def injection(self, suffix: str, text: str, variant: str) -> Piece:
        return self.piece(suffix, text, Origin("injection", variant=variant))

    def unpinned(self, kept: Sequence[Piece]) -> list[Piece]:
        """The skills whose text no kept message shows anyway."""
        texts = [p.message.text for p in kept]
        return [
            piece
            for piece, skill in zip(self.skills, self.span.skills, strict=True)
            if not any(skill.body in text for text in texts)
        ]

    def notes(self, before: int) -> list[Piece]:
        """What edits of the standing instructions said before a position of the span: those are never summarised."""
        kept: list[Piece] = []
        room = NOTES_TOKENS
        for entry in reversed(self.span.entries[:before]):
            if not regions.is_instructions_note(entry.message):
                continue
            piece = whole(entry, self.sizes)
            room -= piece.tokens
            if room < 0:
                break
            kept.append(piece)
        return kept[::-1]

    def pinned(self, kept: Sequence[Piece], before: int) -> list[Piece]:
        """What stands behind the summary, beside the `kept` messages; `before`: where the tail begins."""
        return [*self.unpinned(kept), *self.notes(before)]

    def fixed_tokens(self) -> int:
        """Of what stands around, everything made and everything pinned; the elision note aside."""
        pieces = [*self.system, self.summary, *self.skills, *self.notes(len(self.messages))]
        return self.span.around_tokens + sum(p.tokens for p in pieces)

    def shaped(self, pieces: Sequence[Piece], elided: int) -> Shaped:
        kept = {p.message.id for p in pieces}
        return Shaped(
            replacement=tuple(p.replacement for p in pieces),
            messages=tuple(p.message for p in pieces),
            tokens=sum(p.tokens for p in pieces),
            elided=elided,
            shadows=any(m.id not in kept and not _comes_again(m) for m in self.messages),
        )


def _comes_again(message: Message) -> bool:
    return regions.is_made_by_compaction(message) or regions.is_told_again(message)


def _goals(policy: Policy) -> tuple[int, int]:
    """What a landing aims to stay below: the target, else far enough under the trigger."""
    return policy.target, max(policy.target, policy.trigger_at - policy.margin)


# ---------------------------------------------------------------- handoff


def _handoff(policy: Policy, made: _Made) -> Shaped:
    continuation = made.injection("continuation", words.CONTINUATION, regions.CONTINUATION_VARIANT)
    fixed = made.fixed_tokens() + continuation.tokens
    kept = _fit_user_text(policy, made, fixed)
    elided = made.span.elided + kept.elided
    pieces = [*made.system, *kept.head]
    if kept.has_gap:
        pieces.append(made.injection("elision", words.elision(elided), regions.ELISION_VARIANT))
    pieces += kept.tail
    pieces += [made.summary, *made.pinned([*kept.head, *kept.tail], len(made.messages)), continuation]
    return made.shaped(pieces, elided)


def _fit_user_text(policy: Policy, made: _Made, fixed: int) -> UserText:
    entries, gap = _user_entries(made)
    note = made.injection("elision", words.elision(10**9), regions.ELISION_VARIANT).tokens
    most = policy.user_message_max_tokens
    floor = int(most * USER_TEXT_FLOOR)
    rooms = [goal - 1 - fixed - note for goal in _goals(policy)]
    budget = next((room for room in rooms if room >= floor), floor)
    budget = min(budget, most)
    head = policy.user_message_head_tokens
    if budget < most:
        head = head * budget // most
    return keep_user_text(entries, gap, budget, head, made.sizes, made.span.compaction_id)


def _user_entries(made: _Made) -> tuple[list[Entry], int | None]:
    """The user's own words in the span, and where an earlier compaction left a gap between them."""
    entries: list[Entry] = []
    gap: int | None = None
    for entry in made.span.entries:
        if regions.is_elision(entry.message):
            gap = len(entries)
        elif regions.is_real_user_input(entry.message):
            entries.append(entry)
    return entries, gap


# ---------------------------------------------------------------- span and ladder


def _with_tail(policy: Policy, made: _Made) -> Shaped:
    at = regions.first_user(made.messages)
    first = whole(made.span.entries[at], made.sizes) if at is not None else None
    most = min(FIRST_MESSAGE_TOKENS, int(FIRST_MESSAGE_RATIO * policy.window))
    if first is not None and policy.shape == "ladder" and first.tokens > most:
        at, first = None, None
    fixed = made.fixed_tokens() + (first.tokens if first else 0)
    in_tail = [i != at and _belongs_to_tail(m) for i, m in enumerate(made.messages)]
    starts, sums = _tail_starts(policy, made, in_tail)
    fitting = (s for goal in _goals(policy) for s in starts if fixed + sums[s] < goal)
    start = next(fitting, starts[-1])
    if first is not None and at is not None:
        over = fixed + sums[start] + 1 - _goals(policy)[1]
        first = _shorten(policy, made, first, made.span.entries[at].line, over)
    tail = [whole(e, made.sizes) for i, e in enumerate(made.span.entries[start:], start) if in_tail[i]]
    head = [*made.system, *([first] if first else [])]
    return made.shaped([*head, made.summary, *made.pinned([*head, *tail], start), *tail], made.span.elided)


def _belongs_to_tail(message: Message) -> bool:
    return message.role != "system" and not regions.is_made_by_compaction(message)


def _tail_starts(policy: Policy, made: _Made, in_tail: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Positions where the tail may begin, from the policy's own to the shortest; and the tokens of the tail from each
    position of the span on."""
    messages, sizes = made.messages, made.sizes
    safe = regions.safe_starts(messages)
    if policy.shape == "span":
        begin = max(0, len(messages) - policy.keep_last_messages)
    else:
        begin = regions.raw_tail_by_tokens(messages, policy.tail_tokens, sizes, at_least=MIN_TAIL_MESSAGES)
    begin = regions.widen(safe, begin)
    last = max(begin, regions.widen(safe, max(0, len(messages) - MIN_TAIL_MESSAGES)))
    counted = (sizes.message(messages[i]) if in_tail[i] else 0 for i in range(len(messages) - 1, begin - 1, -1))
    sums = [0] * begin + [0, *accumulate(counted)][::-1]
    return [s for s in range(begin, last + 1) if safe[s]], sums


def _shorten(policy: Policy, made: _Made, first: Piece, line: int, over: int) -> Piece:
    """The first user message without its last `over` tokens, if that many are over; never below the floor."""
    floor = min(int(policy.user_message_max_tokens * USER_TEXT_FLOOR), first.tokens)
    if over <= 0 or first.tokens <= floor:
        return first
    budget = max(first.tokens - over, floor)
    cut = cut_message(first.message, f"{made.span.compaction_id}.head", budget, made.sizes, "start")
    if cut is None:
        return first
    return Piece(New(cut, line), cut, made.sizes.message(cut))
