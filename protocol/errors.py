"""The table of errors that cross the pipe: every code has one stable reason word.

Pure data; imports nothing heavy, so that the first reply needs no more than this.
"""

from __future__ import annotations

from typing import Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

STANDARD: Final[dict[str, int]] = {
    "parse_error": PARSE_ERROR,
    "invalid_request": INVALID_REQUEST,
    "frame_too_large": INVALID_REQUEST,
    "batch_too_large": INVALID_REQUEST,
    "method_not_found": METHOD_NOT_FOUND,
    "invalid_params": INVALID_PARAMS,
}
"""Reason words of the JSON-RPC standard's own codes."""

APPLICATION: Final[dict[str, int]] = {
    "request_cancelled": -32800,
    "internal": -32000,
    "unsupported_protocol_version": -32010,
    "unauthorized": -32011,
    "session_not_found": -32020,
    "session_locked": -32021,
    "session_exists": -32022,
    "session_closed": -32023,
    "turn_active": -32030,
    "no_turn": -32031,
    "undo_blocked": -32032,
    "stale_revision": -32033,
    "compaction_failed": -32040,
    "context_overflow": -32041,
    "provider_auth": -32050,
    "provider_rate_limited": -32051,
    "provider_unavailable": -32052,
    "provider_rejected": -32053,
    "no_provider": -32054,
    "tool_failed": -32060,
    "approval_denied": -32061,
    "store_write_failed": -32070,
    "store_damaged": -32071,
    "config_invalid": -32080,
    "overloaded": -32090,
}
"""Reason words of this protocol's codes."""

CODES: Final[dict[str, int]] = {**STANDARD, **APPLICATION}
"""Every reason word and its code. `CODES[reason]` is the only way a code is chosen."""
