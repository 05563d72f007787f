"""The facts of a project together with the global ones: found, listed, recalled, changed. Blocking; thread-safe.

Where both stores are needed the project's lock is taken first.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.memory import Fact, FactInput, FactScope, FactType, MemoryProblem
from sidecar.clock import Clock
from sidecar.memory import facts
from sidecar.memory.index import search
from sidecar.memory.recall import Decision, Found, decide, is_expired, strongest, terms_of
from sidecar.memory.section import belongs
from sidecar.memory.store import FactStore, no_such_fact
from sidecar.memory.terms import Query, parse_query
from sidecar.memory.times import from_iso

MAX_LOADED_PROJECTS: Final = 64
"""Projects whose facts stay in memory; the one that was not used for longest is read again when it is needed."""

NOTHING: Final = Decision((), ())


class Taken(Exception):
    """A create-only write met a fact of an equal name, title or description."""


class Library:
    """All stores under `folder`: `global/` and `projects/<name>-<key>/`, the key from the workspace root's path."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._global = FactStore(folder / "global", "global", clock)
        self._projects: OrderedDict[Path, FactStore] = OrderedDict()
        self._mutex = threading.Lock()

    def project(self, root: Path) -> FactStore:
        with self._mutex:
            store = self._projects.get(root)
            if store is None:
                store = FactStore(self._folder / "projects" / project_key(root), "project", self._clock, root)
                self._projects[root] = store
            self._projects.move_to_end(root)
            while len(self._projects) > MAX_LOADED_PROJECTS:
                self._projects.popitem(last=False)
            return store

    @contextmanager
    def _both(self, root: Path, *, quick: bool = False) -> Iterator[tuple[FactStore, FactStore]]:
        """Project and global store, up to date and held."""
        project = self.project(root)
        with project.lock, self._global.lock:
            project.view.refresh(quick=quick)
            self._global.view.refresh(quick=quick)
            yield project, self._global

    # ---------------------------------------------------------------- reading

    def load(self, root: Path) -> None:
        """Reads what was not read yet."""
        with self._both(root):
            pass

    def is_empty(self, root: Path) -> bool:
        """Whether there is not a single fact for this project, global ones included."""
        with self._both(root, quick=True) as stores:
            return not any(store.catalogue.facts for store in stores)

    def listing(
        self, root: Path, type: FactType | None, scope: FactScope | None
    ) -> tuple[list[Fact], list[MemoryProblem]]:
        """Facts without bodies, newest first, overrides explained; and the files that could not be read."""
        with self._both(root) as stores:
            listed: dict[str, Fact] = {}
            for store in stores:
                for fact in store.catalogue.facts.values():
                    if fact.id not in listed or listed[fact.id].revision < fact.revision:
                        listed[fact.id] = self._explained(fact, *stores)
            problems = [
                MemoryProblem(f"{_place(store, self._folder)}/{name}", message)
                for store in stores
                for name, message in sorted(store.view.problems.items())
                if scope in (None, store.scope)
            ]
        chosen = [f for f in listed.values() if type in (None, f.type) and scope in (None, f.scope)]
        chosen.sort(key=lambda f: (-from_iso(f.updated_at), f.id))
        return [facts.without_body(f) for f in chosen], problems

    def get(self, root: Path, fact_id: str) -> Fact:
        """The whole fact. Raises `Fault` (`invalid_params`) if there is none."""
        project = self.project(root)
        with project.lock, self._global.lock:
            return self._explained(self._find(project, fact_id)[1], project, self._global)

    def _find(self, project: FactStore, fact_id: str) -> tuple[FactStore, Fact]:
        """A fact that moved is for a moment in both stores: the later revision is it."""
        found = [(store, fact) for store in (project, self._global) if (fact := store.get(fact_id)) is not None]
        if not found:
            raise no_such_fact()
        return max(found, key=lambda pair: pair[1].revision)

    def _explained(self, fact: Fact, project: FactStore, common: FactStore) -> Fact:
        if fact.scope == "global":
            return replace(fact, overridden_by=self._overriding(fact, project))
        if is_expired(fact, self._clock.now_ms()):
            return fact
        below = common.catalogue.equals_of(fact)
        return replace(fact, overrides=below[0].id) if below else fact

    def _overriding(self, fact: Fact, project: FactStore) -> str | None:
        now = self._clock.now_ms()
        return next((f.id for f in project.catalogue.equals_of(fact) if not is_expired(f, now)), None)

    def equal_to(self, root: Path, given: FactInput) -> list[Fact]:
        """The facts, the project's first, that share name, title or description with the input."""
        with self._both(root) as stores:
            return [fact for store in stores for fact in store.catalogue.equals_of(given)]

    def preferences(self, root: Path) -> list[Fact]:
        """The global facts for the prompt of a session in this project: what the project overrides is not among
        them."""
        with self._both(root) as (project, common):
            candidates = [f for f in common.catalogue.facts.values() if belongs(f)]
            return [f for f in candidates if self._overriding(f, project) is None]

    # ---------------------------------------------------------------- recalling

    def recall(self, root: Path, text: str, *, limit: int, in_prefix: Callable[[Fact], bool], quick: bool) -> Decision:
        """What the stores hold for a text. `quick` bounds the looks at the disk; what is found is looked at again.
        `in_prefix` says whether a fact need not be told."""
        query = parse_query(text)
        if not query.terms:
            return NOTHING
        with self._both(root, quick=quick) as stores:
            decision = self._decide(stores, query, limit, in_prefix)
            told = [hit.fact.id for hit in decision.hits]
            if quick and _changed_since(stores, told):
                decision = self._decide(stores, query, limit, in_prefix)
            return decision

    def _decide(
        self, stores: tuple[FactStore, FactStore], query: Query, limit: int, in_prefix: Callable[[Fact], bool]
    ) -> Decision:
        project, _ = stores
        found: dict[str, Found] = {}
        tables = search([store.catalogue.index for store in stores], query.terms)
        for store, (scores, matched) in zip(stores, tables, strict=True):
            for key, enough in strongest(scores, matched, query, limit):
                fact = store.catalogue.facts[key]
                over = self._overriding(fact, project) if store is not project else None
                if key not in found or found[key].fact.revision < fact.revision:
                    found[key] = Found(fact, scores[key], terms_of(matched[key], query), enough, over)
        told = frozenset(one.fact.id for one in found.values() if in_prefix(one.fact))
        return decide(found.values(), query, now_ms=self._clock.now_ms(), in_prefix=told, limit=limit)

    # ---------------------------------------------------------------- writing

    def create(self, root: Path, given: FactInput) -> Fact:
        return self._store(given.scope or "project", root).create(given)

    def create_new(self, root: Path, given: FactInput) -> Fact:
        """Creates a project fact only if nothing equal is there at the moment of writing; else raises `Taken`."""
        project = self.project(root)

        def nothing_equal() -> None:
            self._global.view.refresh()
            if project.catalogue.equals_of(given) or self._global.catalogue.equals_of(given):
                raise Taken

        with project.lock, self._global.lock:
            return project.create(given, only_if=nothing_equal)

    def update(self, root: Path, fact_id: str, given: FactInput, expected_revision: int) -> Fact:
        """The next revision; with another scope than before the fact moves to the other store."""
        project = self.project(root)
        with project.lock, self._global.lock:
            store, fact = self._find(project, fact_id)
            if given.scope in (None, store.scope):
                return store.update(fact_id, given, expected_revision)
            if fact.revision != expected_revision:
                return store.update(fact_id, given, expected_revision)
            moved = facts.updated(fact, given, self._clock.now_ms())
            self._store(moved.scope, root).put(moved, store.view.foreign.get(fact_id, ""))
            store.archive(fact_id)
            return moved

    def forget(self, root: Path, fact_id: str, expected_revision: int | None) -> Fact:
        project = self.project(root)
        with project.lock, self._global.lock:
            store, _ = self._find(project, fact_id)
            return store.archive(fact_id, expected_revision)

    def _store(self, scope: FactScope, root: Path) -> FactStore:
        return self._global if scope == "global" else self.project(root)


def project_key(root: Path) -> str:
    """A folder name that people recognise and that no other workspace has."""
    readable = re.sub(r"[^\w-]+", "-", root.name).strip("-")[:40] or "root"
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{readable}-{digest}"


def _changed_since(stores: Iterable[FactStore], fact_ids: list[str]) -> bool:
    """Looks at the files of these facts, in every store; whether one changed."""
    looked = [store.view.look_at([i for i in fact_ids if i in store.catalogue.facts]) for store in stores]
    return any(looked)


def _place(store: FactStore, folder: Path) -> str:
    return (store.folder / "facts").relative_to(folder).as_posix()
