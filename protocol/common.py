"""Types that params of many methods use. Pure data."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from protocol.messages import Part

Id = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$(?!\n)",
        description="letters, digits, `.`, `_`, `-`; begins with a letter or digit; at most 128 characters",
    ),
]
"""An id that comes from outside. It is safe as a file name."""

Limit = Annotated[int, Meta(ge=1, le=100_000)]
Cursor = Annotated[str, Meta(max_length=512)]
Line = Annotated[int, Meta(ge=1)]
Content = str | tuple[Part, ...]
"""A text, or parts."""


class Params(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of all params. Fields that are not known are ignored."""


class Result(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of all results. Optional fields that are absent are left out."""


class Empty(Result, frozen=True):
    """Nothing."""


class NoParams(Params, frozen=True):
    """Nothing."""


class SessionParams(Params, frozen=True):
    session_id: Id


class AgentParams(SessionParams, frozen=True):
    """`agent_id` is `main` unless given."""

    agent_id: Id = "main"
