"""Approvals of one agent: asked of the session's hosts, written into its log."""

from __future__ import annotations

from typing import Any

from protocol.chat import ApprovalParams
from record_store.records import ToolApproval
from sidecar.approvals.service import ApprovalRequest, By, Outcome, Unanswered
from sidecar.sessions.toolports import ToolDesk


class SessionApprovals:
    """Implements `sidecar.approvals.service.ApprovalHost`."""

    def __init__(self, desk: ToolDesk) -> None:
        self._desk = desk

    async def ask(self, request: ApprovalRequest) -> Any:
        desk = self._desk
        params = ApprovalParams(
            session_id=request.session_id,
            agent_id=desk.agent_id,
            turn_id=request.turn_id,
            tool_call_id=request.tool_call_id,
            name=request.name,
            arguments=request.arguments,
            options=request.options,
            preview=request.preview,
        )
        could = desk.hosts.ever_approves
        answer = await desk.hosts.ask_approval(params, wait_s=desk.approval_wait_s())
        match answer.failure:
            case None:
                return answer.value
            case "no_host":
                return Unanswered("gone" if could else "nobody")
            case "timeout":
                return Unanswered("timeout")
            case _:
                return {"outcome": "reject", "reason": "the application could not ask"}


class ApprovalLogs:
    """Implements `sidecar.approvals.service.ApprovalLog`."""

    def __init__(self, desk: ToolDesk) -> None:
        self._desk = desk

    def record_approval(self, *, tool_call_id: str, name: str, outcome: Outcome, by: By, reason: str | None) -> None:
        self._desk.append(
            ToolApproval(
                time=self._desk.clock.now_ms(),
                tool_call_id=tool_call_id,
                name=name,
                outcome=outcome,
                by=by,
                reason=reason,
            )
        )
