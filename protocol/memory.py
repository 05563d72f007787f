"""Facts of the background memory, and params and results of `memory.*`. Pure data.

Dates of facts are ISO 8601 in UTC (`2026-05-01T09:30:00Z`), in the file and here; nothing else in the protocol is.
A request names its project by `session_id` or by `cwd`: the workspace that these lie in is meant.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from protocol.common import Id, Params, Result
from protocol.events import Omitted

FactType = Literal["user", "feedback", "project", "reference"]
"""What a fact is about: the person, how to work and why, what the code does not show, or a place outside."""

FactScope = Literal["project", "global"]
"""Where a fact holds: in its own workspace only, or everywhere. Independent of the type."""

Revision = Annotated[int, Meta(ge=1)]


class Fact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fact. `id` never changes, `revision` only grows, from 1.

    `title` may be empty. `body` is left out in lists. `overrides` (on a project fact) names the equal global fact
    that recall leaves out in its favour, the first by id if there are several; `overridden_by` is the way back.
    """

    id: str
    revision: int
    created_at: str
    updated_at: str
    name: str
    title: str
    description: str
    type: FactType
    scope: FactScope
    keywords: tuple[str, ...]
    expires_at: str | None = None
    last_verified_at: str | None = None
    body: str | None = None
    overrides: str | None = None
    overridden_by: str | None = None


class FactInput(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a fact shall say. An update replaces all of it; only an absent `scope` keeps the fact where it is."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Annotated[str, Meta(min_length=1, max_length=1_000)]
    type: FactType
    body: Annotated[str, Meta(min_length=1, max_length=100_000)]
    title: Annotated[str, Meta(max_length=300)] = ""
    scope: FactScope | None = None
    keywords: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=64)] = ()
    expires_at: str | None = None


class MemoryProblem(Struct, frozen=True):
    """A file of the store that could not be read as a fact; `file` is relative to the memory's own folder."""

    file: str
    message: str


class ProjectParams(Params, frozen=True):
    """One of the two is needed."""

    session_id: Id | None = None
    cwd: str | None = None


class ListParams(ProjectParams, frozen=True, kw_only=True):
    type: FactType | None = None
    scope: FactScope | None = None


class ListResult(Result, frozen=True):
    """Facts without their bodies, newest first. `problems` is absent when every file could be read."""

    facts: tuple[Fact, ...]
    problems: tuple[MemoryProblem, ...] = ()


class GetParams(ProjectParams, frozen=True, kw_only=True):
    id: Id


class SaveParams(ProjectParams, frozen=True, kw_only=True):
    """Without `id` a new fact is made; with it `expected_revision` is needed too."""

    fact: FactInput
    id: Id | None = None
    expected_revision: Revision | None = None


class FactResult(Result, frozen=True):
    """Result of `memory.get` and `memory.save`."""

    fact: Fact


class ForgetParams(ProjectParams, frozen=True, kw_only=True):
    id: Id
    expected_revision: Revision | None = None


class ForgetResult(Result, frozen=True):
    archived: bool


class RecallParams(ProjectParams, frozen=True, kw_only=True):
    """`limit` is 4 unless given."""

    query: Annotated[str, Meta(max_length=100_000)]
    limit: Annotated[int, Meta(ge=1, le=100)] | None = None


class FactHit(Struct, frozen=True):
    """A fact that answers a query; `reasons` say why (`matched: ...`, `distinctive: ...`, `project`, `stale`)."""

    fact: Fact
    score: float
    reasons: tuple[str, ...]


class RecallResult(Result, frozen=True):
    """Best hit first. `omitted` are facts that share words with the query and are not among the hits; their reason
    is `expired`, `in_prefix`, `weak_match`, `limit`, `budget`, or `overridden_by: <id>`."""

    hits: tuple[FactHit, ...]
    omitted: tuple[Omitted, ...]
