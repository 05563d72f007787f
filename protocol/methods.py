"""The table of methods: a method exists when its row exists. Pure data.

Dispatch, the schema, the reference page and the tests are derived from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from protocol import chat, editor, memory, resources, session, skills, system
from protocol.common import AgentParams, Empty, NoParams, SessionParams
from protocol.events import ChatEvent
from protocol.info import ContextInfo
from protocol.messages import TurnResult

Direction = Literal["to_daemon", "to_host"]
Kind = Literal["request", "notification"]


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `errors` are the reason words that are its own, beside those that any call can get.
    `also` is the result's other form, where there are two."""

    name: str
    params: Any
    result: Any
    summary: str
    errors: tuple[str, ...] = ()
    direction: Direction = "to_daemon"
    kind: Kind = "request"
    also: Any = None


_NO_SESSION = ("session_not_found",)
_CHAT = ("session_not_found", "session_closed", "store_write_failed")

METHODS: tuple[Method, ...] = (
    # -- the process
    Method("system.initialize", system.InitializeParams, system.InitializeResult,
           "Agree on the protocol version and say what the host can do.",
           ("unsupported_protocol_version", "unauthorized")),
    Method("system.ping", NoParams, system.PingResult, "Is the daemon there, and how busy."),
    Method("system.shutdown", system.ShutdownParams, Empty, "End the daemon."),
    # -- sessions
    Method("agent.session.create", session.CreateParams, session.SessionResult,
           "Start a session; the caller is attached to it.",
           ("session_exists", "config_invalid", "no_provider", "store_write_failed")),
    Method("agent.session.resume", session.ResumeParams, session.ResumeResult,
           "Open a stored session, bring the host's tools again, catch up on events.",
           ("session_not_found", "session_locked", "config_invalid", "no_provider")),
    Method("agent.session.get", SessionParams, session.SessionResult, "One session.", _NO_SESSION),
    Method("agent.session.list", session.ListParams, session.ListResult, "The sessions, newest first."),
    Method("agent.session.configure", session.ConfigureParams, session.SessionResult,
           "Change model, settings, host tools or title.", (*_CHAT, "config_invalid", "no_provider")),
    Method("agent.session.messages", session.MessagesParams, session.MessagesResult,
           "The conversation: what the model sees, or all of it.", _NO_SESSION),
    Method("agent.session.fork", session.ForkParams, session.SessionResult,
           "A new session with the same past.", ("session_not_found", "store_write_failed")),
    Method("agent.session.close", SessionParams, Empty,
           "Close a session: its turn ends as cancelled, it takes no input until it is resumed.", _NO_SESSION),
    Method("agent.session.delete", SessionParams, Empty, "Remove a session and everything stored of it.",
           ("session_not_found", "session_locked")),
    Method("agent.session.attach", session.AttachParams, session.AttachResult,
           "Get a session's events, from `after_event` on.", ("session_not_found", "session_closed")),
    Method("agent.session.detach", SessionParams, Empty, "Get no more events of a session.", _NO_SESSION),
    # -- turns
    Method("agent.chat.send", chat.SendParams, chat.SendResult,
           "Give input: it starts a turn, or waits for the running one and then is a turn of its own.",
           (*_CHAT, "no_provider", "overloaded", "turn_active"), also=TurnResult),
    Method("agent.chat.steer", chat.SteerParams, chat.SteerResult,
           "Give input to the running turn, at its next step.", (*_CHAT, "no_provider", "overloaded")),
    Method("agent.chat.cancel", chat.CancelParams, chat.CancelResult, "End the running turn as cancelled.",
           ("session_not_found", "session_closed")),
    Method("agent.chat.compact", chat.CompactParams, chat.CompactResult, "Summarise the context now.",
           (*_CHAT, "turn_active", "compaction_failed", "no_provider")),
    Method("agent.chat.uncompact", chat.UncompactParams, chat.UncompactResult,
           "Bring back what the last compaction replaced.", (*_CHAT, "undo_blocked", "turn_active")),
    Method("agent.chat.undo", chat.UndoParams, chat.UndoResult, "Take the last turns out of the context.",
           (*_CHAT, "undo_blocked", "turn_active")),
    Method("agent.chat.clear", SessionParams, session.SessionResult, "Empty the context; the log stays.",
           (*_CHAT, "turn_active")),
    # -- what there is
    Method("agent.context.get", AgentParams, ContextInfo, "How full the context is, and what the policy says.",
           _NO_SESSION),
    Method("tool.list", SessionParams, resources.ToolListResult, "The tools that the model is offered.", _NO_SESSION),
    Method("model.list", NoParams, resources.ModelListResult, "The models that can be asked."),
    # -- memory and skills
    Method("memory.list", memory.ListParams, memory.ListResult, "The facts of a project and the global ones.",
           _NO_SESSION),
    Method("memory.get", memory.GetParams, memory.FactResult, "One fact with its body.", _NO_SESSION),
    Method("memory.save", memory.SaveParams, memory.FactResult, "Create a fact, or update one.",
           ("session_not_found", "stale_revision", "store_write_failed")),
    Method("memory.forget", memory.ForgetParams, memory.ForgetResult, "Archive a fact.",
           ("session_not_found", "stale_revision")),
    Method("memory.recall", memory.RecallParams, memory.RecallResult, "What recall would find for a query.",
           _NO_SESSION),
    Method("skill.list", SessionParams, skills.SkillListResult, "The skills that a session can use.", _NO_SESSION),
    Method("skill.run", skills.SkillRunParams, skills.SkillRunResult, "Activate a skill as the user.",
           (*_CHAT, "no_provider", "overloaded")),
    # -- the log
    Method("record.query", resources.QueryParams, resources.QueryResult, "Read records of the event log.",
           _NO_SESSION),
    Method("record.verify", SessionParams, resources.VerifyResult, "Check a session's logs.", _NO_SESSION),
    # -- configuration
    Method("config.get", resources.ConfigGetParams, resources.ConfigResult,
           "Effective settings and where each came from.", ("session_not_found", "config_invalid")),
    Method("config.set", resources.ConfigSetParams, resources.ConfigResult,
           "Change settings, of a session or of the process.", (*_CHAT, "config_invalid")),
    # -- notifications to the daemon
    Method("$/cancel_request", system.CancelRequestParams, None,
           "The call answers `request_cancelled`; the work of `chat.send` with `wait` and `chat.compact` ends too.",
           kind="notification"),
    Method("$/cancelRequest", system.CancelRequestParams, None, "The same, as LSP spells it.", kind="notification"),
    # -- requests to the host
    Method("tool.call", chat.ToolCallParams, chat.ToolCallResult, "Run one of the host's tools.",
           direction="to_host"),
    Method("approval.request", chat.ApprovalParams, chat.ApprovalResult, "May this call run?", direction="to_host"),
    Method("question.ask", chat.QuestionParams, chat.QuestionResult, "Ask the user something.", direction="to_host"),
    Method("file.read", editor.FileReadParams, editor.FileReadResult, "The text of a file as the editor has it.",
           direction="to_host"),
    Method("file.write", editor.FileWriteParams, editor.FileWriteResult, "Write a file through the editor.",
           direction="to_host"),
    Method("terminal.run", editor.TerminalRunParams, editor.TerminalRunResult, "Run a command in the host's terminal.",
           direction="to_host"),
    # -- notifications to the host
    Method("system.ready", system.ReadyParams, None, "The daemon is up; on stdio only.", direction="to_host",
           kind="notification"),
    Method("agent.chat.event", ChatEvent, None, "Something happened in a session.", direction="to_host",
           kind="notification"),
    Method("tool.cancel", chat.ToolCancelParams, None, "The result of this call is not wanted any more.",
           direction="to_host", kind="notification"),
    Method("request.resolved", system.RequestResolvedParams, None,
           "A request of the daemon was settled without this client's answer.", direction="to_host",
           kind="notification"),
)  # fmt: skip

BY_NAME: dict[str, Method] = {m.name: m for m in METHODS}
TO_DAEMON: tuple[Method, ...] = tuple(m for m in METHODS if m.direction == "to_daemon" and m.kind == "request")
