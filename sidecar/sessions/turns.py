"""A session's turns: inputs wait in the log, one turn runs at a time, every turn gets an end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio.lowlevel import checkpoint_if_cancelled

from protocol.events import TurnEnded, TurnStarted
from protocol.messages import Message, Origin, Part, TurnResult
from record_store.fold import Pending
from record_store.records import AppendMessage, ConfigUpdate, TurnBegin, TurnEnd
from sidecar import ids
from sidecar.agent import calls
from sidecar.agent.loop import run_turn
from sidecar.agent.outcome import Outcome, internal, of_fault, of_provider_error
from sidecar.agent.repair import records_to_settle
from sidecar.agent.runtime import Agent
from sidecar.agent.turn import Turn, TurnHandle
from sidecar.agent.view import open_calls
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from sidecar.sessions.notes import TailNotes
from sidecar.sessions.tasks import Tasks

_log = structlog.get_logger("sidecar.sessions")

TITLE_CHARS = 80


class Turns:
    """The one place that starts and ends turns of an agent."""

    def __init__(
        self,
        agent: Agent,
        tasks: Tasks,
        notes: TailNotes,
        on_end: Callable[[], None],
        prepare: Callable[[], Awaitable[None]],
        opening: Callable[[Turn], Awaitable[None]] | None = None,
    ) -> None:
        """`prepare` is awaited before a turn begins and `opening` before its first step, both inside of what a cancel
        ends; `on_end` is called after its end."""
        self._agent = agent
        self._prepare = prepare
        self._opening = opening
        self._tasks = tasks
        self._notes = notes
        self._on_end = on_end
        self._handles: dict[str, TurnHandle] = {}
        self._failed: set[str] = set()
        # Those of `_failed` whose sender was told so: sent again, they run.
        self._refused: set[str] = set()
        # Steering whose turn is over and was not followed by another: it enters with the next one, and starts none.
        self._resting: set[str] = self._steering()
        self._draining = False
        self._stopping = False
        self._held: str | None = None
        self._released = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self.running: Turn | None = None

    # -- inputs

    @property
    def idle(self) -> bool:
        """No turn runs and none waits to run."""
        return not self._draining and self._next() is None

    @property
    def waiting(self) -> int:
        """Inputs that wait for a turn of their own."""
        return sum(p.kind == "turn" for p in self._agent.state.pending)

    @property
    def steering(self) -> int:
        """Inputs that wait for the next step."""
        return len(self._steering())

    async def accept(
        self,
        content: tuple[Part, ...],
        *,
        origin: Origin | None = None,
        client_message_id: str | None = None,
        turn_id: str | None = None,
    ) -> TurnHandle:
        """Takes an input in: on return it is on disk and its turn will run. Raises `store_write_failed`, and
        `session_closed` once `cancel_all` was called: nothing that comes then would ever run."""
        self._refuse_when_stopping()
        agent = self._agent
        handle = TurnHandle(turn_id or ids.new("turn"))
        now = agent.clock.now_ms()
        message = Message(id=ids.new("msg"), role="user", content=content, time=now, origin=origin)
        agent.append(
            AppendMessage(
                time=now,
                message=message,
                turn_id=handle.turn_id,
                queued="turn",
                client_message_id=client_message_id,
            )
        )
        await self._acknowledge(handle)
        return handle

    async def accept_again(self, turn_id: str) -> TurnHandle | None:
        """Takes in an input that `accept` wrote down and could not sync, as `accept` does; None if it is no such."""
        if turn_id not in self._refused:
            return None
        self._refuse_when_stopping()
        self._refused.discard(turn_id)
        self._failed.discard(turn_id)
        handle = TurnHandle(turn_id)
        await self._acknowledge(handle)
        return handle

    async def _acknowledge(self, handle: TurnHandle) -> None:
        """The input of this turn was appended: puts it on disk and lets it run."""
        self._handles[handle.turn_id] = handle
        try:
            await self._agent.sync()
        except Fault:
            # Not acknowledged, so not to be run unless it is sent again; the log may still have it.
            if self._is_waiting(handle.turn_id):
                self._failed.add(handle.turn_id)
                self._refused.add(handle.turn_id)
                self._handles.pop(handle.turn_id, None)
            raise
        except BaseException:
            # Its sender no longer waits, but the log has it: it ends as a turn does that nobody wants.
            self.abandon(handle)
            self.kick()
            raise
        self.kick()

    async def steer(self, content: tuple[Part, ...]) -> None:
        """Leaves an input for the next step of the running turn; on return it is on disk. Raises as `accept` does."""
        self._refuse_when_stopping()
        agent = self._agent
        now = agent.clock.now_ms()
        message = Message(id=ids.new("msg"), role="user", content=content, time=now)
        agent.append(AppendMessage(time=now, message=message, queued="steer"))
        try:
            await agent.sync()
        except BaseException:
            # Not acknowledged: a turn that goes on takes it in, but it starts none.
            self._resting.add(message.id)
            raise
        self.kick()

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Fault("session_closed", "The session is being closed.", hint="call agent.session.resume first")

    def handle(self, turn_id: str) -> TurnHandle | None:
        """The handle of a turn that runs or waits."""
        return self._handles.get(turn_id)

    # -- control

    def cancel(self, turn_id: str | None) -> bool:
        """Cancels the running turn, or the one that is about to run, if it is that one. False when it is another or
        there is none; who has the context for itself is not disturbed."""
        if self.running is not None:
            if turn_id not in (None, self.running.turn_id):
                return False
            self.running.cancel()
            return True
        coming = self._handles.get(self._next() or "") if self._held is None else None
        if coming is None or turn_id not in (None, coming.turn_id):
            return False
        coming.cancelled = True
        return True

    def abandon(self, handle: TurnHandle) -> None:
        """Nobody wants this turn any more: it ends as cancelled, at once or as soon as it would have begun."""
        handle.cancelled = True
        self.cancel(handle.turn_id)

    async def cancel_all(self) -> None:
        """For good: ends the running turn and those that wait as cancelled; returns when all have ended, and whoever
        has the context for itself is done. Steering that was left over stays in the log."""
        self._stopping = True
        for handle in self._handles.values():
            handle.cancelled = True
        if self.running is not None:
            self.running.cancel()
        while self._held is not None:
            await self._released.wait()
        self.kick()
        await self._idle.wait()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    @asynccontextmanager
    async def exclusive(self, refusal: str) -> AsyncIterator[None]:
        """The context belongs to the caller: inputs that arrive meanwhile wait. Raises `turn_active`,
        `session_closed`."""
        self._refuse_when_stopping()
        if self._held is not None or not self.idle:
            raise Fault("turn_active", refusal, hint="wait for turn_ended, or cancel the turn")
        self._held = refusal
        self._released = anyio.Event()
        try:
            yield
        finally:
            self._held = None
            self._released.set()
            self.kick()

    def kick(self) -> None:
        """Starts what waits, unless something runs."""
        if not self._draining and self._held is None and self._next() is not None:
            self._draining = True
            self._idle = anyio.Event()
            self._tasks.spawn(self._drain, "turns")

    # -- running

    def _next(self) -> str | None:
        """The turn to run next: the oldest waiting input, else what steering was left over."""
        state = self._agent.state
        for pending in state.pending:
            if pending.kind == "turn" and pending.turn_id not in self._failed:
                return pending.turn_id
        left_over = not self._stopping and not self._steering() <= self._resting
        return ids.new("turn") if left_over else None

    def _steering(self) -> set[str]:
        """The messages that wait for a step."""
        return {p.entry.message.id for p in self._agent.state.pending if p.kind == "steer"}

    async def _drain(self) -> None:
        try:
            while (turn_id := self._next()) is not None:
                if not await self._run(turn_id):
                    self._resting = self._steering()
                    break
        finally:
            self._draining = False
            self._idle.set()

    async def _run(self, turn_id: str) -> bool:
        """One turn from its begin to its end. False when the log cannot be written: running on makes no sense."""
        turn = Turn(turn_id)
        handle = self._handles.setdefault(turn_id, TurnHandle(turn_id))
        self.running = turn
        if handle.cancelled or self._stopping:
            turn.cancel()
        begun = False
        outcome = Outcome("cancelled")
        try:
            with turn.scope:
                await checkpoint_if_cancelled()  # what comes need not wait for anything
                await self._begin(turn)
                begun = True
                if self._opening is not None:
                    await self._opening(turn)
                outcome = await run_turn(self._agent, turn)
        except ProviderError as error:
            outcome = of_provider_error(error)
        except Fault as fault:
            outcome = of_fault(fault)
        except Exception:
            reference = ids.new("err")
            _log.exception("turn_failed", turn_id=turn_id, reference=reference)
            outcome = internal(reference)
        stored = False
        with anyio.CancelScope(shield=True):
            stored = await self._finish(turn, handle, outcome, begun)
        return stored  # noqa: RET504 - leaving the scope could swallow a return

    async def _begin(self, turn: Turn) -> None:
        agent = self._agent
        state = agent.state
        now = agent.clock.now_ms()
        inputs = self._inputs_of(turn)
        await self._prepare()
        notes = await self._notes.before_turn(agent, [p.entry.message for p in inputs])
        # What failed may have been sent again while this one waited.
        settle, _ = records_to_settle(state, now, "store_write_failed", waiting=self._failed)
        records = [
            *settle,
            *(AppendMessage(time=now, message=n, turn_id=turn.turn_id, queued="turn") for n in notes.messages),
        ]
        queued = tuple(m.id for m in notes.messages) + tuple(p.entry.message.id for p in inputs)
        if not state.title and inputs:
            title = title_of(inputs)
            if title:
                records.append(ConfigUpdate(time=now, title=title))
        agent.append(*records, TurnBegin(time=now, turn_id=turn.turn_id, queued=queued))
        self._failed.clear()
        self._refused.clear()
        content = tuple(part for p in inputs for part in p.entry.message.content)
        agent.emit(TurnStarted(content=content), turn.turn_id)
        if notes.recalled is not None:
            agent.emit(notes.recalled, turn.turn_id if notes.of_turn else None)

    async def _finish(self, turn: Turn, handle: TurnHandle, outcome: Outcome, begun: bool) -> bool:
        agent = self._agent
        stored = True
        try:
            if not begun:
                self._enter_unbegun(turn)
            self._close_open(turn, outcome)
            agent.append(
                TurnEnd(
                    time=agent.clock.now_ms(),
                    turn_id=turn.turn_id,
                    stop_reason=outcome.stop_reason,
                    usage=turn.usage,
                    error=outcome.error,
                )
            )
            await agent.sync()
        except Fault as fault:
            stored = False
            outcome = of_fault(fault)
            if self._is_waiting(turn.turn_id):
                self._failed.add(turn.turn_id)
        result = TurnResult(
            turn_id=turn.turn_id,
            stop_reason=outcome.stop_reason,
            text=agent.state.last_text,
            usage=turn.usage,
            error=outcome.error,
        )
        self.running = None
        agent.emit(
            TurnEnded(
                turn_id=turn.turn_id,
                stop_reason=result.stop_reason,
                text=result.text,
                usage=result.usage,
                error=result.error,
            ),
            turn.turn_id,
        )
        self._handles.pop(turn.turn_id, None)
        handle.finish(result)
        self._on_end()
        return stored

    def _inputs_of(self, turn: Turn) -> list[Pending]:
        """What the turn is about: its own input, or the steering that was left over."""
        pending = self._agent.state.pending
        mine = [p for p in pending if p.kind == "turn" and p.turn_id == turn.turn_id]
        return mine or [p for p in pending if p.kind == "steer"]

    def _is_waiting(self, turn_id: str) -> bool:
        return any(p.kind == "turn" and p.turn_id == turn_id for p in self._agent.state.pending)

    def _enter_unbegun(self, turn: Turn) -> None:
        """A turn that was cancelled before it began still takes its input into the context."""
        agent = self._agent
        inputs = self._inputs_of(turn)
        queued = tuple(p.entry.message.id for p in inputs)
        agent.append(TurnBegin(time=agent.clock.now_ms(), turn_id=turn.turn_id, queued=queued))
        content = tuple(part for p in inputs for part in p.entry.message.content)
        agent.emit(TurnStarted(content=content), turn.turn_id)

    def _close_open(self, turn: Turn, outcome: Outcome) -> None:
        """Keeps what was streamed, answers what was called: the context is whole again."""
        agent = self._agent
        draft, turn.draft = turn.draft, None
        if draft is not None and "".join(draft.text).strip():
            message = draft.message(time=agent.clock.now_ms(), model=agent.model.binding.reference, partial=True)
            agent.append(AppendMessage(time=message.time, message=message, turn_id=turn.turn_id))
        text = calls.CANCELLED if outcome.stop_reason == "cancelled" else calls.ENDED
        calls.refuse_all(agent, turn, open_calls(agent.state.entries), text)


def title_of(inputs: list[Pending]) -> str:
    """A session's title from its first input: its first line, shortened."""
    text = " ".join(p.entry.message.text for p in inputs).strip()
    line = text.split("\n", 1)[0].strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"
