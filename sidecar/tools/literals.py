"""Texts of which a line must hold one to match a regular expression. Pure; standard library only.

They let a fast search for plain texts choose the files that the expression is then tried on.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

MAX_TEXTS = 32
_FOLDS_TO = {"i": "\u0130\u0131", "s": "\u017f", "k": "\u212a"}
"""Characters beyond ASCII that Python takes for these letters when case is ignored."""


def required(pattern: str) -> list[str] | None:
    """ASCII texts, one of which is in every match of this valid pattern (in some case, if it ignores case); None if
    that cannot be told."""
    try:
        return _of_sequence(list(import_module("re._parser").parse(pattern)))
    except Exception:  # the parser is an inner part of Python; without it all files are searched
        return None


def _of_sequence(items: list[tuple[Any, Any]]) -> list[str] | None:
    best: list[str] | None = None
    run = ""
    for op, argument in [*items, (None, None)]:
        if str(op) == "LITERAL" and 32 <= argument < 127:
            run += chr(argument)
            continue
        candidates = [[run]] if run else []
        run = ""
        inner = _of_item(str(op), argument)
        if inner is not None:
            candidates.append(inner)
        for texts in candidates:
            if best is None or min(map(len, texts)) > min(map(len, best)):
                best = texts
    return best


def _of_item(op: str, argument: Any) -> list[str] | None:
    if op == "SUBPATTERN":
        _, added, removed, inner = argument
        return None if added or removed else _of_sequence(list(inner))
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _of_sequence(list(argument[2])) if argument[0] >= 1 else None
    if op == "ATOMIC_GROUP":
        return _of_sequence(list(argument))
    if op == "BRANCH":
        texts: list[str] = []
        for branch in argument[1]:
            found = _of_sequence(list(branch))
            if found is None:
                return None
            texts += found
        return texts if len(texts) <= MAX_TEXTS else None
    return None


def as_expression(text: str, *, ignore_case: bool) -> str:
    """A regular expression for one of these texts that Rust's and Python's engines read alike."""
    if not ignore_case:
        return re.escape(text)
    return "".join(_any_case(c) for c in text)


def _any_case(c: str) -> str:
    if not c.isalpha():
        return re.escape(c)
    return f"[{c.lower()}{c.upper()}{_FOLDS_TO.get(c.lower(), '')}]"
