"""The tools of one agent: what the model is offered, and how a call is checked, allowed, run and kept short."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import structlog

from protocol.chat import ToolCallParams, ToolCallResult
from protocol.messages import Part, ToolSpec
from sidecar import ids
from sidecar.agent.calls import ParsedCall
from sidecar.agent.turn import Turn
from sidecar.approvals.rules import policy_of
from sidecar.approvals.service import ApprovalService
from sidecar.errors import Fault
from sidecar.sessions import content as border
from sidecar.sessions.asking import ApprovalLogs, SessionApprovals
from sidecar.sessions.lending import HostFiles, HostTerminal
from sidecar.sessions.log_access import LogRecords, LogTodos
from sidecar.sessions.toolports import ToolDesk
from sidecar.settings import Settings
from sidecar.tools import scheduling, schema
from sidecar.tools.port import HostTool, Tool, ToolContext, ToolOutcome
from sidecar.tools.records import RecordReader
from sidecar.tools.refusal import Refused
from sidecar.tools.registry import RECORD_TOOLS, ToolSet
from sidecar.tools.spill import spill

_log = structlog.get_logger("sidecar.tools")

DEFAULT_TIMEOUT_S = 600.0
READ_BYTES = 40_000
"""Most bytes of one answer of `record_search` and `record_read`; below the size from which results are spilled."""


class Toolbox:
    """The `ToolRunner` of one agent."""

    def __init__(self, desk: ToolDesk, settings: Settings, *, only: Collection[str] | None = None) -> None:
        """`only` limits what is offered, for an agent that may not do everything."""
        self._desk = desk
        self._only = only
        self._approvals = ApprovalService(SessionApprovals(desk), ApprovalLogs(desk))
        self._records = LogRecords(desk.journal, desk.blobs)
        self._todos = LogTodos(desk)
        self._settings = settings
        self._extra: tuple[Tool, ...] = ()
        self._mcp: tuple[Tool, ...] = ()
        self._set = ToolSet(())
        self.refresh(settings)

    # -- what there is

    def refresh(self, settings: Settings) -> None:
        """After the settings, the host's tools or the servers' changed."""
        self._settings = settings
        state = self._desk.journal.state
        # Resolved here and not per call: a folder that is swapped for a link later must not widen what may be touched.
        self._cwd = Path(os.path.realpath(state.cwd))
        roots = (os.path.realpath(os.path.expanduser(r)) for r in settings.tools.roots)
        self._roots = (self._cwd, *map(Path, roots))
        self._policy = policy_of(settings.approval, str(self._cwd))
        found = ToolSet.of(
            builtin=settings.tools.builtin,
            host=state.tools,
            extra=self._extra,
            mcp=self._mcp,
            joined=state.builtin,
            record_access=settings.tools.record_access,
        )
        if self._only is not None:
            found = ToolSet(tuple(t for t in found.tools if t.spec.name in self._only))
        self._set = found

    def bring(self, extra: Iterable[Tool] | None = None, mcp: Iterable[Tool] | None = None) -> bool:
        """Tools of other packages and of MCP servers; whether anything changed and `refresh` is to follow."""
        before = (self._extra, [t.spec for t in self._mcp])
        self._extra = self._extra if extra is None else tuple(extra)
        self._mcp = self._mcp if mcp is None else tuple(mcp)
        return before != (self._extra, [t.spec for t in self._mcp])

    @property
    def server_tools(self) -> tuple[Tool, ...]:
        return self._mcp

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is offered, sorted by name."""
        return self._set.specs()

    def has_side_effects(self, name: str) -> bool:
        """Whether a tool is known to change things."""
        tool = self._set.get(name)
        return bool(tool.spec.side_effects) if isinstance(tool, HostTool) else tool is not None and tool.side_effects

    def lacks_record_access(self) -> bool:
        """Whether the tools that read the log may be offered and are not."""
        offered = {t.name for t in self.specs()}
        return self._settings.tools.record_access and self._only is None and not offered >= RECORD_TOOLS

    # -- running

    def stages(self, calls: Sequence[ParsedCall]) -> list[list[int]]:
        return scheduling.stages([self._planned(c) for c in calls])

    def _planned(self, call: ParsedCall) -> scheduling.Planned:
        tool = self._set.get(call.call.name)
        if not isinstance(tool, Tool) or call.arguments is None:
            return scheduling.Planned(free=True)
        key = None
        if tool.conflict_key is not None:
            try:
                key = tool.conflict_key(self._context("", call), call.arguments)
            except (Refused, TypeError, ValueError, KeyError, AttributeError, OSError):
                # Arguments that do not fit; the call itself says so.
                key = None
        return scheduling.Planned(tool.side_effects, key)

    async def run(self, turn: Turn, call: ParsedCall) -> ToolOutcome:
        """Never raises but for cancellation: what goes wrong is told to the model."""
        name = call.call.name
        try:
            return await self._run(turn, call)
        except Refused as refused:
            return ToolOutcome.error(str(refused))
        except Fault as fault:
            return ToolOutcome.error(fault.message)
        except Exception:
            reference = ids.new("err")
            _log.exception("tool_crashed", tool=name, reference=reference)
            return ToolOutcome.error(f"`{name}` failed in an unexpected way (reference {reference}).")

    async def _run(self, turn: Turn, call: ParsedCall) -> ToolOutcome:
        name, arguments = call.call.name, call.arguments
        tool = self._set.get(name) or self._desk.stand_in(name)
        if tool is None:
            return ToolOutcome.error(self._set.unknown(name))
        if arguments is None:
            return ToolOutcome.error(f"The arguments of `{name}` are not a JSON object. Send one that fits its schema.")
        problem = await schema.mismatch(tool.spec, arguments)
        if problem is not None:
            return ToolOutcome.error(problem)
        context = self._context(turn.turn_id, call)
        grants = self._desk.journal.state.grants
        permission = await self._approvals.permit(tool, context, arguments, self._policy, grants)
        if not permission.allowed:
            return ToolOutcome.error(permission.text)
        if isinstance(tool, HostTool):
            return await self._call_host(turn, call, tool.spec, arguments)
        return await tool.run(context, arguments)

    def _context(self, turn_id: str, call: ParsedCall) -> ToolContext:
        desk = self._desk
        return ToolContext(
            session_id=desk.session_id,
            agent_id=desk.agent_id,
            turn_id=turn_id,
            tool_call_id=call.call.id,
            cwd=self._cwd,
            roots=self._roots,
            settings=self._settings.tools,
            environment=desk.environment,
            records=RecordReader(self._records, min(READ_BYTES, self._settings.tools.spill_bytes - 500)),
            todos=self._todos,
            files=HostFiles(desk.hosts, desk.session_id),
            terminal=HostTerminal(desk.hosts, desk.session_id, call.call.id),
            secret_names=secret_names(self._settings),
        )

    # -- hosts

    async def _call_host(self, turn: Turn, call: ParsedCall, spec: ToolSpec, arguments: dict[str, Any]) -> ToolOutcome:
        params = ToolCallParams(
            session_id=self._desk.session_id,
            agent_id=self._desk.agent_id,
            turn_id=turn.turn_id,
            tool_call_id=call.call.id,
            name=spec.name,
            arguments=arguments,
        )
        answer = await self._desk.hosts.call_tool(
            params,
            name=spec.name,
            timeout_s=spec.timeout_s or DEFAULT_TIMEOUT_S,
            wait_s=self._settings.tools.host_wait_s,
        )
        match answer.failure:
            case None:
                return await self._outcome(spec.name, answer.value)
            case "timeout":
                return ToolOutcome.error(f"`{spec.name}` did not answer in time; it may have had effects.")
            case "no_host":
                return ToolOutcome.error(f"The application that runs `{spec.name}` is not connected.")
            case "cancelled":
                return ToolOutcome.error(f"`{spec.name}` was cancelled; it may have had effects.")
            case "refused":
                return ToolOutcome.error(f"`{spec.name}` failed in the application that runs it.")

    async def _outcome(self, name: str, value: Any) -> ToolOutcome:
        try:
            result = msgspec.convert(value, ToolCallResult, strict=True)
            content: tuple[Part, ...] = await border.store_images(result.content, self._desk.blobs)
        except (msgspec.ValidationError, Fault):
            return ToolOutcome.error(f"The application's answer for `{name}` was malformed.")
        return ToolOutcome(content, is_error=result.is_error)

    # -- long results

    async def keep(self, name: str, outcome: ToolOutcome) -> ToolOutcome:
        """Before a result is appended: what is too long for the context is on disk when this returns, and images are
        blobs."""
        content = await border.store_images(outcome.content, self._desk.blobs)
        long = spill(content, tool=name, line=1, spill_bytes=self._settings.tools.spill_bytes)
        if long is not None:
            await self._desk.blobs.put(long.stored)
            self._desk.enable_record_access()
        return replace(outcome, content=content)

    def shorten(self, name: str, content: tuple[Part, ...]) -> tuple[Part, ...]:
        """The content as it goes into the record that is appended next."""
        line = self._desk.journal.last_line + 1
        long = spill(content, tool=name, line=line, spill_bytes=self._settings.tools.spill_bytes)
        return content if long is None else long.content


def secret_names(settings: Settings) -> frozenset[str]:
    """Variables that hold the providers' keys, whatever they are called."""
    rows: Mapping[str, Any] = settings.providers
    return frozenset(r.api_key_env for r in rows.values() if r.api_key_env)
