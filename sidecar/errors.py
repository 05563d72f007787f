"""The one error that crosses to a host, and nothing else does.

`Fault` carries a reason word of `protocol.errors`; its message and hint are written for the reader at the other end:
they name the thing and the fix and never hold exception text, keys or paths of ours.
Each package that meets foreign exceptions (httpx, OSError, msgspec) converts them in one place.
"""

from __future__ import annotations

from typing import Any

from protocol.errors import CODES


class Fault(Exception):
    """A failure with a name. `data` are further fields of the error's `data`, e.g. `path` or `cause`."""

    def __init__(self, reason: str, message: str, *, hint: str | None = None, **data: Any) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.code = CODES[reason]
        self.message = message
        self.hint = hint
        self.data = data

    def as_error(self) -> dict[str, Any]:
        """The JSON-RPC error object."""
        data: dict[str, Any] = {"reason": self.reason, **self.data}
        if self.hint is not None:
            data["hint"] = self.hint
        return {"code": self.code, "message": self.message, "data": data}
