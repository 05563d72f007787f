"""Inline skills in use: whose text survives a compaction verbatim. Pure.

What brought a skill in (a result, the user's message) or pins it since a landing shows its text in the context. Once
that was taken back (undo, another past told by the host) it is not in use; if an earlier activation of the same skill
is still shown, that one is in use again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

ENDS = 60
"""Characters at both ends by which a text is known whose middle was spilled."""


class PinnedSkill(Struct, frozen=True):
    """One activation: `body` is the text that the model was shown, arguments included."""

    name: str
    body: str


def activated(skills: Sequence[PinnedSkill], new: PinnedSkill) -> list[PinnedSkill]:
    """The activations in order, the new one last, equal ones once."""
    return [*(s for s in skills if s != new), new]


def shown(skills: Sequence[PinnedSkill], texts: Iterable[str]) -> list[PinnedSkill]:
    """The activations that one of a context's texts shows. Those of one skill may have the same ends, so a text that
    holds one of them whole shows no other by its ends."""
    if not skills:
        return []
    found: set[int] = set()
    for text in texts:
        whole = [i for i, s in enumerate(skills) if s.body in text]
        found.update(whole or [i for i, s in enumerate(skills) if _has_ends(text, s.body)])
    return [s for i, s in enumerate(skills) if i in found]


def _has_ends(text: str, body: str) -> bool:
    return text.startswith(body[:ENDS]) and text.endswith(body[-ENDS:])


def in_use(skills: Sequence[PinnedSkill], texts: Iterable[str]) -> list[PinnedSkill]:
    """Of each skill the last activation that is shown, or the last of all if none is."""
    last = {s.name: s for s in (*skills, *shown(skills, texts))}
    return [s for s in skills if last[s.name] == s]


def landed(skills: Sequence[PinnedSkill], texts: Iterable[str]) -> list[PinnedSkill]:
    """What is left after a landing: activations before the one in use are part of the summary now."""
    used = in_use(skills, texts)
    first = {s.name: i for i, s in enumerate(skills) if s in used}
    return [s for i, s in enumerate(skills) if i >= first[s.name]]
