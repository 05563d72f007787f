"""How a turn ended, and the one conversion of failures to what a host is told. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import CODES
from protocol.messages import ErrorInfo, StopReason
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class Outcome:
    stop_reason: StopReason
    error: ErrorInfo | None = None


_HINTS = {
    "provider_auth": "check the API key of this provider",
    "context_overflow": "compact the session (agent.chat.compact) or set model.window to the model's real size",
    "provider_rate_limited": "wait, or raise providers.<name>.max_retries",
    "provider_unavailable": "check base_url and that the provider is up",
}


def of_provider_error(error: ProviderError) -> Outcome:
    if error.kind == "refused":
        return Outcome("refused")
    reason = error.reason
    return Outcome(
        "error",
        ErrorInfo(
            code=CODES[reason],
            reason=reason,
            message=error.message,
            hint=_HINTS.get(reason),
            provider_status=error.status,
        ),
    )


def of_fault(fault: Fault) -> Outcome:
    return Outcome("error", ErrorInfo(code=fault.code, reason=fault.reason, message=fault.message, hint=fault.hint))


def internal(reference: str) -> Outcome:
    """An unexpected failure: the log has the details under `reference`."""
    return Outcome(
        "error",
        ErrorInfo(code=CODES["internal"], reason="internal", message=f"Internal error, reference {reference}"),
    )
