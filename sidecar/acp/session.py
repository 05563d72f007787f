"""One session that an editor has open: events out to it, prompts in, until it is closed.

The daemon's events are forwarded by one task, in order and one at a time; a prompt is answered when the `turn_ended` of
its turn has passed through there, so everything the editor is to see of a turn comes before the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from protocol.events import ChatEvent, TurnEnded, TurnStarted, UsageEvent
from protocol.messages import Part, TurnResult
from sidecar.acp.updates import Projection, session_info, usage
from sidecar.client import EventsLost, EventStream, SidecarClient, SidecarError

REMEMBERED_TURNS = 256
"""Outcomes that are kept for a prompt that asks late; the oldest are forgotten first."""

SEND_S = 30.0
"""How long the daemon may take to have an input on disk."""


class Editor(Protocol):
    async def session_update(self, session_id: str, update: Any) -> None: ...


@dataclass(eq=False, slots=True)
class Prompt:
    """An input of the editor and what became of it."""

    key: str = field(default_factory=lambda: f"acp-{secrets.token_hex(8)}")
    turn_id: str | None = None
    cancelled: bool = False
    ended: anyio.Event = field(default_factory=anyio.Event)
    outcome: TurnEnded | TurnResult | None = None
    unsure: bool = False


class BridgedSession:
    """`projection` is what the editor has been shown of it."""

    def __init__(self, session_id: str, cwd: str, client: SidecarClient, editor: Editor) -> None:
        self.session_id = session_id
        self.projection = Projection(cwd)
        self._events: EventStream | None = None
        self._client = client
        self._editor = editor
        self._prompts: list[Prompt] = []
        self._own: dict[str, Prompt] = {}
        self._late: dict[str, TurnEnded] = {}
        self._doomed: set[str] = set()
        self._title: str | None = None
        # Held while an input is on its way: events wait until it is known whose turn they belong to.
        self._turnstile = anyio.Lock()

    async def show(self, updates: Sequence[Any]) -> None:
        """An editor that has gone is shown nothing; its input ends too, and with it everything here."""
        try:
            for update in updates:
                await self._editor.session_update(self.session_id, update)
        except ConnectionError:
            return

    # ---------------------------------------------------------------- out

    async def forward(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Forwards events, from the time that it is started, until `end` or the daemon's end."""
        with self._client.events(self.session_id) as events:
            self._events = events
            task_status.started()
            more = True
            while more:
                try:
                    async for event in events:
                        async with self._turnstile:
                            await self._forward(event)
                    more = False
                except EventsLost:
                    self._settle_unsure()
        self._settle_unsure()

    def end(self) -> None:
        if self._events is not None:
            self._events.close()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Events wait while something else is shown."""
        async with self._turnstile:
            yield

    async def _forward(self, event: ChatEvent) -> None:
        own = event.turn_id in self._own
        if isinstance(event.event, TurnStarted) and event.turn_id in self._doomed:
            self._doomed.discard(event.turn_id)
            await self._cancel_turn(event.turn_id)
        await self.show(self.projection.project(event, own=own))
        if isinstance(event.event, UsageEvent) and event.event.kind == "step":
            await self.show_usage()
        if isinstance(event.event, TurnEnded) and event.agent_id == "main":
            await self._show_title()
            self._end(event.event)

    async def show_usage(self) -> None:
        try:
            context = await self._client.context.get(self.session_id)
        except SidecarError:
            return
        await self.show([usage(context.used, context.window)])

    async def _show_title(self) -> None:
        try:
            info = await self._client.sessions.get(self.session_id)
        except SidecarError:
            return
        if info.title and info.title != self._title:
            self._title = info.title
            await self.show([session_info(info.title, info.updated_at)])

    def _end(self, ended: TurnEnded) -> None:
        prompt = self._own.pop(ended.turn_id, None)
        if prompt is not None:
            prompt.outcome = ended
            prompt.ended.set()
            return
        self._late[ended.turn_id] = ended
        while len(self._late) > REMEMBERED_TURNS:
            del self._late[next(iter(self._late))]

    def _settle_unsure(self) -> None:
        """Events were missed, maybe the end of a turn: the prompts ask the daemon themselves."""
        for prompt in self._prompts:
            if prompt.outcome is None:
                prompt.unsure = True
                prompt.ended.set()

    # ---------------------------------------------------------------- in

    async def prompt(self, content: Sequence[Part]) -> TurnEnded | TurnResult | None:
        """Gives input and returns how its turn ended; None when it was cancelled before it began."""
        prompt = Prompt()

        async def send() -> str:
            sent = await self._client.chat.send(self.session_id, content, client_message_id=prompt.key)
            return sent.turn_id

        return await self._follow(prompt, send, lambda: self._ask_again(content, prompt.key))

    async def skill(self, name: str, arguments: str) -> TurnEnded | TurnResult | None:
        """Runs a skill as the user; like `prompt`."""

        async def send() -> str:
            return (await self._client.skills.run(self.session_id, name, arguments)).turn_id

        async def lost() -> TurnResult:
            raise SidecarError(-32603, "events_lost", "The end of this turn was missed")

        return await self._follow(Prompt(), send, lost)

    async def _follow(
        self, prompt: Prompt, send: Callable[[], Awaitable[str]], again: Callable[[], Awaitable[TurnResult]]
    ) -> TurnEnded | TurnResult | None:
        self._prompts.append(prompt)
        try:
            async with self._turnstile:
                # Not to be cancelled half-way: a turn whose id nobody learnt could not be ended.
                with anyio.move_on_after(SEND_S, shield=True):
                    prompt.turn_id = await send()
                if prompt.turn_id is None:
                    raise SidecarError(-32090, "overloaded", "The daemon did not take the input in time")
                late = self._late.pop(prompt.turn_id, None)
                if late is not None:
                    return late
                self._own[prompt.turn_id] = prompt
            if prompt.cancelled:
                await self._cancel_prompt(prompt)
            await prompt.ended.wait()
            return await again() if prompt.unsure else prompt.outcome
        except anyio.get_cancelled_exc_class():
            prompt.cancelled = True
            with anyio.move_on_after(2, shield=True):
                await self._cancel_prompt(prompt)
            raise
        finally:
            self._prompts.remove(prompt)

    async def _ask_again(self, content: Sequence[Part], key: str) -> TurnResult:
        """The result of an input that was sent before: the same key is never a second input."""
        return await self._client.chat.run(self.session_id, content, client_message_id=key)

    # ---------------------------------------------------------------- cancel, compaction

    async def cancel(self) -> None:
        """Ends what the editor waits for; with nothing of its own running, whatever runs."""
        if not self._prompts:
            await self._cancel_turn(None)
            return
        for prompt in tuple(self._prompts):
            prompt.cancelled = True
            await self._cancel_prompt(prompt)

    async def _cancel_prompt(self, prompt: Prompt) -> None:
        """A turn that has not begun, because another one runs, is cancelled when it does."""
        if prompt.turn_id is None:
            return
        if not await self._cancel_turn(prompt.turn_id) and prompt.outcome is None and prompt.turn_id in self._own:
            self._doomed.add(prompt.turn_id)
            prompt.ended.set()

    async def _cancel_turn(self, turn_id: str | None) -> bool:
        try:
            return await self._client.chat.cancel(self.session_id, turn_id)
        except SidecarError:
            return False

    async def compact(self, instruction: str) -> str:
        """Compacts and says in one sentence what came of it. While a turn runs, at its next step."""
        try:
            result = await self._client.chat.compact(self.session_id, instruction or None)
        except SidecarError as error:
            if error.reason == "turn_active":
                result = await self._client.chat.compact(self.session_id, instruction or None, when="next_step")
            elif error.reason == "compaction_failed" and error.data.get("cause") != "cancelled":
                return f"The conversation was not compacted: {error.data.get('cause') or error.message}."
            else:
                raise
        match result.outcome:
            case "landed":
                return f"Compacted: {result.tokens_before or 0:,} → {result.tokens_after or 0:,} tokens."
            case "queued":
                return "The conversation will be compacted at the next step."
        return "There is nothing to compact."
