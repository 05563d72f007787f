"""Where an import is meant."""

from __future__ import annotations

import time

import pytest

from sidecar.instructions.imports import imports_of, is_relative, names_a_file


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("@docs/style.md", ("docs/style.md",)),
        ("see @a.md, (@b.md) and @../c.md.", ("a.md", "b.md", "../c.md")),
        ("遵守 @规范.md。", ("规范.md",)),
        ("@a.md again @a.md", ("a.md",)),
        ("mail bob@example.com", ()),
        ("`@a.md` and ``x @b.md``", ()),
        ("``a ` @a.md`` @b.md", ("b.md",)),
        ("x ``` @a.md ` @b.md ` @c.md", ("a.md", "c.md")),
        ("```make``` and @a.md", ("a.md",)),
        ("1. run\n\n     ```\n     @a.md\n     ```\n   @b.md", ("b.md",)),
        ("```\n@a.md\n```js\n@b.md\n````\n@c.md", ("c.md",)),
        ("`open @a.md", ("a.md",)),
        ("```\n@a.md\n```\n@b.md", ("b.md",)),
        ("~~~~\n@a.md\n~~~\n@b.md\n~~~~\n@c.md", ("c.md",)),
        ("@", ()),
        ("", ()),
    ],
)
def test_targets(text: str, targets: tuple[str, ...]) -> None:
    assert imports_of(text) == targets


def test_a_hostile_line_takes_no_time() -> None:
    line = "".join("`" * n + "a" for n in range(1, 360)) + " @a.md"
    began = time.perf_counter()
    assert imports_of(line) == ("a.md",)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("target", "file"), [("a.md", True), ("x/a.txt", True), ("alice", False), ("types/node", False)]
)
def test_what_was_meant_as_a_file(target: str, file: bool) -> None:
    assert names_a_file(target) is file


@pytest.mark.parametrize(
    ("target", "relative"), [("a.md", True), ("../a.md", True), ("/etc/x", False), ("~/x", False), ("C:/x", False)]
)
def test_relative_targets(target: str, relative: bool) -> None:
    assert is_relative(target) is relative
