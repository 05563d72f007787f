"""Whether a finished compaction may still be applied. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from record_store.fold import Entry
from sidecar.compaction.regions import is_real_user_input

LandingMode = Literal["rebase", "strict"]


def history_safe_to_compact(current: Sequence[Entry], original: Sequence[Entry], mode: LandingMode) -> bool:
    """Whether the span that was summarised is still what stands at the start of the context.

    Unchanged means the same objects: the fold makes a new entry for every message that it changes. What was appended
    since stays verbatim behind the summary: anything under `rebase`, real user input only under `strict`.
    """
    count = len(original)
    if len(current) < count:
        return False
    if any(a is not b for a, b in zip(current, original, strict=False)):
        return False
    return mode == "rebase" or all(is_real_user_input(e.message) for e in current[count:])


def has_gain(pre_tokens: int, post_tokens: int) -> bool:
    """A landing that does not make the context smaller is none."""
    return post_tokens < pre_tokens
