"""Searches: with ripgrep and without it the same, and what the pieces promise each other."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.tools import globs, literals
from sidecar.tools.confine import Confinement
from sidecar.tools.search import GrepRequest, grep

RIPGREP = shutil.which("rg")

NAMES = st.sampled_from(["a.py", "b.txt", "d/c.py", "d/e/f.md", ".hidden", "node_modules/x.js", "-n", "g h.py"])
LINES = st.text(st.sampled_from("abcKkſıİsi É.(\u212a\u2028\r"), max_size=8)
ENCODERS = st.sampled_from(
    [
        lambda t: t.encode(),
        lambda t: codecs.BOM_UTF8 + t.encode(),
        lambda t: codecs.BOM_UTF16_LE + t.encode("utf-16-le"),
        lambda t: codecs.BOM_UTF16_BE + t.encode("utf-16-be"),
        lambda t: t.encode("latin-1", "replace"),
        lambda t: t.encode() + b"\0",
    ]
)
FILES = st.dictionaries(NAMES, st.tuples(st.lists(LINES, max_size=5).map("\n".join), ENCODERS), max_size=6)
PIECES = st.sampled_from(
    ["a", "ab", "K", "i", "s", "É", r"\.", r"\w+", "b*", "(?:ab)+", "[a-c]", "^", "$", r"\b", "c?", "."]
)
PATTERNS = st.one_of(
    st.lists(PIECES, min_size=1, max_size=4).map("".join),
    st.lists(PIECES, min_size=2, max_size=3).map("|".join),
    st.lists(PIECES, min_size=1, max_size=3).map(lambda p: f"({'|'.join(p)})ab"),
    st.lists(PIECES, min_size=1, max_size=3).map(lambda p: "(?i)" + "".join(p)),
)


@pytest.mark.skipif(RIPGREP is None, reason="RIPGREP IS MISSING: install the package ripgrep")
@settings(max_examples=150, deadline=None)
@given(FILES, PATTERNS, st.booleans(), st.sampled_from([None, "*.py", "!*.py", "d/**"]), st.integers(1, 5))
def test_ripgrep_changes_no_result(
    files: dict[str, tuple[str, object]], pattern: str, ignore_case: bool, glob: str | None, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = os.path.realpath(name)
        for path, (text, encode) in {".gitignore": ("node_modules\n", str.encode), **files}.items():
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_bytes(encode(text))  # type: ignore[operator]
        place = Confinement.of(folder)
        found = [grep(GrepRequest(place, folder, pattern, glob, ignore_case, limit, rg)) for rg in (None, RIPGREP)]
    assert found[0] == found[1]


@given(PATTERNS, LINES, st.booleans())
def test_every_match_holds_one_of_the_texts(pattern: str, line: str, ignore_case: bool) -> None:
    texts = literals.required(pattern)
    compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    if texts is None or compiled.search(line) is None:
        return
    folded = bool(compiled.flags & re.IGNORECASE)
    assert any(re.search(literals.as_expression(text, ignore_case=folded), line) for text in texts)


PATTERN = st.lists(
    st.one_of(st.just("**"), st.text(st.sampled_from("ab*?["), min_size=1, max_size=4)), min_size=1, max_size=4
).map("/".join)
PATH = st.lists(st.text(st.sampled_from("ab["), min_size=1, max_size=3), min_size=1, max_size=5)


def reference(pattern: list[str], path: list[str]) -> bool:
    """The plain meaning of a glob, by trying everything."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return any(reference(pattern[1:], path[n:]) for n in range(len(path)))
    return bool(path) and name_matches(pattern[0], path[0]) and reference(pattern[1:], path[1:])


def name_matches(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(name_matches(pattern[1:], name[n:]) for n in range(len(name) + 1))
    return bool(name) and (pattern[0] == "?" or pattern[0] == name[0]) and name_matches(pattern[1:], name[1:])


@given(PATTERN, PATH)
def test_globs_mean_what_they_say(pattern: str, path: list[str]) -> None:
    parts = [p for i, p in enumerate(pattern.split("/")) if i == 0 or p != "**" or pattern.split("/")[i - 1] != "**"]
    assert (globs.matcher(pattern).fullmatch("/".join(path)) is not None) == reference(parts, path)
