"""`agent.session.*`: conversations and their settings. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from protocol.common import AgentParams, Cursor, Id, Limit, Params, Result, SessionParams
from protocol.info import Recovered, SessionInfo
from protocol.messages import JsonObject, Message, ToolSpec

Title = Annotated[str, Meta(max_length=1000)]


class CreateParams(Params, frozen=True):
    """`cwd` is absolute (default: the daemon's own); `config` are settings by section."""

    cwd: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    config: JsonObject | None = None
    session_id: Id | None = None
    title: Title | None = None


class SessionResult(Result, frozen=True):
    session: SessionInfo


class ResumeParams(SessionParams, frozen=True):
    """`tools` are the host's, brought again; `after_event` is the last event that it saw."""

    model: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    config: JsonObject | None = None
    after_event: str | None = None


class ResumeResult(Result, frozen=True):
    """`resync_required`: events were missed; read `agent.session.messages`."""

    session: SessionInfo
    recovered: tuple[Recovered, ...]
    events_replayed: int
    resync_required: bool


class ListParams(Params, frozen=True):
    cwd: str | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class ListResult(Result, frozen=True):
    """Newest first."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None


class ConfigureParams(SessionParams, frozen=True):
    """What is absent stays. `config` is merged into the session's."""

    model: str | None = None
    config: JsonObject | None = None
    tools: tuple[ToolSpec, ...] | None = None
    title: Title | None = None


class MessagesParams(AgentParams, frozen=True, kw_only=True):
    """`context` is what the model sees; `full` the whole conversation, what compactions shadowed included."""

    view: Literal["context", "full"]
    cursor: Cursor | None = None
    limit: Limit = 1000


class MessagesResult(Result, frozen=True):
    messages: tuple[Message, ...]
    next_cursor: str | None = None


class ForkParams(SessionParams, frozen=True):
    """`at_turn` is the last turn that the fork has; without it, all."""

    at_turn: str | None = None


class AttachParams(SessionParams, frozen=True):
    """The events after `after_event` are sent before the reply; without it, none."""

    after_event: str | None = None


class AttachResult(Result, frozen=True):
    session: SessionInfo
    events_replayed: int
    resync_required: bool
