"""Events of a session to updates of the editor. Pure: keeps what was shown, sends nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    PlanEntry,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from protocol.events import (
    ChatEvent,
    CompactionDiscarded,
    CompactionFailed,
    CompactionLanded,
    CompactionStarted,
    MessageEvent,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    TodoItem,
    TodoUpdated,
    ToolCallStarted,
    ToolResult,
    TurnStarted,
)
from protocol.messages import Message
from sidecar.acp import toolviews
from sidecar.acp.content import blocks_of, text_block

RESTARTED = "\n\n*(The answer was interrupted and starts again.)*\n\n"
PLAN_STATUS = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}
MAX_REMEMBERED = 4096
"""Messages and calls whose state is remembered; the oldest are forgotten first."""


class Projection:
    """One session as this editor sees it."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self._shown: dict[str, int] = {}
        self._calls: set[str] = set()
        self._terminals: set[str] = set()

    def project(self, event: ChatEvent, *, own: bool) -> list[Any]:
        """What to send for one event. `own` says that the editor itself gave this turn's input.

        Sub-agents' text stays inside: only their tool calls are shown.
        """
        main = event.agent_id == "main"
        match event.event:
            case TurnStarted(content=content) if main and not own:
                return [UserMessageChunk(session_update="user_message_chunk", content=b) for b in blocks_of(content)]
            case TextDelta(message_id=message_id, text=text, offset=offset) if main:
                return self._text(message_id, text, offset)
            case ReasoningDelta(message_id=message_id, text=text) if main and text:
                return [thought(text, message_id)]
            case MessageEvent(message=message) if main:
                return self._text(message.id, message.text, 0)
            case StreamReset(message_id=message_id) if main and self._shown.pop(message_id, 0):
                return [said(RESTARTED, message_id)]
            case ToolCallStarted(tool_call_id=call_id, name=name, arguments=arguments):
                return self.announce(call_id, name, arguments)
            case ToolResult() as result:
                return self._finish(result)
            case TodoUpdated(todos=todos) if main:
                return [plan(todos)]
            case CompactionStarted() | CompactionLanded() | CompactionDiscarded() | CompactionFailed():
                return _compaction(event.event)
        return []

    def announce(self, call_id: str, name: str, arguments: Any, status: str = "in_progress") -> list[Any]:
        """The call is shown, once; later only its status changes."""
        if call_id in self._calls:
            return [ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status)]
        _remember(self._calls, call_id)
        return [toolviews.started(call_id, name, arguments, self.cwd, status)]

    def replayed(self, message: Message) -> None:
        """This message has been shown already."""
        self._shown[message.id] = len(message.text)
        for call in message.tool_calls or ():
            _remember(self._calls, call.id)
        if message.tool_call_id is not None:
            self._calls.discard(message.tool_call_id)

    def in_terminal(self, call_id: str) -> None:
        """The editor's own terminal shows what this call prints."""
        _remember(self._terminals, call_id)

    def _finish(self, result: ToolResult) -> list[Any]:
        before = [] if result.tool_call_id in self._calls else self.announce(result.tool_call_id, result.name, None)
        self._calls.discard(result.tool_call_id)
        terminal = result.tool_call_id in self._terminals
        self._terminals.discard(result.tool_call_id)
        return [*before, toolviews.finished(result, terminal=terminal)]

    def _text(self, message_id: str, text: str, offset: int) -> list[Any]:
        """What of this text was not shown yet: a whole message repeats its deltas."""
        known = self._shown.get(message_id, 0)
        fresh = text[max(0, known - offset) :] if offset <= known else text
        if not fresh:
            return []
        self._shown[message_id] = max(known, offset + len(text))
        while len(self._shown) > MAX_REMEMBERED:
            del self._shown[next(iter(self._shown))]
        return [said(fresh, message_id)]


def _remember(known: set[str], value: str) -> None:
    if len(known) >= MAX_REMEMBERED:
        known.pop()
    known.add(value)


def said(text: str, message_id: str | None = None) -> Any:
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text), message_id=message_id)


def thought(text: str, message_id: str | None = None) -> Any:
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text), message_id=message_id)


def plan(todos: Iterable[TodoItem]) -> Any:
    entries = [PlanEntry(content=t.content, priority="medium", status=PLAN_STATUS[t.status]) for t in todos]
    return AgentPlanUpdate(session_update="plan", entries=entries)


def usage(used: int, window: int) -> Any:
    return UsageUpdate(session_update="usage_update", used=used, size=window)


def session_info(title: str, updated_at: int) -> Any:
    return SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=iso(updated_at))


def iso(milliseconds: int) -> str:
    """ISO 8601 in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _compaction(event: Any) -> list[Any]:
    """A compaction is shown like a call: it takes a while, and ends one way or another."""
    match event:
        case CompactionStarted(compaction_id=compaction_id, pre_tokens=tokens):
            return [
                ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=compaction_id,
                    title=f"Compact the conversation ({tokens:,} tokens)",
                    kind="think",
                    status="in_progress",
                )
            ]
        case CompactionLanded(pre_tokens=before, post_tokens=after):
            return [_ended(event.compaction_id, "completed", f"{before:,} → {after:,} tokens")]
        case CompactionDiscarded(reason=reason):
            return [_ended(event.compaction_id, "failed", f"Discarded: {reason}")]
        case CompactionFailed(reason=reason):
            return [_ended(event.compaction_id, "failed", f"Failed: {reason}")]
    return []


def _ended(call_id: str, status: str, text: str) -> Any:
    content = [ContentToolCallContent(type="content", content=text_block(text))]
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status, content=content)
