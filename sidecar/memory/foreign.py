"""What people write into a fact's front matter besides our own fields: kept as it is. Pure."""

from __future__ import annotations

import re
from typing import Final

OWN: Final = frozenset(
    (
        "id", "revision", "created_at", "updated_at", "name", "title", "description", "type", "scope", "keywords",
        "expires_at", "last_verified_at",
    )
)  # fmt: skip

_FIRST = r"""[^\s"'#:{}\[\],&*!|>%@`?-]"""
_KEY = re.compile(
    rf"""(?:(?P<quote>["'])(?P<quoted>{_FIRST}[^"':#]*)(?P=quote)|(?P<plain>{_FIRST}(?:[^"':#]*[^\s"':#])?))"""
    r"\s*:(?=\s|$)"
)
"""Linear in the line: a plain key ends in no blank, so that a run of blanks is gone through once."""


def foreign_lines(header: str) -> str:
    """The lines of a header that belong to keys of others, and comments; each ends in a newline. Empty without any.

    Any other line (indented, blank, an item of a list) belongs to the key above it.
    """
    kept: list[str] = []
    is_foreign = False
    for line in header.removesuffix("\n").split("\n"):
        found = _KEY.match(line)
        if found is not None:
            is_foreign = (found["quoted"] or found["plain"]).strip() not in OWN
        if is_foreign or line.startswith("#"):
            kept.append(f"{line}\n")
    return "".join(kept)
