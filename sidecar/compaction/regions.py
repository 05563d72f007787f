"""Where a context may be cut: kept heads and tails, pairs of calls and results, line ranges. Pure.

All functions work on positions in a message list and take time linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from protocol.messages import Message
from record_store.fold import Entry, Landing
from sidecar.compaction.sizes import Sizes

ELISION_VARIANT = "compaction_elision"
CONTINUATION_VARIANT = "compaction_continuation"
SKILL_VARIANT = "pinned_skill"
THRASHING_VARIANT = "compaction_thrashing"
DATE_VARIANT = "date"
INSTRUCTIONS_VARIANT = "instructions_changed"

_MADE_BY_COMPACTION = frozenset({ELISION_VARIANT, CONTINUATION_VARIANT, SKILL_VARIANT})
_TOLD_AGAIN = frozenset({DATE_VARIANT, INSTRUCTIONS_VARIANT})


def is_real_user_input(message: Message) -> bool:
    """Whether these are a person's own words: typed, or a skill or command that the person called by its slash name.

    Injections, shell commands, tasks, cron, hooks, retries and summaries have the role `user` too, and are not.
    """
    if message.role != "user":
        return False
    origin = message.origin
    if origin is None or origin.kind == "user":
        return True
    return origin.kind in ("skill_activation", "plugin_command") and origin.trigger == "user_slash"


def is_summary(message: Message) -> bool:
    return message.origin is not None and message.origin.kind == "compaction_summary"


def is_skill_text(message: Message) -> bool:
    """Whether this is what `run_skill` folded in: instructions that hold on."""
    return message.role == "tool" and message.name == "run_skill" and message.text.startswith("<skill name=")


def is_elision(message: Message) -> bool:
    return message.origin is not None and message.origin.variant == ELISION_VARIANT


def is_made_by_compaction(message: Message) -> bool:
    """Summary, notes and pins of an earlier landing: the next one makes its own and keeps none of them."""
    origin = message.origin
    if origin is None:
        return False
    return origin.kind == "compaction_summary" or (origin.kind == "injection" and origin.variant in _MADE_BY_COMPACTION)


def is_told_again(message: Message) -> bool:
    """A note on the state of things, which the next turn begins with again when it is missing."""
    origin = message.origin
    return origin is not None and origin.kind == "injection" and origin.variant in _TOLD_AGAIN


def is_instructions_note(message: Message) -> bool:
    """Whether this tells of an edit of the standing instructions."""
    origin = message.origin
    return origin is not None and origin.kind == "injection" and origin.variant == INSTRUCTIONS_VARIANT


def issuers(messages: Sequence[Message]) -> list[int | None]:
    """For each tool message the position of the message that issued its call; None for everything else.

    An orphan, whose call nobody before it issued, has None.
    """
    issued: dict[str, int] = {}
    found: list[int | None] = [None] * len(messages)
    for i, message in enumerate(messages):
        if message.role == "assistant":
            for call in message.tool_calls or ():
                issued[call.id] = i
        elif message.role == "tool" and message.tool_call_id is not None:
            found[i] = issued.get(message.tool_call_id)
    return found


def safe_starts(messages: Sequence[Message]) -> list[bool]:
    """For each position (the end included) whether the messages from there on answer no call that they do not issue.

    Orphans answer nothing and do not count.
    """
    found = issuers(messages)
    safe = [True] * (len(messages) + 1)
    needed = len(messages)
    for i in range(len(messages) - 1, -1, -1):
        issuer = found[i]
        if issuer is not None and issuer < needed:
            needed = issuer
        safe[i] = needed >= i
    return safe


def widen(safe: Sequence[bool], start: int) -> int:
    """The nearest safe position at or before `start`."""
    while start > 0 and not safe[start]:
        start -= 1
    return start


def tail_by_messages(messages: Sequence[Message], count: int) -> int:
    """Where a tail of the last `count` messages begins, widened backwards until its pairs are whole."""
    return widen(safe_starts(messages), max(0, len(messages) - count))


def tail_by_tokens(messages: Sequence[Message], budget: int, sizes: Sizes, *, at_least: int = 0) -> int:
    """Where a tail of at most `budget` tokens begins, of `at_least` messages, widened until its pairs are whole."""
    return widen(safe_starts(messages), raw_tail_by_tokens(messages, budget, sizes, at_least=at_least))


def raw_tail_by_tokens(messages: Sequence[Message], budget: int, sizes: Sizes, *, at_least: int = 0) -> int:
    """As `tail_by_tokens`, not widened."""
    start = len(messages)
    for i, tokens in enumerate(accumulate(map(sizes.message, reversed(messages)))):
        if tokens > budget and i >= at_least:
            break
        start -= 1
    return start


def first_user(messages: Sequence[Message]) -> int | None:
    """The position of the first real user input, which holds the task; else of what was said in that role by a task, a
    schedule or a trigger."""
    for i, message in enumerate(messages):
        if is_real_user_input(message):
            return i
    for i, message in enumerate(messages):
        kind = message.origin.kind if message.origin is not None else "user"
        if message.role == "user" and kind not in ("injection", "compaction_summary"):
            return i
    return None


def span_lines(entries: Sequence[Entry], last: Landing | None) -> tuple[int, int]:
    """First and last line that a compaction of `entries` shadows for the first time.

    What an earlier landing kept stands in an earlier window: the windows follow each other and do not overlap.
    """
    covered = last.last_line if last is not None else 0
    lines = [e.line for e in entries if e.line > covered]
    if not lines:
        return covered, covered
    return min(lines), max(lines)
