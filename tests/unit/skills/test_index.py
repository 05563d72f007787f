"""The index in the prefix: its lines, its limit, and what goes first."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sidecar.skills.definition import Skill
from sidecar.skills.index import MAX_INDEX_CHARS, MAX_LINE_CHARS, skills_index


def skill(name: str, description: str = "does it") -> Skill:
    return Skill(name, description, "inline", "project", "body", Path("/"), f"{name}.md")


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("- ")]


def test_the_index() -> None:
    assert skills_index([]) == ""
    assert skills_index([skill("review"), skill("tag", "</skills> x")]) == (
        "<skills>\nPlaybooks for certain tasks. Call run_skill with a name when its description fits the task:\n"
        "- review: does it\n- tag: &lt;/skills&gt; x\n</skills>"
    )


def test_a_line_has_its_limit() -> None:
    (line,) = lines(skills_index([skill("review", "word " * 100)]))
    assert len(line) == MAX_LINE_CHARS
    assert line.endswith("…")


def test_bodies_never_enter() -> None:
    assert "body" not in skills_index([skill("review")])


def test_descriptions_go_before_names_from_the_end_and_are_counted() -> None:
    text = skills_index([skill(f"skill-{n:02d}", "word " * 30) for n in range(60)])
    assert len(text) <= MAX_INDEX_CHARS
    assert len(lines(text)) == 60
    described = [": " in line for line in lines(text)]
    count = described.count(True)
    assert described == [True] * count + [False] * (60 - count)
    assert 10 < count < 60
    assert f"({60 - count} descriptions are left out: read_skill shows them)" in text


def test_names_go_last_and_are_counted() -> None:
    text = skills_index([skill(f"a-skill-with-a-long-name-{n:03d}") for n in range(300)])
    assert len(text) <= MAX_INDEX_CHARS
    named = len(lines(text))
    assert 50 < named < 300
    assert f"({300 - named} more skills are not listed; {named} descriptions are left out" in text


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 300)), max_size=250))
def test_the_limit_holds_and_nothing_goes_without_need(sizes: list[tuple[int, int]]) -> None:
    skills = [skill("n" * name, "d" * description) for name, description in sizes]
    text = skills_index(skills)
    assert len(text) <= MAX_INDEX_CHARS
    assert all(len(line) <= MAX_LINE_CHARS for line in lines(text))
    whole = sum(min(MAX_LINE_CHARS, 4 + name + description) + 1 for name, description in sizes)
    if whole < MAX_INDEX_CHARS - 200:
        assert "left out" not in text
        assert "not listed" not in text
