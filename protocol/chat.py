"""`agent.chat.*`: turns. Pure data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from protocol.common import AgentParams, Content, Params, Result, SessionParams
from protocol.info import SessionInfo
from protocol.messages import OriginKind, Part, Role, ToolCall

ClientMessageId = Annotated[str, Meta(min_length=1, max_length=256)]


class HostOrigin(Struct, frozen=True):
    kind: OriginKind = "user"
    trigger: str | None = None
    variant: str | None = None


class HostMessage(Struct, frozen=True):
    """A message of a transcript that the host keeps; ids and times are the host's and only looked at as hints."""

    role: Role
    content: str | tuple[Part, ...]
    id: str | None = None
    time: int | float | None = None
    origin: HostOrigin | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    reasoning: Any = None


class SendParams(SessionParams, frozen=True):
    """`history` is the host's full transcript without `content`. `client_message_id` makes sending again harmless."""

    content: Content
    wait: bool = False
    history: tuple[HostMessage, ...] | None = None
    client_message_id: ClientMessageId | None = None


class SendResult(Result, frozen=True):
    """With `wait` a `TurnResult` instead."""

    turn_id: str


class SteerParams(SessionParams, frozen=True):
    content: Content


class SteerResult(Result, frozen=True):
    """`turn_id` is there when the input started a turn."""

    accepted: bool
    turn_id: str | None = None


class CancelParams(SessionParams, frozen=True):
    turn_id: str | None = None


class CancelResult(Result, frozen=True):
    cancelled: bool


class CompactParams(AgentParams, frozen=True):
    """`instruction` is added to the summary request. `now` needs an idle agent."""

    instruction: Annotated[str, Meta(max_length=100_000)] | None = None
    when: Literal["now", "next_step"] = "now"


class CompactResult(Result, frozen=True):
    outcome: Literal["landed", "nothing_to_compact", "queued"]
    compaction_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class UncompactParams(SessionParams, frozen=True):
    compaction_id: str | None = None


class UncompactResult(Result, frozen=True):
    session: SessionInfo
    tokens: int


class UndoParams(SessionParams, frozen=True):
    turns: Annotated[int, Meta(ge=1)] = 1


class UndoResult(Result, frozen=True):
    removed_turns: int
    session: SessionInfo


class ToolCallParams(Params, frozen=True):
    """The daemon asks the host to run one of its tools. `arguments` is the parsed object."""

    session_id: str
    agent_id: str
    turn_id: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any]


class ToolCallResult(Result, frozen=True):
    content: Content
    is_error: bool = False


class ToolCancelParams(Params, frozen=True):
    session_id: str
    tool_call_id: str


class ApprovalParams(Params, frozen=True):
    """May this call run? `preview` is text for a person, e.g. a diff or the command."""

    session_id: str
    agent_id: str
    turn_id: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    options: tuple[Literal["allow_once", "allow_session", "reject"], ...]
    preview: str | None = None


class ApprovalResult(Result, frozen=True):
    outcome: Literal["allow_once", "allow_session", "reject"]
    reason: str | None = None


class QuestionParams(Params, frozen=True):
    session_id: str
    turn_id: str
    question: str
    options: tuple[str, ...] | None = None


class QuestionResult(Result, frozen=True):
    answer: str
