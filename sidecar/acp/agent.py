"""The agent that editors speak to: each method checks, asks the daemon, and translates."""

from __future__ import annotations

import functools
import logging
import os.path
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.schema import (
    AgentCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    Usage,
)

from protocol.events import TurnEnded
from protocol.messages import JsonObject, Message, TurnResult
from protocol.skills import SkillInfo
from protocol.version import VERSION
from sidecar.acp import commands, content, errors, modes, servers
from sidecar.acp.bridge import Bridge
from sidecar.acp.replay import replay
from sidecar.acp.session import BridgedSession
from sidecar.acp.transport import EditorTransport
from sidecar.acp.updates import iso, said
from sidecar.client import SidecarClient, SidecarError

log = logging.getLogger("sidecar.acp")

STOP_REASONS = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_steps": "max_turn_requests",
    "refused": "refusal",
    "cancelled": "cancelled",
}
PAGE = 500

T = TypeVar("T")


def answered(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """A request of the editor: it can be cancelled, and fails only with what may be told."""

    @functools.wraps(method)
    async def wrapper(self: SidecarAgent, *args: Any, **kwargs: Any) -> T:
        with self.transport.work():
            try:
                return await method(self, *args, **kwargs)
            except RequestError:
                raise
            except SidecarError as error:
                raise errors.refusal(error) from None
            except Exception:
                reference = f"acp-{secrets.token_hex(6)}"
                log.exception("a request of the editor failed (%s)", reference)
                raise errors.internal(reference) from None
        raise errors.cancelled()

    return wrapper


@dataclass(frozen=True, slots=True)
class Defaults:
    """What new sessions get beside what the editor says."""

    model: str | None = None
    builtin: str = "all"


class SidecarAgent:
    """The package calls these methods with the fields of each request as keywords."""

    def __init__(self, transport: EditorTransport, bridge: Bridge, defaults: Defaults) -> None:
        self.transport = transport
        self._bridge = bridge
        self._defaults = defaults

    def on_connect(self, connection: Any) -> None:
        self._bridge.editor = connection

    # ---------------------------------------------------------------- the connection

    @answered
    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **_: Any
    ) -> Any:
        await self._bridge.client(client_info, client_capabilities)
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=Implementation(name="sidecar", title="Sidecar", version=VERSION),
        )

    @answered
    async def authenticate(self, method_id: str, **_: Any) -> Any:
        raise errors.invalid("There is nothing to authenticate: keys are set where the agent runs")

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "session/delete":
            await self._delete(**params)
            return {}
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None

    # ---------------------------------------------------------------- sessions

    @answered
    async def new_session(
        self, cwd: str, mcp_servers: Any = None, additional_directories: list[str] | None = None, **_: Any
    ) -> Any:
        client = await self._bridge.client()
        made = await client.sessions.create(
            cwd=_absolute(cwd),
            model=self._defaults.model,
            config=self._config(mcp_servers, additional_directories, new=True),
        )
        session = await self._open(made.session_id, made.cwd, client)
        return NewSessionResponse(session_id=made.session_id, modes=await self._modes(session))

    @answered
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> Any:
        session = await self._resume(cwd, session_id, mcp_servers, additional_directories, replayed=True)
        return LoadSessionResponse(modes=await self._modes(session))

    @answered
    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> Any:
        session = await self._resume(cwd, session_id, mcp_servers, additional_directories, replayed=False)
        return ResumeSessionResponse(modes=await self._modes(session))

    @answered
    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> Any:
        client = await self._bridge.client()
        made = await client.sessions.fork(session_id)
        config = self._config(mcp_servers, additional_directories)
        if config:
            await client.sessions.configure(made.session_id, config=config)
        session = await self._open(made.session_id, made.cwd, client)
        return ForkSessionResponse(session_id=made.session_id, modes=await self._modes(session))

    @answered
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Any:
        client = await self._bridge.client()
        page = await client.sessions.list(cwd=cwd, cursor=cursor)
        found = [
            SessionInfo(session_id=s.session_id, cwd=s.cwd, title=s.title or None, updated_at=iso(s.updated_at))
            for s in page.sessions
        ]
        return ListSessionsResponse(sessions=found, next_cursor=page.next_cursor)

    @answered
    async def close_session(self, session_id: str, **_: Any) -> Any:
        session = self._session(session_id)
        client = await self._bridge.client()
        await client.sessions.close(session_id)
        self._bridge.release(session)
        return CloseSessionResponse()

    @answered
    async def _delete(self, sessionId: Any = None, **_: Any) -> None:
        if not isinstance(sessionId, str):
            raise errors.invalid("sessionId is missing", path="sessionId")
        client = await self._bridge.client()
        await client.sessions.delete(sessionId)
        session = self._bridge.sessions.get(sessionId)
        if session is not None:
            self._bridge.release(session)

    @answered
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
        self._session(session_id)
        if mode_id not in modes.MODES:
            raise errors.invalid(
                f"There is no mode {mode_id!r}", modeId=mode_id, hint=f"one of {', '.join(modes.MODES)}"
            )
        client = await self._bridge.client()
        await client.sessions.configure(session_id, config={"approval": {"mode": mode_id}})
        return SetSessionModeResponse()

    # ---------------------------------------------------------------- turns

    @answered
    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        session = self._session(session_id)
        try:
            parts = content.parts_of(prompt)
        except content.UnsupportedContent as unsupported:
            raise errors.invalid(f"{unsupported.kind} is not supported", path=f"prompt.{unsupported.index}") from None
        if not parts:
            raise errors.invalid("The prompt is empty", path="prompt")
        command = commands.parse(parts)
        if command is not None and command.name == commands.COMPACT:
            return await self._compact(session, command.arguments)
        if command is not None and any(s.name == command.name for s in await self._skills(session)):
            return _prompt_response(await session.skill(command.name, command.arguments))
        return _prompt_response(await session.prompt(parts))

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self._bridge.sessions.get(session_id)
        if session is not None:
            await session.cancel()

    async def _compact(self, session: BridgedSession, instruction: str) -> Any:
        try:
            await session.show([said(await session.compact(instruction))])
        except SidecarError as error:
            if error.data.get("cause") != "cancelled":
                raise
            return PromptResponse(stop_reason="cancelled")
        await session.show_usage()
        return PromptResponse(stop_reason="end_turn")

    # ---------------------------------------------------------------- inside

    def _session(self, session_id: str) -> BridgedSession:
        session = self._bridge.sessions.get(session_id)
        if session is None:
            raise errors.no_session(session_id)
        return session

    def _config(self, mcp_servers: Any, directories: Sequence[str] | None, *, new: bool = False) -> JsonObject:
        config: JsonObject = servers.configuration(mcp_servers)
        tools: JsonObject = {"builtin": self._defaults.builtin} if new else {}
        if directories:
            tools["roots"] = [_absolute(d) for d in directories]
        return {**config, **({"tools": tools} if tools else {})}

    async def _open(self, session_id: str, cwd: str, client: SidecarClient) -> BridgedSession:
        session = BridgedSession(session_id, cwd, client, self._bridge.editor)
        await self._bridge.open(session)
        self.transport.after(functools.partial(self._offer, session))
        return session

    async def _resume(
        self, cwd: str, session_id: str, mcp_servers: Any, directories: Sequence[str] | None, *, replayed: bool
    ) -> BridgedSession:
        client = await self._bridge.client()
        session = BridgedSession(session_id, _absolute(cwd), client, self._bridge.editor)
        config = self._config(mcp_servers, directories)
        # What happens meanwhile is forwarded after what was there before.
        async with session.held():
            await self._bridge.open(session)
            try:
                opened = await client.sessions.resume(session_id, config=config or None)
                session.projection.cwd = opened.session.cwd
                if replayed:
                    await self._replay(session, client)
            except BaseException:
                self._bridge.release(session)
                raise
        self.transport.after(functools.partial(self._offer, session))
        return session

    async def _replay(self, session: BridgedSession, client: SidecarClient) -> None:
        messages: list[Message] = []
        cursor: str | None = None
        while True:
            page = await client.sessions.messages(session.session_id, "full", limit=PAGE, cursor=cursor)
            messages += page.messages
            cursor = page.next_cursor
            if cursor is None:
                break
        for message in messages:
            session.projection.replayed(message)
        await session.show(list(replay(messages, session.projection.cwd)))

    async def _offer(self, session: BridgedSession) -> None:
        """After the answer that made the session known: its commands, and how full it is."""
        try:
            await session.show([commands.offered(await self._skills(session))])
            await session.show_usage()
        except SidecarError as error:
            log.warning("commands cannot be offered (%s)", error.reason)

    async def _skills(self, session: BridgedSession) -> tuple[SkillInfo, ...]:
        client = await self._bridge.client()
        try:
            return (await client.skills.list(session.session_id)).skills
        except SidecarError as error:
            log.warning("skills cannot be listed (%s)", error.reason)
            return ()

    async def _modes(self, session: BridgedSession) -> Any:
        client = await self._bridge.client()
        found = await client.config.get("approval.mode", session_id=session.session_id)
        return modes.state(str(found.value))


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        raise errors.invalid(f"{path!r} is not an absolute path", path="cwd")
    return path


def _prompt_response(ended: TurnEnded | TurnResult | None) -> Any:
    if ended is None:
        return PromptResponse(stop_reason="cancelled")
    if ended.stop_reason == "error":
        if ended.error is None:
            raise errors.internal("unknown")
        raise errors.failed_turn(ended.error)
    counted = ended.usage
    return PromptResponse(
        stop_reason=STOP_REASONS[ended.stop_reason],
        usage=Usage(
            total_tokens=counted.prompt_tokens + counted.completion_tokens,
            input_tokens=counted.prompt_tokens,
            output_tokens=counted.completion_tokens,
            cached_read_tokens=counted.cached_tokens,
        ),
    )
