"""The facts of one store in memory, findable by id, by words and by what they are called. No I/O; not thread-safe."""

from __future__ import annotations

from protocol.memory import Fact, FactInput
from sidecar.memory.facts import identities
from sidecar.memory.index import Index
from sidecar.memory.terms import document_terms


class Catalogue:
    """`facts` are whole, by id; `index` has exactly these. Both are changed through `put` and `discard` only."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.index = Index()
        self._equals: dict[tuple[str, str], set[str]] = {}

    def put(self, fact: Fact) -> None:
        """Adds a fact, or replaces the one with its id. Costs O(its text)."""
        if self.facts.get(fact.id) == fact:
            return
        self.discard(fact.id)
        self.facts[fact.id] = fact
        for identity in identities(fact):
            self._equals.setdefault(identity, set()).add(fact.id)
        text = "\n".join((fact.name, fact.title, fact.description, *fact.keywords, fact.body or ""))
        self.index.put(fact.id, document_terms(text))

    def discard(self, fact_id: str) -> None:
        fact = self.facts.pop(fact_id, None)
        if fact is None:
            return
        for identity in identities(fact):
            same = self._equals[identity]
            same.discard(fact_id)
            if not same:
                del self._equals[identity]
        self.index.discard(fact_id)

    def equals_of(self, fact: Fact | FactInput) -> list[Fact]:
        """The facts here that share name, title or description with it, by id; itself left out."""
        own = fact.id if isinstance(fact, Fact) else None
        found = {i for identity in identities(fact) for i in self._equals.get(identity, ())}
        return [self.facts[i] for i in sorted(found) if i != own]
