"""Reading sessions, loaded here or not: messages, records, the state of a context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

from protocol.info import ContextInfo
from protocol.messages import Message, ToolSpec
from protocol.resources import AgentReport, Problem, QueryParams, QueryResult, RecordRow, VerifyResult
from protocol.session import MessagesResult
from record_store.backend import MAIN_AGENT, LogReader
from record_store.errors import StoreError
from record_store.fold import State
from record_store.query import Page, Query, search
from record_store.transcript import read_transcript
from record_store.verify import AgentReport as LogReport
from record_store.verify import verify
from sidecar.errors import Fault
from sidecar.sessions.manager import SessionManager
from sidecar.store_errors import store_fault

T = TypeVar("T")


class Reading:
    """Works on any stored session and changes nothing."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    async def state(self, session_id: str, agent_id: str) -> State:
        """The state of an agent, live if it is loaded. Raises `session_not_found`."""
        session = self._manager.roster.loaded(session_id)
        if session is not None:
            agent = session.agent(agent_id)
            if agent is not None:
                return agent.state
        try:
            return await (await self._manager.stored(session_id)).state(agent_id)
        except StoreError as error:
            raise store_fault(error) from error

    async def log(self, session_id: str, agent_id: str) -> LogReader:
        try:
            return await (await self._manager.stored(session_id)).log(agent_id)
        except StoreError as error:
            raise store_fault(error) from error

    async def messages(
        self, session_id: str, agent_id: str, *, view: Literal["context", "full"], cursor: str | None, limit: int
    ) -> MessagesResult:
        """A page of the conversation; `cursor` is where the page before it ended."""
        start = _offset(cursor)
        if view == "context":
            state = await self._steady(session_id, partial(self.state, session_id, agent_id))
            all_of_it: Sequence[Message] = state.messages()
        else:
            all_of_it = await self._steady(session_id, partial(self.transcript, session_id, agent_id))
        page = tuple(all_of_it[start : start + limit])
        more = start + len(page) < len(all_of_it)
        return MessagesResult(messages=page, next_cursor=str(start + len(page)) if more and page else None)

    async def transcript(self, session_id: str, agent_id: str) -> Sequence[Message]:
        session = self._manager.roster.loaded(session_id)
        if session is not None and agent_id == session.main.journal.agent_id:
            return await session.main.conversation.messages()
        try:
            return await read_transcript(await self.log(session_id, agent_id))
        except StoreError as error:
            raise store_fault(error) from error

    async def query(self, p: QueryParams) -> QueryResult:
        """Records of an agent's log. Raises `invalid_params` for a wrong pattern or cursor."""
        wanted = Query(
            from_line=p.from_line,
            to_line=p.to_line,
            types=p.types,
            grep=p.grep,
            regex=p.regex,
            limit=p.limit,
            cursor=p.cursor,
        )

        async def found() -> Page:
            try:
                return await search(await self.log(p.session_id, p.agent_id), wanted)
            except StoreError as error:
                raise store_fault(error) from error

        page = await self._steady(p.session_id, found)
        return QueryResult(
            records=tuple(RecordRow(hit.line, hit.record) for hit in page.records), next_cursor=page.next_cursor
        )

    async def verify(self, session_id: str) -> VerifyResult:
        """What is wrong with a session's logs."""

        async def reports() -> Sequence[LogReport]:
            try:
                return await verify(await self._manager.stored(session_id))
            except StoreError as error:
                raise store_fault(error) from error

        found = await self._steady(session_id, reports)
        agents = tuple(
            AgentReport(r.agent_id, r.lines, tuple(Problem(p.line, p.kind, p.detail) for p in r.problems))
            for r in found
        )
        return VerifyResult(ok=not any(a.problems for a in agents), agents=agents)

    async def tools(self, session_id: str) -> tuple[ToolSpec, ...]:
        """The tools that the model is offered; of a session that is not open here, those of its host."""
        try:
            async with self._manager.using(session_id) as session:
                return await session.tools()
        except Fault as fault:
            if fault.reason != "session_closed":
                raise
        return (await self.state(session_id, MAIN_AGENT)).tools

    async def context(self, session_id: str, agent_id: str) -> ContextInfo:
        """How full an agent's context is. Of a session that is not loaded, as its log says."""
        session = self._manager.roster.loaded(session_id)
        if session is not None and agent_id in session.agents():
            return session.context(agent_id)
        state = await self._steady(session_id, partial(self.state, session_id, agent_id))
        return await self._manager.context_of(state)

    async def _steady(self, session_id: str, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` gives. A session that is being closed or deleted takes its files away from who reads them: then
        once more, when that is over."""
        try:
            return await read()
        except Fault as fault:
            if fault.reason != "store_damaged":
                raise
        async with self._manager.roster.hold(session_id):
            return await read()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise Fault("invalid_params", "cursor is none that this method gave", path="cursor")
    return int(cursor)
