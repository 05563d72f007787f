"""One loaded session: the only writer of its log. It owns its agents, its turns and its background work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import structlog

from protocol.chat import CompactResult, HostMessage
from protocol.info import ContextInfo, Recovered, SessionInfo
from protocol.memory import Fact
from protocol.messages import Origin, Part, ToolSpec
from record_store.backend import MAIN_AGENT
from record_store.errors import StoreError
from record_store.fold import State
from record_store.records import Clear, CompactionCancel, ConfigUpdate, MemoryWrite, Record, ToolsSnapshot, Undo
from sidecar import ids
from sidecar.agent.repair import records_to_settle
from sidecar.agent.runtime import Agent
from sidecar.agent.turn import TurnHandle
from sidecar.approvals.rules import policy_of
from sidecar.errors import Fault
from sidecar.sessions import content as border
from sidecar.sessions.assembly import Desk, Seat
from sidecar.sessions.engine import ContextEngine
from sidecar.sessions.info import session_info
from sidecar.sessions.manual_compaction import ManualCompaction
from sidecar.sessions.notes import TailNotes
from sidecar.sessions.past_turns import past_turn
from sidecar.sessions.ports import Client
from sidecar.sessions.seeding import Seeding
from sidecar.sessions.subagents import SubAgents
from sidecar.sessions.turns import Turns
from sidecar.sessions.user_skills import UserSkills
from sidecar.store_errors import store_fault

_log = structlog.get_logger("sidecar.sessions")

COMPACT_BUSY = "Cannot compact while a turn is active: wait for its end, or use when = next_step."
BUSY = "This needs an idle session, and a turn is active."


class Session:
    """All methods are called on the loop; those that change the context need it idle (`turn_active`)."""

    def __init__(self, desk: Desk, main: Seat, notes: TailNotes, engine: ContextEngine) -> None:
        self.desk = desk
        self.main = main
        self._engine = engine
        self._seeding = Seeding(main, desk.opened.blobs)
        self._agents = SubAgents(desk, engine, lambda: main)
        engine.equip(desk, main, self._agents)
        main.agent.call_ids = self._agents.call_ids
        self._skills = UserSkills(desk, main, self._agents)
        self.turns = Turns(
            main.agent, desk.tasks, notes, self._turn_ended, self._prepare, self._skills.before_first_step
        )
        self.last_active = desk.services.clock.monotonic()
        self.users = 0
        """Calls that are at work with it."""
        self.ended = False
        """It takes nothing more, and its log is let go."""
        self._compacting: ManualCompaction | None = None
        # Inputs enter in the order in which they came, whatever it takes to put their images away.
        self._taking_in = anyio.Lock(fast_acquire=True)

    # -- facts

    @property
    def session_id(self) -> str:
        return self.desk.opened.session_id

    @property
    def state(self) -> State:
        return self.main.agent.state

    @property
    def busy(self) -> bool:
        """Whether it must stay loaded."""
        return self.users > 0 or not self.turns.idle or self.desk.tasks.busy

    def touch(self) -> None:
        self.last_active = self.desk.services.clock.monotonic()

    def info(self) -> SessionInfo:
        agent = self.main.agent
        return session_info(
            self.state,
            agents=(MAIN_AGENT, *self.state.agents),
            model=self.main.model_name(),
            tools_builtin=agent.settings.tools.builtin,
            used=agent.used(),
            window=agent.window,
            running=not self.turns.idle,
        )

    # -- turns

    async def send(
        self,
        content: str | tuple[Part, ...],
        *,
        history: Sequence[HostMessage] | None = None,
        client_message_id: str | None = None,
        origin: Origin | None = None,
        turn_id: str | None = None,
    ) -> TurnHandle:
        """Takes an input in; its turn runs now or after those before it. A message that was taken in before gives
        its turn, finished or not."""
        known = self._turn_of(client_message_id)
        if known is not None:
            return await self._known_turn(known)
        self.require_model()
        self._refuse_when_full(self.turns.waiting)
        async with self._taking_in:
            # While this one waited, a copy of it may have been taken in, and others may have filled the queue.
            known = self._turn_of(client_message_id)
            if known is None:
                self._refuse_when_full(self.turns.waiting)
                parts = await border.take_in(content, self.desk.opened.blobs)
                if history is not None:
                    await self._seed(history)
        if known is not None:
            return await self._known_turn(known)
        return await self.turns.accept(parts, origin=origin, client_message_id=client_message_id, turn_id=turn_id)

    def _refuse_when_full(self, waiting: int) -> None:
        if waiting >= self.main.agent.settings.server.max_queued_inputs:
            raise Fault("overloaded", "Too many inputs wait in this session.", hint="wait for turn_ended, then retry")

    def _turn_of(self, client_message_id: str | None) -> str | None:
        """The turn of a message that was taken in before."""
        return None if client_message_id is None else self.state.client_ids.get(client_message_id)

    async def _known_turn(self, turn_id: str) -> TurnHandle:
        running = self.turns.handle(turn_id)
        if running is not None:
            await self._sync()  # the first copy may not be on disk yet
            return running
        again = await self.turns.accept_again(turn_id)
        if again is not None:
            return again
        handle = TurnHandle(turn_id)
        handle.finish(await past_turn(self.main.journal, turn_id))
        return handle

    async def steer(self, content: str | tuple[Part, ...]) -> TurnHandle | None:
        """Gives input to the running turn; with none running it starts one and returns it."""
        if self.turns.idle:
            return await self.send(content)
        self._refuse_when_full(self.turns.steering)
        async with self._taking_in:
            self._refuse_when_full(self.turns.steering)
            parts = await border.take_in(content, self.desk.opened.blobs)
        await self.turns.steer(parts)
        return None

    async def run_skill(self, name: str, arguments: str) -> TurnHandle:
        """The user's own activation of a skill: a turn with what the skill says."""
        self.require_model()
        active = await self._engine.activation(self.main, name, arguments)
        turn_id = ids.new("turn")
        with self._skills.belongs_to(turn_id, active):
            return await self.send(active.text, origin=active.origin, turn_id=turn_id)

    def require_model(self) -> None:
        """Raises `no_provider` when no model can be asked."""
        agent = self.main.agent
        agent.model.bind(agent.state.model, agent.settings)

    def cancel(self, turn_id: str | None) -> bool:
        """Cancels the running turn, or a compaction that was asked for; False if there is neither, or another turn."""
        return self.turns.cancel(turn_id) or (turn_id is None and self._cancel_compaction())

    def _cancel_compaction(self) -> bool:
        """Ends a compaction that was asked for, from its first measuring on, until it lands."""
        return self._compacting is not None and self._compacting.cancel()

    # -- compaction

    async def compact(self, agent_id: str, instruction: str | None, when: str) -> CompactResult:
        """Compacts an agent's context now, or before its next step."""
        seat = self.seat(agent_id)
        if when == "next_step":
            seat.compaction.queue_next_step(instruction)
            return CompactResult(outcome="queued")
        async with self.turns.exclusive(COMPACT_BUSY):
            self.require_model()
            self._compacting = ManualCompaction(seat)
            try:
                done = await self._compacting.run(instruction)
            finally:
                self._compacting = None
            await self._settle()
        return CompactResult(
            outcome=done.outcome,
            compaction_id=done.compaction_id,
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
        )

    async def uncompact(self, compaction_id: str | None) -> int:
        """Takes the last landing back; the tokens of the context then."""
        async with self.turns.exclusive(BUSY):
            tokens = await self.main.compaction.uncompact(compaction_id)
            await self._settle()
            return tokens

    def seat(self, agent_id: str) -> Seat:
        """A loaded agent's seat. Raises `session_not_found`."""
        found = self.main if agent_id == MAIN_AGENT else self._agents.seats.get(agent_id)
        if found is None:
            raise Fault("session_not_found", f"There is no agent {agent_id!r} at work in this session.")
        return found

    def agents(self) -> tuple[str, ...]:
        """Agents that are loaded."""
        return (MAIN_AGENT, *self._agents.seats)

    def context(self, agent_id: str) -> ContextInfo:
        seat = self.seat(agent_id)
        return seat.compaction.context_info(seat.agent.last_cache)

    def agent(self, agent_id: str) -> Agent | None:
        """An agent of this session that is loaded."""
        return self.seat(agent_id).agent if agent_id in self.agents() else None

    # -- the context

    async def undo(self, turns: int) -> int:
        """Takes the last turns out of the context; how many there were."""
        async with self.turns.exclusive(BUSY):
            marks = self.state.turn_marks
            count = min(turns, len(marks))
            if count == 0:
                if self.state.landings:
                    raise Fault(
                        "undo_blocked",
                        "The turns before this point were compacted.",
                        hint="agent.chat.uncompact brings the last span back",
                        cause="compacted",
                    )
                return 0
            self._append(Undo(time=self._now(), turns=count, keep=marks[-count].start))
            self.main.compaction.on_context_changed()
            await self._settle()
            return count

    async def clear(self) -> None:
        async with self.turns.exclusive(BUSY):
            self._append(Clear(time=self._now()))
            self.main.compaction.on_context_changed()
            await self._settle()

    async def _seed(self, history: Sequence[HostMessage]) -> None:
        """Makes the context agree with the host's own transcript."""
        found = await self._seeding.compare(history)
        if found.agrees:
            return
        async with self.turns.exclusive("The host's history differs from the session's, and a turn is active."):
            self._append(*await self._seeding.records(found, self._now()))
            if found.match.diverged:
                self.main.compaction.on_context_changed()

    # -- configuration and hosts

    async def configure(
        self,
        *,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        title: str | None = None,
        tools: Sequence[ToolSpec] | None = None,
        host: Client | None = None,
        reopen: bool = False,
    ) -> None:
        """Changes what is given, all of it or nothing."""
        records = self._configuration(model, config, title, reopen)
        if tools is not None and host is not None:
            brought = self.desk.hosts.bring(host, tools, self.state.tools)
            if brought != self.state.tools:
                records.append(ToolsSnapshot(time=self._now(), tools=brought, builtin=self.state.builtin))
        if records:
            self._append(*records)
        self.main.refresh(self.desk)
        if records:
            self.main.compaction.on_context_changed()
            await self._settle()

    def _configuration(
        self, model: str | None, config: Mapping[str, Any] | None, title: str | None, reopen: bool
    ) -> list[Record]:
        """The record that makes this change, if there is one. Raises the fault of what is not valid."""
        if model is None and config is None and title is None and not reopen:
            return []
        services = self.desk.services
        merged = None
        settings = self.main.agent.settings
        if config is not None:
            merged = services.layers.changed(self.state.config, config)
            settings = services.layers.settings(merged)
            policy_of(settings.approval, self.state.cwd)
        if model is not None:
            services.registry.resolve(model, settings)
        if merged is not None:
            merged = self.desk.secrets.seal(merged)  # once nothing can be refused any more
        state: Literal["idle"] | None = "idle" if reopen else None
        return [ConfigUpdate(time=self._now(), title=title, model=model, config=merged, state=state)]

    async def tools(self) -> tuple[ToolSpec, ...]:
        """What the model is offered; between turns, what the next one will offer."""
        if self.turns.idle:
            await self.desk.servers.before_listing(self.desk, self.main)
        return self.main.toolbox.specs()

    async def attach(self, client: Client, after_event: str | None) -> tuple[int, bool]:
        """Events from `after_event` on, and open requests that this client can answer."""
        replayed = await self.desk.hub.attach(client, after_event)
        self.desk.hosts.attached(client)
        return replayed

    # -- life

    async def recover(self, found: Sequence[Recovered]) -> list[Recovered]:
        """Closes what an unclean end left open; everything that was mended or reported."""
        records, settled = records_to_settle(self.state, self._now(), "restart")
        if records:
            self._append(*records)
        compaction = await self.main.compaction.settle_on_resume()
        below = await self._agents.settle()
        if self.main.agent.settings.memory.recall:
            warm = partial(self.desk.services.memory.warm, Path(self.state.cwd))
            self.desk.tasks.spawn(warm, "warm_memory")
        await self._sync()
        return [*found, *settled, *([compaction] if compaction is not None else []), *below]

    async def end(self, *, close: bool) -> None:
        """Ends turns as cancelled and background work, writes everything down and lets the log go. With `close` the
        session takes no more input until it is resumed."""
        self.ended = True
        self._cancel_compaction()
        await self.turns.cancel_all()
        await self.main.compaction.close()
        await self.desk.servers.close()
        await self.desk.tasks.stop()
        try:
            if close and not self.state.closed:
                self.main.agent.log.append(ConfigUpdate(time=self._now(), state="closed"))
            await self.desk.opened.save_info(self.info())
        except StoreError as error:
            _log.warning("session_end_not_stored", session_id=self.session_id, error=str(error))
        try:
            await self.desk.opened.close()
        except StoreError as error:
            _log.warning("session_not_synced", session_id=self.session_id, error=str(error))

    def note_memory(self, fact: Fact, op: Literal["create", "update", "forget"]) -> None:
        """A host changed a fact of this session's project: the log tells of it. The fact itself is stored already."""
        record = MemoryWrite(
            time=self._now(), fact_id=fact.id, revision=fact.revision, scope=fact.scope, op=op, by="host"
        )
        try:
            self._append(record)
        except Fault as fault:
            _log.warning("memory_write_not_logged", session_id=self.session_id, reason=fault.reason)

    async def save_info(self) -> None:
        """Brings `session.json` up to date, and the checkpoint if it is due."""
        try:
            await self.desk.opened.save_info(self.info())
        except StoreError as error:
            raise store_fault(error) from error
        if self.main.journal.checkpoint_due:
            await self.main.journal.checkpoint()

    async def begin_fork(self, tools: tuple[ToolSpec, ...]) -> None:
        """First records of a fork: what goes along is written down, what was under way in the source is closed."""
        bracket = self.state.bracket
        self._append(ToolsSnapshot(time=self._now(), tools=tools, builtin=self.state.builtin))
        records, _ = records_to_settle(self.state, self._now(), "restart")
        if bracket is not None:
            # The fold lets go of it at the first record of the fork's own; readers of the log see it end here.
            records.append(CompactionCancel(self._now(), bracket.start.compaction_id, "restart"))
        if records:
            self._append(*records)
        await self._agents.settle()
        if self.state.closed:
            self._append(ConfigUpdate(time=self._now(), state="idle"))
        self.main.refresh(self.desk)
        await self._settle()

    # -- inside

    def _now(self) -> int:
        return self.desk.services.clock.now_ms()

    def _append(self, *records: Record) -> list[int]:
        return self.main.agent.append(*records)

    async def _sync(self) -> None:
        await self.main.agent.sync()

    async def _settle(self) -> None:
        """What was just appended is on disk and in `session.json` when this returns."""
        await self._sync()
        await self.save_info()

    async def _prepare(self) -> None:
        await self.desk.servers.before_turn(self.desk, self.main)

    def _turn_ended(self) -> None:
        self.touch()
        self.desk.services.calibration.save()
        self.desk.tasks.spawn(self.save_info, "save_info")
