"""The frozen part of the prefix, made once per session, and the notes that tell the model what has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from anyio import to_thread

from protocol.events import Notice
from protocol.messages import Message, Origin, TextPart
from record_store.fold import State
from sidecar import ids
from sidecar.agent.runtime import Agent
from sidecar.compaction.regions import DATE_VARIANT as DATE
from sidecar.compaction.regions import INSTRUCTIONS_VARIANT as INSTRUCTIONS
from sidecar.instructions.discovery import Watched, load
from sidecar.instructions.prefix import join
from sidecar.instructions.standing import changes, date_note, digest_of, files_in, is_unbroken, told_date, told_state
from sidecar.memory.section import entries_in
from sidecar.memory.service import TurnRecall
from sidecar.sessions.notes import Notes
from sidecar.sessions.services import Services
from sidecar.settings import Settings
from sidecar.skills.discovery import Catalog, discover
from sidecar.skills.index import skills_index

RECALL = "memory_recall"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in the prefix after the host's system prompt; problems that were met."""

    text: str
    notices: tuple[Notice, ...] = ()


class PrefixMaker:
    """Reads instructions, facts and skills once, when a session is created."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def standing(self, cwd: Path, settings: Settings) -> Standing:
        """Never raises for what it finds: a problem is a notice."""
        home = self._services.user_home
        notices: list[Notice] = []
        instructions = facts = index = ""
        if settings.instructions.enabled:
            found = await to_thread.run_sync(load, cwd, home)
            instructions = found.text
            notices += [Notice(kind="instructions", message=text) for text in found.notices]
        if settings.memory.recall:
            facts = await self._services.memory.section(cwd)
        if settings.skills.enabled:
            catalog = await self.skills(cwd)
            index = skills_index(catalog.skills, runnable=settings.tools.builtin == "all")
        return Standing(join(instructions, facts, index), tuple(notices))

    async def skills(self, cwd: Path) -> Catalog:
        """The skills as they are now."""
        return await to_thread.run_sync(discover, cwd, self._services.user_home)


class SessionNotes:
    """Before a turn of one agent: the date, edits of the instructions, and, for real user input, what memory
    recalls. Problems that came with an edit are notices. A sub-agent works for no person: it recalls nothing, and
    has no notices."""

    def __init__(self, services: Services, *, for_user: bool = True) -> None:
        self._services = services
        self._for_user = for_user
        self._files: Mapping[str, str] = {}
        self._problems: Sequence[str] = ()
        self._watched: Watched | None = None
        self._told = ToldNotes()

    async def before_turn(self, agent: Agent, inputs: Sequence[Message]) -> Notes:
        recall = await self._recall(agent, inputs)
        notes = (
            self._note(agent, DATE, self._date(agent)),
            self._note(agent, INSTRUCTIONS, await self._instructions(agent)),
            self._note(agent, RECALL, recall.text if recall is not None else None),
        )
        messages = tuple(n for n in notes if n is not None)
        if recall is None:
            return Notes(messages)
        event = recall.event
        found = bool(event.hits or event.omitted)
        of_turn = found or not await self._services.memory.is_empty(Path(agent.state.cwd))
        return Notes(messages, event, of_turn)

    def _date(self, agent: Agent) -> str | None:
        told = self._told.last(agent.state, DATE)
        today = datetime.fromtimestamp(agent.clock.now_ms() / 1000).astimezone().date()
        return date_note(today, told_date(told) if told is not None else None)

    async def _instructions(self, agent: Agent) -> str | None:
        if not agent.settings.instructions.enabled:
            return None
        state = agent.state
        if self._watched is None:
            self._watched = Watched(Path(state.cwd), self._services.user_home)
        found = await to_thread.run_sync(self._watched.load)
        now = found.files
        new, self._problems = [p for p in found.notices if p not in self._problems], found.notices
        frozen = files_in(state.standing)
        notes = self._told.notes(state, INSTRUCTIONS)
        known = told_state(notes[-1]) if notes else digest_of(frozen)
        unbroken = is_unbroken(notes)
        state_now = digest_of(now)
        if state_now == known and unbroken:
            return None
        if self._for_user:
            for problem in new:
                agent.emit(Notice(kind="instructions", message=problem))
        told, self._files = self._files, now
        if notes and unbroken and state_now != digest_of(frozen) and digest_of(told) == known:
            return changes(told, now, later=True)
        return changes(frozen, now) or _as_at_first(frozen)

    async def _recall(self, agent: Agent, inputs: Sequence[Message]) -> TurnRecall | None:
        own = [m.text for m in inputs if m.origin is None or m.origin.kind == "user"]
        if not own or not self._for_user or not agent.settings.memory.recall:
            return None
        state = agent.state
        return await self._services.memory.recall_for_turn(Path(state.cwd), "\n".join(own), entries_in(state.standing))

    def _note(self, agent: Agent, variant: str, text: str | None) -> Message | None:
        if not text:
            return None
        return Message(
            id=ids.new("msg"),
            role="user",
            content=(TextPart(text),),
            time=agent.clock.now_ms(),
            origin=Origin("injection", variant=variant),
        )


class ToldNotes:
    """The notes of each kind that are still in the context. While the context only grows, each message is looked at
    once."""

    def __init__(self) -> None:
        self._notes: dict[str, list[str]] = {}
        self._seen = 0
        self._rewrites = -1

    def last(self, state: State, variant: str) -> str | None:
        notes = self.notes(state, variant)
        return notes[-1] if notes else None

    def notes(self, state: State, variant: str) -> Sequence[str]:
        """In order."""
        if state.rewrites != self._rewrites or len(state.entries) < self._seen:
            self._notes, self._seen, self._rewrites = {}, 0, state.rewrites
        for i in range(self._seen, len(state.entries)):
            origin = state.entries[i].message.origin
            if origin is not None and origin.kind == "injection" and origin.variant is not None:
                self._notes.setdefault(origin.variant, []).append(state.entries[i].message.text)
        self._seen = len(state.entries)
        return self._notes.get(variant, ())


def _as_at_first(frozen: Mapping[str, str]) -> str:
    """After edits that were told, the files are again what the prefix says."""
    return (
        f'<instructions-changed state="{digest_of(frozen)}">\n'
        "The standing instructions are again as they were when this session began.\n</instructions-changed>"
    )
