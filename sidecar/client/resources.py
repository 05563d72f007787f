"""The daemon's methods, typed, one class per resource: each sends its params and returns its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike, fspath
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from protocol import chat, common, info, memory, resources, session, skills, system
from protocol.messages import Part, ToolSpec, TurnResult
from sidecar.client.host import HostTool, specs

T = TypeVar("T")
Tools = Iterable[HostTool | ToolSpec]
Text = str | Sequence[Part]
Folder = str | PathLike[str]


class Caller(Protocol):
    """What the resources need of the client."""

    async def call(self, method: str, params: Struct | Mapping[str, Any] | None = None, result: Any = Any) -> Any: ...

    def attached(self, session_id: str, tools: Tools | None) -> None:
        """This client gets the session's events from now on; with `tools`, it also runs them."""
        ...

    def attaching(self, session_id: str, tools: Tools | None) -> AbstractContextManager[None]:
        """`attached` around a call that can fail: then everything is as it was before."""
        ...

    def brought(self, session_id: str) -> list[HostTool | ToolSpec] | None:
        """The tools that this client brought to a session."""
        ...

    def detached(self, session_id: str) -> None: ...


class _Resource:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def _call(self, method: str, params: Struct | None, result: type[T]) -> T:
        answer: T = await self._caller.call(method, params, result)
        return answer


class System(_Resource):
    async def ping(self) -> system.PingResult:
        return await self._call("system.ping", None, system.PingResult)

    async def shutdown(self, mode: Literal["graceful", "now"] = "graceful") -> None:
        await self._call("system.shutdown", system.ShutdownParams(mode=mode), common.Empty)


class Sessions(_Resource):
    async def create(
        self,
        *,
        cwd: Folder | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        tools: Tools | None = None,
        config: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        title: str | None = None,
    ) -> info.SessionInfo:
        kept = None if tools is None else list(tools)
        params = session.CreateParams(
            cwd=_folder(cwd),
            model=model,
            system_prompt=system_prompt,
            tools=specs(kept),
            config=None if config is None else dict(config),
            session_id=session_id,
            title=title,
        )
        made = await self._call("agent.session.create", params, session.SessionResult)
        self._caller.attached(made.session.session_id, kept)
        return made.session

    async def resume(
        self,
        session_id: str,
        *,
        model: str | None = None,
        tools: Tools | None = None,
        config: Mapping[str, Any] | None = None,
        after_event: str | None = None,
    ) -> session.ResumeResult:
        kept = None if tools is None else list(tools)
        params = session.ResumeParams(
            session_id=session_id,
            model=model,
            tools=specs(kept),
            config=None if config is None else dict(config),
            after_event=after_event,
        )
        # Open calls of the session's tools come again before the answer does.
        with self._caller.attaching(session_id, kept):
            return await self._call("agent.session.resume", params, session.ResumeResult)

    async def attach(self, session_id: str, after_event: str | None = None) -> session.AttachResult:
        params = session.AttachParams(session_id=session_id, after_event=after_event)
        with self._caller.attaching(session_id, None):
            return await self._call("agent.session.attach", params, session.AttachResult)

    async def detach(self, session_id: str) -> None:
        self._caller.detached(session_id)
        await self._call("agent.session.detach", common.SessionParams(session_id=session_id), common.Empty)

    async def get(self, session_id: str) -> info.SessionInfo:
        params = common.SessionParams(session_id=session_id)
        return (await self._call("agent.session.get", params, session.SessionResult)).session

    async def list(
        self, *, cwd: Folder | None = None, limit: int = 100, cursor: str | None = None
    ) -> session.ListResult:
        params = session.ListParams(cwd=_folder(cwd), limit=limit, cursor=cursor)
        return await self._call("agent.session.list", params, session.ListResult)

    async def configure(
        self,
        session_id: str,
        *,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
        title: str | None = None,
    ) -> info.SessionInfo:
        kept = None if tools is None else [*tools]
        params = session.ConfigureParams(
            session_id=session_id,
            model=model,
            config=None if config is None else dict(config),
            tools=specs(kept),
            title=title,
        )
        changed = await self._call("agent.session.configure", params, session.SessionResult)
        if kept is not None:
            self._caller.attached(session_id, kept)
        return changed.session

    async def messages(
        self,
        session_id: str,
        view: Literal["context", "full"] = "context",
        *,
        agent_id: str = "main",
        limit: int = 1000,
        cursor: str | None = None,
    ) -> session.MessagesResult:
        params = session.MessagesParams(session_id=session_id, agent_id=agent_id, view=view, limit=limit, cursor=cursor)
        return await self._call("agent.session.messages", params, session.MessagesResult)

    async def fork(self, session_id: str, at_turn: str | None = None) -> info.SessionInfo:
        """The tools that this client brought to the session serve the fork too."""
        tools = self._caller.brought(session_id)
        params = session.ForkParams(session_id=session_id, at_turn=at_turn)
        made = await self._call("agent.session.fork", params, session.SessionResult)
        self._caller.attached(made.session.session_id, tools)
        return made.session

    async def close(self, session_id: str) -> None:
        await self._call("agent.session.close", common.SessionParams(session_id=session_id), common.Empty)
        self._caller.detached(session_id)

    async def delete(self, session_id: str) -> None:
        await self._call("agent.session.delete", common.SessionParams(session_id=session_id), common.Empty)
        self._caller.detached(session_id)


class Chat(_Resource):
    async def send(
        self,
        session_id: str,
        content: Text,
        *,
        client_message_id: str | None = None,
        history: Sequence[chat.HostMessage] | None = None,
    ) -> chat.SendResult:
        """Returns once the input is on disk; the turn's end is an event."""
        params = _send(session_id, content, False, client_message_id, history)
        return await self._call("agent.chat.send", params, chat.SendResult)

    async def run(
        self,
        session_id: str,
        content: Text,
        *,
        client_message_id: str | None = None,
        history: Sequence[chat.HostMessage] | None = None,
    ) -> TurnResult:
        """Returns when the turn ends. Cancelling this cancels the turn."""
        params = _send(session_id, content, True, client_message_id, history)
        return await self._call("agent.chat.send", params, TurnResult)

    async def steer(self, session_id: str, content: Text) -> chat.SteerResult:
        params = chat.SteerParams(session_id=session_id, content=_content(content))
        return await self._call("agent.chat.steer", params, chat.SteerResult)

    async def cancel(self, session_id: str, turn_id: str | None = None) -> bool:
        params = chat.CancelParams(session_id=session_id, turn_id=turn_id)
        return (await self._call("agent.chat.cancel", params, chat.CancelResult)).cancelled

    async def compact(
        self,
        session_id: str,
        instruction: str | None = None,
        *,
        agent_id: str = "main",
        when: Literal["now", "next_step"] = "now",
    ) -> chat.CompactResult:
        params = chat.CompactParams(session_id=session_id, agent_id=agent_id, instruction=instruction, when=when)
        return await self._call("agent.chat.compact", params, chat.CompactResult)

    async def uncompact(self, session_id: str, compaction_id: str | None = None) -> chat.UncompactResult:
        params = chat.UncompactParams(session_id=session_id, compaction_id=compaction_id)
        return await self._call("agent.chat.uncompact", params, chat.UncompactResult)

    async def undo(self, session_id: str, turns: int = 1) -> chat.UndoResult:
        params = chat.UndoParams(session_id=session_id, turns=turns)
        return await self._call("agent.chat.undo", params, chat.UndoResult)

    async def clear(self, session_id: str) -> info.SessionInfo:
        params = common.SessionParams(session_id=session_id)
        return (await self._call("agent.chat.clear", params, session.SessionResult)).session


def _folder(path: Folder | None) -> str | None:
    return None if path is None else fspath(path)


def _content(content: Text) -> common.Content:
    return content if isinstance(content, str) else tuple(content)


def _send(
    session_id: str,
    content: Text,
    wait: bool,
    client_message_id: str | None,
    history: Sequence[chat.HostMessage] | None,
) -> chat.SendParams:
    return chat.SendParams(
        session_id=session_id,
        content=_content(content),
        wait=wait,
        history=None if history is None else tuple(history),
        client_message_id=client_message_id,
    )


class Context(_Resource):
    async def get(self, session_id: str, agent_id: str = "main") -> info.ContextInfo:
        params = common.AgentParams(session_id=session_id, agent_id=agent_id)
        return await self._call("agent.context.get", params, info.ContextInfo)


class SessionTools(_Resource):
    async def list(self, session_id: str) -> tuple[ToolSpec, ...]:
        params = common.SessionParams(session_id=session_id)
        return (await self._call("tool.list", params, resources.ToolListResult)).tools


class Models(_Resource):
    async def list(self) -> tuple[resources.ModelEntry, ...]:
        return (await self._call("model.list", None, resources.ModelListResult)).models


class Memory(_Resource):
    """Facts. Each method names its project by `session_id` or by `cwd`."""

    async def list(
        self,
        *,
        session_id: str | None = None,
        cwd: Folder | None = None,
        type: memory.FactType | None = None,
        scope: memory.FactScope | None = None,
    ) -> memory.ListResult:
        params = memory.ListParams(session_id=session_id, cwd=_folder(cwd), type=type, scope=scope)
        return await self._call("memory.list", params, memory.ListResult)

    async def get(self, id: str, *, session_id: str | None = None, cwd: Folder | None = None) -> memory.Fact:
        params = memory.GetParams(id=id, session_id=session_id, cwd=_folder(cwd))
        return (await self._call("memory.get", params, memory.FactResult)).fact

    async def save(
        self,
        fact: memory.FactInput,
        *,
        session_id: str | None = None,
        cwd: Folder | None = None,
        id: str | None = None,
        expected_revision: int | None = None,
    ) -> memory.Fact:
        """A new fact without `id`; an update needs `expected_revision` too."""
        params = memory.SaveParams(
            fact=fact, session_id=session_id, cwd=_folder(cwd), id=id, expected_revision=expected_revision
        )
        return (await self._call("memory.save", params, memory.FactResult)).fact

    async def forget(
        self, id: str, *, session_id: str | None = None, cwd: Folder | None = None, expected_revision: int | None = None
    ) -> None:
        params = memory.ForgetParams(
            id=id, session_id=session_id, cwd=_folder(cwd), expected_revision=expected_revision
        )
        await self._call("memory.forget", params, memory.ForgetResult)

    async def recall(
        self, query: str, *, session_id: str | None = None, cwd: Folder | None = None, limit: int | None = None
    ) -> memory.RecallResult:
        params = memory.RecallParams(query=query, session_id=session_id, cwd=_folder(cwd), limit=limit)
        return await self._call("memory.recall", params, memory.RecallResult)


class Skills(_Resource):
    async def list(self, session_id: str) -> skills.SkillListResult:
        return await self._call("skill.list", common.SessionParams(session_id=session_id), skills.SkillListResult)

    async def run(self, session_id: str, name: str, arguments: str = "") -> skills.SkillRunResult:
        params = skills.SkillRunParams(session_id=session_id, name=name, arguments=arguments)
        return await self._call("skill.run", params, skills.SkillRunResult)


class Records(_Resource):
    async def query(
        self,
        session_id: str,
        *,
        agent_id: str = "main",
        from_line: int | None = None,
        to_line: int | None = None,
        types: Sequence[str] | None = None,
        grep: str | None = None,
        regex: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> resources.QueryResult:
        params = resources.QueryParams(
            session_id=session_id,
            agent_id=agent_id,
            from_line=from_line,
            to_line=to_line,
            types=None if types is None else tuple(types),
            grep=grep,
            regex=regex,
            limit=limit,
            cursor=cursor,
        )
        return await self._call("record.query", params, resources.QueryResult)

    async def verify(self, session_id: str) -> resources.VerifyResult:
        params = common.SessionParams(session_id=session_id)
        return await self._call("record.verify", params, resources.VerifyResult)


class Config(_Resource):
    async def get(self, key: str | None = None, *, session_id: str | None = None) -> resources.ConfigResult:
        params = resources.ConfigGetParams(session_id=session_id, key=key)
        return await self._call("config.get", params, resources.ConfigResult)

    async def set(self, values: Mapping[str, Any], *, session_id: str | None = None) -> resources.ConfigResult:
        params = resources.ConfigSetParams(values=dict(values), session_id=session_id)
        return await self._call("config.set", params, resources.ConfigResult)
