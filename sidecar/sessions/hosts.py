"""Requests to a session's hosts: who is asked, what happens when a host goes, comes back, or never answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from protocol.chat import ToolCancelParams
from protocol.messages import ToolSpec
from protocol.system import RequestResolvedParams
from sidecar.groups import task_group
from sidecar.sessions.events import EventHub
from sidecar.sessions.ports import Client, ClientGone, ClientRefused, RequestIds

Unanswered = Literal["timeout", "no_host", "cancelled"]


@dataclass(frozen=True, slots=True)
class Answer:
    """`value` is the client's result, or None with `failure` (`refused` when it answered an error)."""

    value: Any = None
    failure: Unanswered | Literal["refused"] | None = None


@dataclass(slots=True)
class _Open:
    """A request that waits for its answer. `asked` are the clients that have it; `declined` are
    those that answered with an error while others still had it."""

    request_id: str
    method: str
    params: Any
    may_answer: Callable[[Client], bool]
    send: Callable[[Client], None] | None = None
    asked: dict[str, Client] = field(default_factory=dict)
    declined: set[str] = field(default_factory=set)
    answer: Answer | None = None
    answered_by: str | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Hosts:
    """The clients attached to one session, and what they were asked."""

    def __init__(self, hub: EventHub, request_ids: RequestIds) -> None:
        self._hub = hub
        self._new_id = request_ids
        self._open: dict[str, _Open] = {}
        self._owners: dict[str, str] = {}
        self._here: dict[str, Client] = {}
        self.ever_approves = False
        self.ever_answers = False

    # -- clients

    def attached(self, client: Client) -> None:
        """A client was attached: it gets the requests that are still open and that it can answer."""
        self.ever_approves |= client.can_approve
        self.ever_answers |= client.can_answer
        self._arrived(client)
        for request in self._open.values():
            request.declined.discard(client.id)
        self._send_open()

    def _arrived(self, client: Client) -> None:
        # One that hung up during its own call was told of by `gone` already.
        if not client.closed:
            self._here[client.id] = client

    def _send_open(self) -> None:
        """Sends what is open to those that can answer it now and do not have it yet."""
        for request in tuple(self._open.values()):
            for client in self._candidates(request.method, request.may_answer):
                if request.method == "tool.call" and request.asked:
                    break  # one is running it; it must not be run twice
                if request.send is not None and client.id not in (request.asked.keys() | request.declined):
                    request.send(client)

    def gone(self, client_id: str) -> None:
        self._here.pop(client_id, None)
        for request in self._open.values():
            request.asked.pop(client_id, None)
            request.wake()
        self._send_open()

    # -- tools

    def bring(self, client: Client, tools: Iterable[ToolSpec], known: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """The session's host tools after `client` brought `tools`: those of other clients that are here (one that
        resumes is so before it is attached) stay, except where the names are the same; all others of `known` go."""
        mine = {t.name: t for t in tools}
        self._arrived(client)
        kept = [t for t in known if t.name not in mine and self._is_of_another(t.name, client)]
        self._owners = {t.name: self._owners[t.name] for t in kept} | dict.fromkeys(mine, client.id)
        self._send_open()  # calls that wait for a host which went can be answered by this one now
        return tuple(sorted([*kept, *mine.values()], key=lambda t: t.name))

    def _is_of_another(self, name: str, client: Client) -> bool:
        owner = self._here.get(self._owners.get(name, ""))
        return owner is not None and owner.id != client.id and not owner.closed

    def brought_by(self, client_id: str, tools: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Those of `tools` that this client runs."""
        return tuple(t for t in tools if self._owners.get(t.name) == client_id)

    async def call_tool(self, params: Any, *, name: str, timeout_s: float, wait_s: float) -> Answer:
        """Asks the client that brought the tool, attached or not; waits `wait_s` for it while it is away."""
        return await self._ask(
            "tool.call",
            params,
            lambda c: self._owners.get(name) == c.id,
            timeout_s=timeout_s,
            away_s=wait_s,
            on_cancel=ToolCancelParams(session_id=params.session_id, tool_call_id=params.tool_call_id),
        )

    async def ask_approval(self, params: Any, *, wait_s: float) -> Answer:
        """Asks all that can answer, the first answer counts. Nobody ever could: no answer, at once."""
        if not self.ever_approves:
            return Answer(failure="no_host")
        return await self._ask("approval.request", params, lambda c: c.can_approve, timeout_s=None, away_s=wait_s)

    async def ask_question(self, params: Any, *, wait_s: float) -> Answer:
        if not self.ever_answers:
            return Answer(failure="no_host")
        return await self._ask("question.ask", params, lambda c: c.can_answer, timeout_s=None, away_s=wait_s)

    async def borrow(
        self, method: str, params: Any, lends: Callable[[Client], bool], *, timeout_s: float
    ) -> Answer | None:
        """Asks the first client that lends what is needed; None when none is here."""
        lender = next(self._candidates(method, lends), None)
        if lender is None:
            return None
        return await self._ask(method, params, lambda c: c.id == lender.id, timeout_s=timeout_s, away_s=0)

    # -- the mechanism

    async def _ask(
        self,
        method: str,
        params: Any,
        may_answer: Callable[[Client], bool],
        *,
        timeout_s: float | None,
        away_s: float,
        on_cancel: Any = None,
    ) -> Answer:
        request = _Open(self._new_id(), method, params, may_answer)
        self._open[request.request_id] = request
        reason = "cancelled"
        answer: Answer | None = None
        try:
            with anyio.move_on_after(timeout_s):
                async with task_group() as group:
                    request.send = lambda client: self._send(group, request, client)
                    for client in self._candidates(method, may_answer):
                        request.send(client)
                    answer = await self._first(request, away_s)
                    request.send = None
                    group.cancel_scope.cancel()
            reason = "timeout" if answer is None or answer.failure == "no_host" else "answered"
            return answer or Answer(failure="timeout")
        finally:
            del self._open[request.request_id]
            self._resolved(request, reason, on_cancel)

    def _candidates(self, method: str, may_answer: Callable[[Client], bool]) -> Iterator[Client]:
        """Those that are attached; a tool may have been brought by one that is not."""
        present = self._here if method == "tool.call" else self._hub.clients
        return (c for c in tuple(present.values()) if not c.closed and may_answer(c))

    def _send(self, group: Any, request: _Open, client: Client) -> None:
        request.asked[client.id] = client
        group.start_soon(self._deliver, request, client)
        request.wake()

    async def _deliver(self, request: _Open, client: Client) -> None:
        try:
            answer = Answer(await client.request(request.method, request.params, request.request_id))
        except ClientGone:
            request.asked.pop(client.id, None)
            request.wake()
            return
        except ClientRefused:
            answer = Answer(failure="refused")
            if request.method != "tool.call" and len(request.asked) > 1:
                # One that cannot answer after all does not speak for the others.
                request.asked.pop(client.id, None)
                request.declined.add(client.id)
                request.wake()
                return
        if request.answer is None:
            request.answer = answer
            request.answered_by = client.id
            request.wake()

    async def _first(self, request: _Open, away_s: float) -> Answer:
        """The first answer; gives up when nobody who could answer was there for `away_s`."""
        while request.answer is None:
            changed = request.changed
            if request.asked:
                await changed.wait()
                continue
            with anyio.move_on_after(away_s) as waiting:
                await changed.wait()
            if waiting.cancelled_caught and not request.asked and request.answer is None:
                return Answer(failure="no_host")
        return request.answer

    def _resolved(self, request: _Open, reason: str, on_cancel: Any) -> None:
        told = RequestResolvedParams(request_id=request.request_id, reason=reason)
        for client in request.asked.values():
            if client.id == request.answered_by or client.closed:
                continue
            if on_cancel is not None:
                client.notify("tool.cancel", on_cancel)
            client.notify("request.resolved", told)
