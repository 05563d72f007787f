"""Approvals as the editor's permission requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acp.schema import AllowedOutcome, PermissionOption

from protocol.chat import ApprovalParams, ApprovalResult
from sidecar.acp import toolviews
from sidecar.acp.session import BridgedSession

OPTIONS: Mapping[str, tuple[str, str]] = {
    "allow_once": ("Allow", "allow_once"),
    "allow_session": ("Allow for this session", "allow_always"),
    "reject": ("Reject", "reject_once"),
}
"""Our option: its name for a person, and its kind in the editor's protocol."""


async def ask(connection: Any, session: BridgedSession, request: ApprovalParams) -> ApprovalResult:
    """Shows the call, asks, and returns the answer. Anything but a clear yes is a no."""
    await session.show(
        session.projection.announce(request.tool_call_id, request.name, request.arguments, status="pending")
    )
    response = await connection.request_permission(
        session_id=session.session_id,
        tool_call=toolviews.asked(
            request.tool_call_id, request.name, request.arguments, session.projection.cwd, request.preview
        ),
        options=[
            PermissionOption(option_id=option, name=OPTIONS[option][0], kind=OPTIONS[option][1])
            for option in request.options
        ],
    )
    outcome = response.outcome
    if isinstance(outcome, AllowedOutcome) and outcome.option_id in request.options:
        if outcome.option_id == "reject":
            return ApprovalResult(outcome="reject", reason="declined in the editor")
        await session.show(session.projection.announce(request.tool_call_id, request.name, request.arguments))
        return ApprovalResult(outcome=outcome.option_id)
    return ApprovalResult(outcome="reject", reason="dismissed in the editor")
