"""Errors as the editor's protocol has them. The one place where ours become theirs.

-32002   a session that is unknown, closed, or not open in this connection
-32602   parameters, an unknown mode, a configuration that is not allowed
-32800   cancelled by the editor
-32000   no model can be asked: a key is missing or refused
-32601   a method that is not there
-32603   everything else; `data.reason` is our word, or `data.reference` stands in the log
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acp import RequestError

from protocol.messages import ErrorInfo
from sidecar.client import SidecarError

NOT_FOUND = -32002
INVALID_PARAMS = -32602
CANCELLED = -32800
NO_MODEL = -32000
INTERNAL = -32603

CODES: Mapping[str, int] = {
    "session_not_found": NOT_FOUND,
    "session_closed": NOT_FOUND,
    "invalid_params": INVALID_PARAMS,
    "config_invalid": INVALID_PARAMS,
    "request_cancelled": CANCELLED,
    "no_provider": NO_MODEL,
    "provider_auth": NO_MODEL,
    "method_not_found": -32601,
}
"""By our reason word."""

SHOWN = ("reason", "hint", "path", "key", "cause", "reference", "sessionId", "modeId", "method", "provider_status")
"""Fields of an error's data that are meant for the other side."""


def refusal(error: SidecarError) -> RequestError:
    """The daemon's error as theirs; its message and hint are written to be shown."""
    return RequestError(CODES.get(error.reason, INTERNAL), error.message, {"reason": error.reason, **error.data})


def failed_turn(error: ErrorInfo) -> RequestError:
    data = {"reason": error.reason, "hint": error.hint, "provider_status": error.provider_status}
    return RequestError(
        CODES.get(error.reason, INTERNAL), error.message, {k: v for k, v in data.items() if v is not None}
    )


def no_session(session_id: str) -> RequestError:
    return RequestError(NOT_FOUND, "There is no such open session", {"sessionId": session_id})


def invalid(message: str, **data: Any) -> RequestError:
    return RequestError(INVALID_PARAMS, message, data or None)


def cancelled() -> RequestError:
    return RequestError(CANCELLED, "Request cancelled")


def internal(reference: str) -> RequestError:
    return RequestError(INTERNAL, "Internal error", {"reference": reference})


def cleaned(error: Any) -> dict[str, Any]:
    """An error object without what was not meant for the other side.

    The package puts the text of unexpected exceptions, and the refused input, into `data`.
    """
    data = error.get("data")
    kept: dict[str, Any] = {}
    if isinstance(data, Mapping):
        kept = {k: data[k] for k in SHOWN if data.get(k) is not None}
        faults = data.get("errors")
        if isinstance(faults, list):
            kept["errors"] = [
                {"path": ".".join(str(p) for p in f.get("loc", ())), "message": str(f.get("msg", ""))}
                for f in faults[:20]
                if isinstance(f, Mapping)
            ]
    plain = {"code": error.get("code", INTERNAL), "message": str(error.get("message", "Internal error"))}
    return {**plain, "data": kept} if kept else plain
