"""`system.initialize`, checked by hand because it is answered before msgspec is loaded. Pure."""

from __future__ import annotations

from typing import Any

from protocol.version import PROTOCOL_VERSION, SUPPORTED_VERSIONS
from sidecar.errors import Fault
from sidecar.rpc.port import Capabilities, ClientInfo, ShutdownMode

MAX_CLIENT_CHARS = 200
"""Kept of a client's name and version."""


def check_initialize(params: dict[str, Any]) -> tuple[ClientInfo, Capabilities]:
    """Who the host is and what it can answer. Raises `invalid_params` or `unsupported_protocol_version`."""
    version = _field(params, "protocol_version", int, "an integer")
    if version not in SUPPORTED_VERSIONS:
        raise Fault(
            "unsupported_protocol_version",
            "This protocol version is not supported",
            hint=f"speak version {PROTOCOL_VERSION}",
            supported=list(SUPPORTED_VERSIONS),
        )
    client = _field(params, "client", dict, "an object")
    name = _field(client, "name", str, "a string", "client.")
    client_version = _field(client, "version", str, "a string", "client.")
    offered = _field(params, "capabilities", dict, "an object") if "capabilities" in params else {}
    for key in offered:
        _field(offered, key, bool, "a boolean", "capabilities.")
    if "token" in params:
        _field(params, "token", str, "a string")
    return (
        ClientInfo(name[:MAX_CLIENT_CHARS], client_version[:MAX_CLIENT_CHARS]),
        Capabilities(
            tools=offered.get("tools", False),
            approvals=offered.get("approvals", False),
            questions=offered.get("questions", False),
            initialized=True,
            files=offered.get("files", False),
            terminal=offered.get("terminal", False),
        ),
    )


def initialize_result(agreed: Capabilities, *, daemon_version: str, pid: int) -> dict[str, Any]:
    """What the daemon answers: `capabilities` are those that it will make use of."""
    return {
        "protocol_version": PROTOCOL_VERSION,
        "server": {"name": "sidecar", "version": daemon_version, "pid": pid},
        "capabilities": {
            "tools": agreed.tools,
            "approvals": agreed.approvals,
            "questions": agreed.questions,
            **{name: True for name in ("files", "terminal") if getattr(agreed, name)},
        },
    }


def check_shutdown(params: dict[str, Any]) -> ShutdownMode:
    """The mode: `graceful` (also when absent) or `now`."""
    match params.get("mode", "graceful"):
        case "graceful":
            return "graceful"
        case "now":
            return "now"
        case _:
            raise Fault("invalid_params", 'mode must be "graceful" or "now"', path="mode")


def _field(fields: dict[str, Any], name: str, kind: type, wanted: str, prefix: str = "") -> Any:
    path = (prefix + name)[:100]
    if name not in fields:
        raise Fault("invalid_params", f"{path} is missing", path=path)
    value = fields[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Fault("invalid_params", f"{path} must be {wanted}", path=path)
    return value
