"""The tools `remember` and `recall`. They hold no rules: `gate` decides, the service writes, the host is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from protocol.memory import Fact, FactInput
from protocol.messages import JsonObject, ToolSpec
from record_store.backend import MAIN_AGENT
from sidecar.errors import Fault
from sidecar.memory.library import Taken
from sidecar.memory.service import NO_ENTRIES, Grant, GrantSpent, MemoryService, Question, Writer
from sidecar.tools.port import Tool, ToolContext, ToolOutcome

RECALL_LIMIT: Final = 8
RECALL_CHARS: Final = 6_000

OPTIONS: Final = ("allow_once", "reject")
"""What a host may answer: a grant for the whole session is never offered."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a host is asked before a fact is written. `preview` is for people, `options` all that may be offered."""

    arguments: JsonObject
    reasons: tuple[str, ...]
    preview: str
    options: tuple[str, ...] = OPTIONS


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """`reason` is the host's own word for a refusal, if it gave one."""

    allowed: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A write that happened, for the log."""

    fact: Fact
    operation: Literal["create", "update"]
    by: Literal["auto", "approved"]


AskHost = Callable[[ToolContext, WriteRequest], Awaitable[WriteAnswer]]
"""Asks a person. Not allowed when nobody can answer; no approval mode answers for them."""

OnWritten = Callable[[ToolContext, Written], Awaitable[None]]

_TEXT: Final = {"type": "string"}

REMEMBER: Final = ToolSpec(
    name="remember",
    description=(
        "Keep a fact for later sessions: something about the project or an outside resource that the code does not "
        "show. One fact per call, short, in your own words, without secrets. Global facts, facts about the user and "
        "how to work, and replacing a fact of the same name need the user's consent."
    ),
    parameters={
        "type": "object",
        "properties": {
            "name": {**_TEXT, "minLength": 1, "maxLength": 200, "description": "A few words that name the fact."},
            "title": {**_TEXT, "maxLength": 300, "description": "A heading for people, if the name needs one."},
            "description": {
                **_TEXT, "minLength": 1, "maxLength": 1000,
                "description": "One line: what it is about, with the words that one would ask with.",
            },
            "type": {
                **_TEXT, "enum": ["user", "feedback", "project", "reference"],
                "description": "user: who they are and like; feedback: how to work and why; project: goals and "
                "constraints; reference: outside resources.",
            },
            "scope": {
                **_TEXT, "enum": ["project", "global"],
                "description": "project (default): this workspace only; global: everywhere.",
            },
            "keywords": {
                "type": "array", "items": {**_TEXT, "maxLength": 100}, "maxItems": 64,
                "description": "Other words for it.",
            },
            "body": {**_TEXT, "minLength": 1, "maxLength": 100_000, "description": "The fact itself."},
        },
        "required": ["name", "description", "type", "body"],
        "additionalProperties": False,
    },
)  # fmt: skip

RECALL: Final = ToolSpec(
    name="recall",
    description=(
        "Search the facts kept in earlier sessions, of this project and global. They may be out of date. Ask with at "
        "least two telling words, or with an identifier."
    ),
    parameters={
        "type": "object",
        "properties": {"query": {**_TEXT, "minLength": 1, "description": "Words that the fact would contain."}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


def remember_tool(
    service: MemoryService,
    ask: AskHost,
    *,
    on_written: OnWritten | None = None,
    session_cwd: Callable[[ToolContext], Path] | None = None,
    automatic: Callable[[ToolContext], bool] | None = None,
) -> Tool:
    """`session_cwd` says where the session lives (default: where the call does), `automatic` is the setting
    `memory.auto_write`. `on_written` is called after the fact is on disk."""

    def writer_of(context: ToolContext) -> Writer:
        return Writer(
            main_agent=context.agent_id == MAIN_AGENT,
            cwd=context.cwd,
            session_cwd=context.cwd if session_cwd is None else session_cwd(context),
            automatic=automatic is None or automatic(context),
        )

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        try:
            given = service.checked(msgspec.convert(arguments, FactInput))
            written = await _write(service, ask, context, writer_of(context), given, arguments)
        except msgspec.ValidationError as error:
            return ToolOutcome.error(f"Nothing was remembered: {error}.")
        except Fault as fault:
            return ToolOutcome.error(f"Nothing was remembered. {fault.message}")
        if isinstance(written, ToolOutcome):
            return written
        if on_written is not None:
            await on_written(context, written)
        done = "Remembered" if written.operation == "create" else "Updated"
        return ToolOutcome.text(f"{done} for {_holds(written.fact.scope)}: {written.fact.name}")

    return Tool(spec=REMEMBER, run=run, main_argument="name", conflict_key=lambda _context, _arguments: "memory")


async def _write(
    service: MemoryService,
    ask: AskHost,
    context: ToolContext,
    writer: Writer,
    given: FactInput,
    arguments: JsonObject,
) -> Written | ToolOutcome:
    verdict = await service.propose(writer, given)
    if isinstance(verdict, Grant):
        try:
            return Written(await service.create_granted(writer, verdict, given), "create", "auto")
        except (Taken, GrantSpent):
            verdict = await service.propose(writer, given)
    if isinstance(verdict, Grant):
        return ToolOutcome.error("Nothing was remembered: the memory is changing. Try again.")
    answer = await ask(context, WriteRequest(arguments, verdict.reasons, preview(given, verdict)))
    if not answer.allowed:
        why = f" ({answer.reason})" if answer.reason else ""
        return ToolOutcome.error(f"Nothing was remembered: it needs the user's consent, which was not given{why}.")
    fact = await service.write_approved(writer, given, verdict)
    return Written(fact, "create" if verdict.replaces is None else "update", "approved")


def preview(given: FactInput, question: Question) -> str:
    """The question as a person reads it."""
    old = question.replaces
    what = "Remember" if old is None else f"Replace revision {old.revision} of a fact"
    called = f"{given.name} ({given.title})" if given.title else given.name
    lines = [
        f"{what} for {_holds(given.scope or 'project')} (type {given.type}): {called}",
        given.description,
        "",
        given.body,
        "",
        f"Asked because {'; '.join(question.reasons)}.",
    ]
    return "\n".join(lines)


def _holds(scope: str) -> str:
    return "every project" if scope == "global" else "this project"


def recall_tool(service: MemoryService, *, in_prefix: Callable[[ToolContext], Mapping[str, str]] | None = None) -> Tool:
    """`in_prefix` gives the entries of the facts that the session's prompt tells (`section.entries_in`)."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        told = NO_ENTRIES if in_prefix is None else in_prefix(context)
        try:
            text = await service.answer(
                context.cwd, str(arguments["query"]), limit=RECALL_LIMIT, max_chars=RECALL_CHARS, in_prefix=told
            )
        except Fault as fault:
            return ToolOutcome.error(fault.message)
        return ToolOutcome.text(
            text or "Nothing is remembered about that. Two telling words or an identifier find more than one word."
        )

    return Tool(spec=RECALL, run=run, main_argument="query")
