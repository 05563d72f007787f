"""Which lines of a fact's front matter are other people's."""

from __future__ import annotations

import time

import pytest

from sidecar.memory.foreign import foreign_lines


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("name: x\ntype: project\n", ""),
        ("name: x\nowner: bob\n", "owner: bob\n"),
        ("my key : 1\n\"their key\": 2\n'name ': 3\n", 'my key : 1\n"their key": 2\n'),
        ("keywords:\n- a: b\naliases:\n- c\n\n  d\ntitle: y\n", "aliases:\n- c\n\n  d\n"),
        ("# why\nname: x\n", "# why\n"),
    ],
)
def test_lines_of_other_keys_and_comments_are_kept(header: str, kept: str) -> None:
    assert foreign_lines(header) == kept


@pytest.mark.parametrize("line", ["a" + " " * 16_000 + "b", "a" + " " * 16_000, "a  b" * 4_000])
def test_a_long_line_is_read_in_linear_time(line: str) -> None:
    before = time.process_time()
    foreign_lines(line)
    assert time.process_time() - before < 0.2
