"""Params and results of `skill.*`. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from protocol.common import Result, SessionParams

SkillMode = Literal["inline", "subagent"]
"""Whether a skill's text joins the conversation, or an agent of its own follows it and returns only the answer."""

SkillSource = Literal["project", "home"]


class SkillInfo(Struct, frozen=True):
    """A skill as hosts list it; `source` says whose folder it came from."""

    name: str
    description: str
    mode: SkillMode
    source: SkillSource


class SkillProblem(Struct, frozen=True):
    """A skill file that cannot be used, or not as it says; `path` is relative to the workspace root or to `~`."""

    path: str
    message: str


class SkillListResult(Result, frozen=True):
    """Project skills first, each group by name."""

    skills: tuple[SkillInfo, ...]
    problems: tuple[SkillProblem, ...]


class SkillRunParams(SessionParams, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    arguments: Annotated[str, Meta(max_length=1_000_000)] | None = None


class SkillRunResult(Result, frozen=True):
    turn_id: str
