"""What a skill's file says, in our words and in those of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.skills.definition import InvalidSkill, NotASkill, Skill, parse


def skill(header: str, body: str = "Do it.", *, flat: bool = False) -> Skill:
    return parse(
        f"---\n{header}\n---\n\n{body}\n", default_name="folder", flat=flat, source="project",
        directory=Path("/w/folder"), label="folder/SKILL.md",
    )  # fmt: skip


def test_the_least_and_the_most() -> None:
    assert skill("description: what it does") == Skill(
        "folder", "what it does", "inline", "project", "Do it.", Path("/w/folder"), "folder/SKILL.md"
    )
    full = skill(
        "name: review\ndescription: >\n  Reviews\n  a change.\nmode: subagent\nallowed-tools: [read_file, grep]\n"
        "model: openai/gpt-x\nlicense: MIT\nmetadata: {a: b}"
    )
    assert (full.name, full.description, full.mode) == ("review", "Reviews a change.", "subagent")
    assert (full.allowed_tools, full.model, full.warnings) == (("read_file", "grep"), "openai/gpt-x", ())


@pytest.mark.parametrize(
    ("header", "mode"),
    [
        ("mode: inline", "inline"),
        ("mode: subagent", "subagent"),
        ("runAs: subagent", "subagent"),
        ("context: fork", "subagent"),
        ("context: Fork", "subagent"),
        ("context: shared", "inline"),
        ("mode: inline\ncontext: fork", "inline"),
        ("mode: inline\nrunAs: subagent", "inline"),
    ],
)
def test_modes(header: str, mode: str) -> None:
    assert skill(f"description: d\n{header}").mode == mode


@pytest.mark.parametrize(
    ("value", "tools"),
    [
        ("read_file, grep", ("read_file", "grep")),
        ("\n  - read_file\n  - grep", ("read_file", "grep")),
        ("Read, Grep, Bash(git log:*, git diff:*), Read", ("read_file", "grep", "run_command")),
        ("mcp__docs__search", ("mcp__docs__search",)),
        ("[]", ()),
        ("", ()),
    ],
)
def test_allowed_tools(value: str, tools: tuple[str, ...]) -> None:
    assert skill(f"description: d\nallowed-tools: {value}").allowed_tools == tools


def test_without_allowed_tools_nothing_is_restricted() -> None:
    assert skill("description: d").allowed_tools is None


@pytest.mark.parametrize(("model", "warned"), [("inherit", False), ("", False), ("opus", True)])
def test_a_model_that_is_not_ours_is_not_used(model: str, warned: bool) -> None:
    made = skill(f"description: d\nmodel: {model}")
    assert made.model is None
    assert bool(made.warnings) is warned


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("name: x", "has no `description`"),
        ("description: a: b", "mapping values"),
        ("description: d\nmode: elsewhere", "must be inline or subagent"),
        ("description: d\nname: a/b", "the name 'a/b'"),
        ("description: d\nname: [a]", "`name` must be one text"),
        ("- a list", "not a list of"),
    ],
)
def test_what_cannot_be_used_says_why(header: str, words: str) -> None:
    with pytest.raises(InvalidSkill) as caught:
        skill(header)
    assert words in str(caught.value)


def test_a_flat_file_is_a_skill_only_with_a_description() -> None:
    assert skill("description: d", flat=True).name == "folder"
    with pytest.raises(NotASkill):
        skill("title: Notes", flat=True)
    plain: dict[str, Any] = {"default_name": "n", "source": "home", "directory": Path("/"), "label": "n.md"}
    with pytest.raises(NotASkill):
        parse("# Notes", flat=True, **plain)
    with pytest.raises(InvalidSkill):
        parse("# Notes", flat=False, **plain)
