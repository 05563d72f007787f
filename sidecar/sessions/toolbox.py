"""The tools of one agent: what the model is offered, and how a call is checked, allowed, run and kept short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from protocol.chat import ToolCallParams, ToolCallResult
from protocol.messages import Part, ToolSpec
from record_store.backend import Journal, OpenSession
from sidecar import ids
from sidecar.agent.calls import ParsedCall
from sidecar.agent.turn import Turn
from sidecar.errors import Fault
from sidecar.sessions import content as border
from sidecar.sessions.hosts import Hosts
from sidecar.settings import Settings
from sidecar.tools.port import ToolOutcome

_log = structlog.get_logger("sidecar.tools")

DEFAULT_TIMEOUT_S = 600.0


class Toolbox:
    """The `ToolRunner` of one agent."""

    def __init__(
        self,
        hosts: Hosts,
        opened: OpenSession,
        journal: Journal,
        agent_id: str,
        environment: Mapping[str, str],
        settings: Settings,
    ) -> None:
        self._hosts = hosts
        self._opened = opened
        self._journal = journal
        self._agent_id = agent_id
        self._environment = environment
        self._settings = settings
        self._host_tools: dict[str, ToolSpec] = {}
        self.refresh(settings)

    def refresh(self, settings: Settings) -> None:
        self._settings = settings
        self._host_tools = {t.name: t for t in self._journal.state.tools}

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is offered, sorted by name."""
        return tuple(sorted(self._host_tools.values(), key=lambda t: t.name))

    def has_side_effects(self, name: str) -> bool:
        """Whether a tool is known to change things."""
        spec = self._host_tools.get(name)
        return spec is not None and bool(spec.side_effects)

    def enable_record_access(self) -> bool:
        """Offers the tools that read the event log; whether anything changed."""
        return False

    def stages(self, calls: Sequence[ParsedCall]) -> list[list[int]]:
        return [list(range(len(calls)))]

    async def run(self, turn: Turn, call: ParsedCall) -> ToolOutcome:
        """Never raises but for cancellation: what goes wrong is told to the model."""
        name = call.call.name
        spec = self._host_tools.get(name)
        if spec is None:
            known = ", ".join(t.name for t in self.specs()) or "none"
            return ToolOutcome.error(f"There is no tool {name!r}. Tools: {known}.")
        if call.arguments is None:
            return ToolOutcome.error(f"The arguments of {name} are not a JSON object. Send one that fits its schema.")
        try:
            return await self._call_host(turn, call, spec, call.arguments)
        except Fault as fault:
            return ToolOutcome.error(fault.message)
        except Exception:
            reference = ids.new("err")
            _log.exception("tool_crashed", tool=name, reference=reference)
            return ToolOutcome.error(f"{name} failed in an unexpected way (reference {reference}).")

    async def _call_host(self, turn: Turn, call: ParsedCall, spec: ToolSpec, arguments: dict[str, Any]) -> ToolOutcome:
        params = ToolCallParams(
            session_id=self._opened.session_id,
            agent_id=self._agent_id,
            turn_id=turn.turn_id,
            tool_call_id=call.call.id,
            name=spec.name,
            arguments=arguments,
        )
        answer = await self._hosts.call_tool(
            params,
            name=spec.name,
            timeout_s=spec.timeout_s or DEFAULT_TIMEOUT_S,
            wait_s=self._settings.tools.host_wait_s,
        )
        match answer.failure:
            case None:
                return await self._outcome(spec.name, answer.value)
            case "timeout":
                return ToolOutcome.error(f"{spec.name} did not answer in time; it may have had effects.")
            case "no_host":
                return ToolOutcome.error(f"The application that runs {spec.name} is not connected.")
            case "cancelled":
                return ToolOutcome.error(f"{spec.name} was cancelled; it may have had effects.")
            case "refused":
                return ToolOutcome.error(f"{spec.name} failed in the application that runs it.")

    async def _outcome(self, name: str, value: Any) -> ToolOutcome:
        try:
            result = msgspec.convert(value, ToolCallResult, strict=True)
            content: tuple[Part, ...] = await border.store_images(result.content, self._opened.blobs)
        except (msgspec.ValidationError, Fault):
            return ToolOutcome.error(f"The application's answer for {name} was malformed.")
        return ToolOutcome(content, is_error=result.is_error)
