"""Lists in front matter as other programs write them."""

from __future__ import annotations

import time

import pytest

from sidecar import frontmatter


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Read, Grep,Glob", ("Read", "Grep", "Glob")),
        ("Bash(git add, git commit), Read", ("Bash(git add, git commit)", "Read")),
        ("Bash(f(x), y), Read", ("Bash(f(x), y)", "Read")),
        ("Bash(open, Read", ("Bash(open", "Read")),
        ("a, b), c", ("a", "b)", "c")),
        (" , ,", ()),
        ("", ()),
    ],
)
def test_a_comma_separated_text(text: str, items: tuple[str, ...]) -> None:
    assert frontmatter.texts(text) == items


@pytest.mark.parametrize("opening", ["[", "{b: ", "[{"])
def test_deep_nesting_is_refused_soon(opening: str) -> None:
    began = time.perf_counter()
    with pytest.raises(frontmatter.FrontMatterError):
        frontmatter.read("a: " + opening * (16_000 // len(opening)))
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("text", ["," * 100_000, "(," * 50_000, "(" * 100_000 + "," * 100_000])
def test_a_hostile_text_takes_no_time(text: str) -> None:
    began = time.perf_counter()
    frontmatter.texts(text)
    assert time.perf_counter() - began < 2
