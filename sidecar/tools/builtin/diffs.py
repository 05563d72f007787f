"""How edits are shown to hosts and to those who approve them. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from sidecar.tools.text import clean, clip

MAX_WHOLE = 200_000
"""Characters of old and new text together up to which a diff holds both whole."""
MAX_PREVIEW = 8_000
MAX_COMPARED = 5_000
"""Lines of each side up to which a preview is a line by line comparison."""


def diff_of(path: str, old: str | None, new: str) -> dict[str, Any] | None:
    """`{path, old_text, new_text}` of a whole file (`old_text` null: it is new); None where that is too much."""
    if len(old or "") + len(new) > MAX_WHOLE:
        return None
    return {"path": clean(path), "old_text": None if old is None else clean(old), "new_text": clean(new)}


def unified(name: str, old: str, new: str) -> str:
    """A unified diff of two texts, line ends left out of it, at most `MAX_PREVIEW` characters."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_COMPARED:
        return clip(clean(f"{name}: {len(before):,} lines become {len(after):,}\n{new}"), MAX_PREVIEW)
    lines = difflib.unified_diff(before, after, name, name, lineterm="")
    return clip(clean("\n".join(lines)), MAX_PREVIEW) or f"{name}: no line changes"
