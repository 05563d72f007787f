"""The global facts about the person and the way of working that stand in every session's prompt. Pure.

The text is made once per session and frozen; it holds the ids of its facts, so that recall, also after a restart,
knows from the text alone what need not be told again: what still reads as it stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from protocol.memory import Fact
from sidecar.memory.recall import clip, fact_text, is_expired
from sidecar.memory.times import from_iso

MAX_SECTION_CHARS: Final = 1_200
MAX_ENTRY_CHARS: Final = 400

_TITLE: Final = (
    "<remembered-preferences>\n"
    "What earlier sessions noted about the user and how to work, newest first; the standing instructions outrank it."
)
_END: Final = "</remembered-preferences>"
_ENTRY: Final = re.compile(r"^- \[([A-Za-z0-9][A-Za-z0-9._-]*)\] .*$", re.MULTILINE)
_SECTION: Final = re.compile(r"<remembered-preferences>\n.*?\n</remembered-preferences>", re.DOTALL)


def facts_section(facts: Iterable[Fact], homes: Sequence[str], *, now_ms: int) -> str:
    """The section, at most `MAX_SECTION_CHARS` long; empty without facts. Of `facts` only global ones of type user
    and feedback that have not expired are taken, newest first; the first that does not fit ends it."""
    chosen = [f for f in facts if belongs(f) and not is_expired(f, now_ms)]
    chosen.sort(key=lambda f: (-from_iso(f.updated_at), f.id))
    lines = [_TITLE]
    used = len(_TITLE) + 1 + len(_END)
    for fact in chosen:
        line = entry(fact, homes)
        if used + 1 + len(line) > MAX_SECTION_CHARS:
            break
        lines.append(line)
        used += 1 + len(line)
    return "" if len(lines) == 1 else "\n".join([*lines, _END])


def entry(fact: Fact, homes: Sequence[str]) -> str:
    """The line of a fact, at most `MAX_ENTRY_CHARS` long."""
    head = f"- [{fact.id}] "
    text = " ".join(fact_text(fact, homes).split())
    return head + clip(text, MAX_ENTRY_CHARS - len(head))


def belongs(fact: Fact) -> bool:
    return fact.scope == "global" and fact.type in ("user", "feedback")


def entries_in(standing: str) -> dict[str, str]:
    """The lines of the facts that a frozen prompt tells, by their ids; `standing` may hold more than the section."""
    return {m[1]: m[0] for section in _SECTION.findall(standing) for m in _ENTRY.finditer(section)}
