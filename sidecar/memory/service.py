"""Memory as sessions and hosts use it: the `memory.*` methods, recall before a turn, writing by the model.

Everything that touches the disk runs in a thread; cancelling a call waits for the write that it began, so that no
answer is ever uncertain. Raises only `Fault`, and `GrantSpent` and
`library.Taken` where said.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread
import msgspec

from protocol.events import MemoryRecalled
from protocol.memory import (
    Fact,
    FactHit,
    FactInput,
    FactResult,
    FactScope,
    FactType,
    ForgetResult,
    ListResult,
    RecallResult,
)
from sidecar.clock import Clock
from sidecar.errors import Fault
from sidecar.memory import facts
from sidecar.memory.facts import InvalidFact
from sidecar.memory.gate import Ask, Granted, Proposal, judge
from sidecar.memory.library import Library
from sidecar.memory.recall import MAX_FACT_CHARS, MAX_FACTS, block, is_generic
from sidecar.memory.secrets import find
from sidecar.memory.section import entry, facts_section
from sidecar.memory.terms import MAX_QUERY_CHARS, parse_query
from sidecar.workspace import workspace_root

T = TypeVar("T")

MAX_TRACED_QUERY: Final = 1_000
"""Characters of the user's text in `memory_recalled`."""

MAX_OPEN_GRANTS: Final = 256

NO_ENTRIES: Final[Mapping[str, str]] = {}


class GrantSpent(Exception):
    """The grant was used before, or is for another fact."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to create one fact, as proposed, once."""

    token: str


@dataclass(frozen=True, slots=True)
class Question:
    """A person has to decide. `replaces` is the fact of an equal name that would get a new revision instead."""

    reasons: tuple[str, ...]
    replaces: Fact | None


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wants to write. `cwd` says whose memory; `session_cwd` is where the session lives."""

    main_agent: bool
    cwd: Path
    session_cwd: Path
    automatic: bool = True


@dataclass(frozen=True, slots=True)
class TurnRecall:
    """`text` goes into the tail of the turn, if there is any; `event` is told in any case."""

    text: str
    event: MemoryRecalled


class MemoryService:
    """One per daemon. `folder` is the memory's own directory, `homes` the paths that no prompt may show.

    Where `in_prefix` is asked for, it is `section.entries_in` of the session's prompt: a fact that still reads as it
    stands there is not told again."""

    def __init__(self, folder: Path, clock: Clock, homes: Sequence[str] = ()) -> None:
        self._library = Library(folder, clock)
        self._clock = clock
        self._homes = tuple(homes)
        self._grants: OrderedDict[str, bytes] = OrderedDict()

    # ---------------------------------------------------------------- memory.*

    async def list(self, cwd: Path, *, type: FactType | None = None, scope: FactScope | None = None) -> ListResult:
        listed, problems = await _threaded(lambda: self._library.listing(workspace_root(cwd), type, scope))
        return ListResult(facts=tuple(listed), problems=tuple(problems))

    async def get(self, cwd: Path, fact_id: str) -> FactResult:
        return FactResult(fact=await _threaded(lambda: self._library.get(workspace_root(cwd), fact_id)))

    async def save(
        self, cwd: Path, given: FactInput, *, fact_id: str | None = None, expected_revision: int | None = None
    ) -> FactResult:
        """Creates, or with `fact_id` updates. `stale_revision` has the true one in `data.current`."""
        tidy = self.checked(given)
        if fact_id is None:
            if expected_revision is not None:
                raise _invalid("id", "an update needs the id of the fact")
            return FactResult(fact=await _threaded(lambda: self._library.create(workspace_root(cwd), tidy)))
        if expected_revision is None:
            raise _invalid("expected_revision", "an update needs the revision that it replaces")
        return FactResult(
            fact=await _threaded(lambda: self._library.update(workspace_root(cwd), fact_id, tidy, expected_revision))
        )

    async def forget(self, cwd: Path, fact_id: str, *, expected_revision: int | None = None) -> ForgetResult:
        await _threaded(lambda: self._library.forget(workspace_root(cwd), fact_id, expected_revision))
        return ForgetResult(archived=True)

    async def recall(
        self, cwd: Path, query: str, *, limit: int | None = None, in_prefix: Mapping[str, str] = NO_ENTRIES
    ) -> RecallResult:
        """What recall finds for a query, with whole facts."""
        if is_generic(query):
            return RecallResult(hits=(), omitted=())
        most = MAX_FACTS if limit is None else limit
        decision = await _threaded(
            lambda: self._library.recall(
                workspace_root(cwd), query, limit=most, in_prefix=self._stands_in(in_prefix), quick=False
            )
        )
        return RecallResult(
            hits=tuple(FactHit(hit.fact, hit.score, hit.reasons) for hit in decision.hits), omitted=decision.omitted
        )

    @staticmethod
    def checked(given: FactInput) -> FactInput:
        """The input as it would be kept. Raises `invalid_params` with `data.path`."""
        try:
            return facts.checked(given)
        except InvalidFact as error:
            raise _invalid(f"fact.{error.field}", error.message) from None

    async def is_empty(self, cwd: Path) -> bool:
        """Whether nothing is remembered for this directory at all. True if the memory cannot be read."""
        try:
            return await _threaded(lambda: self._library.is_empty(workspace_root(cwd)))
        except (Fault, OSError):
            return True

    # ---------------------------------------------------------------- sessions

    async def warm(self, cwd: Path) -> None:
        """Reads the project's facts before the first turn needs them."""
        await _threaded(lambda: self._library.load(workspace_root(cwd)))

    async def section(self, cwd: Path) -> str:
        """The section of a new session's prompt; to be frozen. Empty without facts."""

        def make() -> str:
            chosen = self._library.preferences(workspace_root(cwd))
            return facts_section(chosen, self._homes, now_ms=self._clock.now_ms())

        return await _threaded(make)

    async def recall_for_turn(self, cwd: Path, text: str, in_prefix: Mapping[str, str] = NO_ENTRIES) -> TurnRecall:
        """What a turn that begins with the user's own `text` is told. Never raises for the memory's own troubles:
        a turn goes on without it (`suppressed` is then `unavailable`)."""
        traced = text[:MAX_TRACED_QUERY]
        if is_generic(text):
            return _nothing(traced, "generic_turn")
        if not parse_query(text[:MAX_QUERY_CHARS]).terms:
            return _nothing(traced, "no_terms")
        try:
            decision = await _threaded(
                lambda: self._library.recall(
                    workspace_root(cwd), text, limit=MAX_FACTS, in_prefix=self._stands_in(in_prefix), quick=True
                )
            )
        except (Fault, OSError):
            return _nothing(traced, "unavailable")
        told = block(decision.hits, self._homes)
        hits = tuple(hit.trace() for hit in told.hits)
        return TurnRecall(told.text, MemoryRecalled(query=traced, hits=hits, omitted=told.omitted + decision.omitted))

    async def answer(
        self, cwd: Path, query: str, *, limit: int, max_chars: int, in_prefix: Mapping[str, str] = NO_ENTRIES
    ) -> str:
        """What a model that asks is told: a block like a turn's, with room of its own; empty if there is nothing."""
        found = await _threaded(
            lambda: self._library.recall(
                workspace_root(cwd), query, limit=limit, in_prefix=self._stands_in(in_prefix), quick=False
            )
        )
        return block(found.hits, self._homes, max_chars=max(max_chars, MAX_FACT_CHARS)).text

    def _stands_in(self, entries: Mapping[str, str]) -> Callable[[Fact], bool]:
        return lambda fact: fact.id in entries and entries[fact.id] == entry(fact, self._homes)

    # ---------------------------------------------------------------- writing by the model

    async def propose(self, writer: Writer, given: FactInput) -> Grant | Question:
        """Whether checked input may be created unasked. A grant is for this very fact, and for one write."""

        def judged() -> tuple[Granted | Ask, list[Fact]]:
            root = workspace_root(writer.cwd)
            equal = self._library.equal_to(root, given)
            owns = workspace_root(writer.session_cwd) == root and self._library.project(root).is_of(root)
            return judge(_proposal(writer, given, owns, equal)), equal

        verdict, equal = await _threaded(judged)
        match verdict:
            case Granted():
                return self._grant(given)
            case Ask(reasons):
                return Question(reasons, _replaced_by(given, equal))

    def _grant(self, given: FactInput) -> Grant:
        token = secrets.token_hex(16)
        self._grants[token] = msgspec.json.encode(given)
        while len(self._grants) > MAX_OPEN_GRANTS:
            self._grants.popitem(last=False)
        return Grant(token)

    async def create_granted(self, writer: Writer, grant: Grant, given: FactInput) -> Fact:
        """The one write of a grant. It is spent whatever happens: raises `GrantSpent` the second time or for another
        fact, and `Taken` if an equal fact came into being meanwhile; then nothing was written."""
        if self._grants.pop(grant.token, None) != msgspec.json.encode(given):
            raise GrantSpent
        return await _threaded(lambda: self._library.create_new(workspace_root(writer.cwd), given))

    async def write_approved(self, writer: Writer, given: FactInput, question: Question) -> Fact:
        """The write that a person allowed: a new revision of what the question said it replaces, else a new fact."""
        old = question.replaces
        result = await self.save(
            writer.cwd,
            given,
            fact_id=None if old is None else old.id,
            expected_revision=None if old is None else old.revision,
        )
        return result.fact


def _proposal(writer: Writer, given: FactInput, owns: bool, equal: Sequence[Fact]) -> Proposal:
    return Proposal(
        main_agent=writer.main_agent,
        owns_project=owns,
        type=given.type,
        scope=given.scope,
        operation="update" if _replaced_by(given, equal) is not None else "create",
        body_chars=len(given.body),
        findings=find((given.name, given.title, given.description, *given.keywords, given.body)),
        equal=tuple(f.id for f in equal),
        automatic=writer.automatic,
    )


def _replaced_by(given: FactInput, equal: Sequence[Fact]) -> Fact | None:
    name = facts.canonical(given.name)
    scope = given.scope or "project"
    return next((f for f in equal if f.scope == scope and name and facts.canonical(f.name) == name), None)


def _nothing(query: str, suppressed: str) -> TurnRecall:
    return TurnRecall("", MemoryRecalled(query=query, hits=(), omitted=(), suppressed=suppressed))


def _invalid(path: str, message: str) -> Fault:
    return Fault("invalid_params", f"{path}: {message}", path=path)


async def _threaded(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)
