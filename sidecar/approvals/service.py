"""Gets a decision for every call: from the policy, from a grant, or from the host. Fails closed on every path."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from anyio import to_thread

from protocol.messages import JsonObject
from sidecar import logs
from sidecar.approvals.rules import Policy, Subject, decide
from sidecar.tools.confine import Confinement
from sidecar.tools.port import HostTool, Tool, ToolContext
from sidecar.tools.refusal import Refused
from sidecar.tools.text import clean, clip

Outcome = Literal["allow_once", "allow_session", "reject"]
By = Literal["policy", "session_grant", "host", "nobody"]

OPTIONS: tuple[Outcome, ...] = ("allow_once", "allow_session", "reject")
ONCE: tuple[Outcome, ...] = ("allow_once", "reject")
"""For what must be asked each time."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to the host; `preview` says in plain text what the call would do."""

    session_id: str
    turn_id: str
    tool_call_id: str
    name: str
    arguments: JsonObject
    preview: str | None
    options: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nobody answered: no client ever could (`nobody`), the one that could has gone (`gone`), or it took too long."""

    why: Literal["nobody", "gone", "timeout"]


class ApprovalHost(Protocol):
    """Those who can be asked."""

    async def ask(self, request: ApprovalRequest) -> Any:
        """The first answer, as it came: `{outcome, reason?}`; or `Unanswered`. It waits as long as the settings say
        and not longer. Whatever it raises counts as no answer."""
        ...


class ApprovalLog(Protocol):
    """Where decisions are recorded."""

    def record_approval(self, *, tool_call_id: str, name: str, outcome: Outcome, by: By, reason: str | None) -> None:
        """On return the decision is in the log. What it raises keeps the call from being run."""
        ...


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether the call may run; if not, `text` is what the model is told. `outcome` and `by` as recorded; `by` None:
    it needed no decision."""

    allowed: bool
    text: str
    outcome: Outcome
    by: By | None


class ApprovalService:
    """One per agent."""

    def __init__(self, host: ApprovalHost, log: ApprovalLog) -> None:
        self._host = host
        self._log = log

    async def permit(
        self,
        tool: Tool | HostTool,
        context: ToolContext,
        arguments: JsonObject,
        policy: Policy,
        grants: Collection[str],
    ) -> Permission:
        """Decides about one call of `tool`, asking the host if the policy says so, and records the decision. The
        arguments fit the tool's schema."""
        if isinstance(tool, Tool) and tool.is_path:
            subject = await to_thread.run_sync(subject_of, tool, context, arguments)
        else:
            subject = subject_of(tool, context, arguments)
        verdict = decide(subject, policy, grants)
        if verdict.decision == "ask":
            preview = await _preview(tool, context, arguments)
            return await self.ask(context, tool.spec.name, arguments, preview)
        allowed = verdict.decision == "allow"
        outcome: Outcome = "reject" if not allowed else "allow_once"
        if verdict.by is not None:
            self._record(context, subject.name, outcome, verdict.by, verdict.reason)
        text = "" if allowed else _refusal(subject.name, f"{verdict.reason}. Do without it, or ask the user")
        return Permission(allowed, text, outcome, verdict.by)

    async def ask(
        self,
        context: ToolContext,
        name: str,
        arguments: JsonObject,
        preview: str | None,
        options: tuple[Outcome, ...] = OPTIONS,
    ) -> Permission:
        """Asks the host about one call, whatever the policy says, and records the answer."""
        request = ApprovalRequest(
            context.session_id,
            context.turn_id,
            context.tool_call_id,
            name,
            arguments,
            preview,
            options,
        )
        try:
            answer = await self._host.ask(request)
        except Exception as error:  # whatever goes wrong with asking, the answer is no
            log.error("asking for approval failed", tool=name, exc_info=error)
            answer = Unanswered("gone")
        outcome, by, why = _read(answer, options)
        self._record(context, name, outcome, by, why)
        return Permission(outcome != "reject", "" if why is None else _refusal(name, why), outcome, by)

    def _record(self, context: ToolContext, name: str, outcome: Outcome, by: By, reason: str | None) -> None:
        self._log.record_approval(tool_call_id=context.tool_call_id, name=name, outcome=outcome, by=by, reason=reason)


def subject_of(tool: Tool | HostTool, context: ToolContext, arguments: JsonObject) -> Subject:
    """The call as rules see it; its path is resolved now, which may block."""
    others = tuple(_texts(arguments))
    if isinstance(tool, HostTool):
        return Subject(tool.spec.name, others=others, side_effects=tool.spec.side_effects is not False, is_host=True)
    argument: str | None = None
    if tool.main_argument is not None:
        value = arguments.get(tool.main_argument, "." if tool.is_path else None)
        argument = value if isinstance(value, str) else None
    if tool.is_path and argument is not None:
        try:
            argument = Confinement.of(context.cwd, context.roots).resolve(argument).replace(os.sep, "/")
        except Refused:
            argument = None
    return Subject(tool.spec.name, argument, tool.is_path, others, tool.side_effects, tool.is_edit)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


async def _preview(tool: Tool | HostTool, context: ToolContext, arguments: JsonObject) -> str | None:
    if isinstance(tool, HostTool) or tool.preview is None:
        return None
    try:
        return await tool.preview(context, arguments)
    except Exception as error:  # a question without a preview is better than none
        log.warning("a preview failed", tool=tool.spec.name, exc_info=error)
        return None


def _read(answer: Any, options: tuple[Outcome, ...]) -> tuple[Outcome, By, str | None]:
    """What an answer means, who gave it, and why it is no; anything that is not clearly a yes is a no."""
    match answer:
        case Unanswered(why):
            return "reject", "nobody", _UNANSWERED[why]
        case {"outcome": ("allow_once" | "allow_session") as outcome} if outcome in options:
            return outcome, "host", None
        case {"outcome": "reject", "reason": str(reason)} if reason.strip():
            return "reject", "host", f"the user said no: {clip(clean(reason.strip()), 2000)}"
        case {"outcome": "reject"}:
            return "reject", "host", "the user said no"
    return "reject", "host", "the host's answer could not be read"


_UNANSWERED = {
    "nobody": "nobody is connected who could approve it",
    "gone": "the one who could approve it has gone",
    "timeout": "nobody answered in time",
}


def _refusal(name: str, why: str) -> str:
    return f"`{name}` was not allowed: {why}. Nothing was run."
