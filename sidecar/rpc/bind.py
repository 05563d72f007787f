"""From the method table to handlers: params are typed before a handler sees them, and errors name the field."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from protocol.methods import BY_NAME
from sidecar.errors import Fault
from sidecar.rpc.port import Handler, Peer

TypedHandler = Callable[[Peer, Any], Awaitable[Any]]
"""Takes the peer and the params of the method's row; returns its result."""

_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_AT = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


def invalid_params(error: msgspec.ValidationError) -> Fault:
    """The fault for params that do not fit: `data.path` names the field, `tools[1].name`."""
    text = str(error)
    at = _AT.search(text)
    path = at.group(1) if at else ""
    detail = text[: at.start()] if at else text
    missing = _MISSING.match(detail)
    if missing:
        path = f"{path}.{missing.group(1)}" if path else missing.group(1)
        detail = "missing"
    if path == "session_id" and "matching regex" in detail:
        detail = "must begin with a letter or digit and hold only letters, digits, `.`, `_`, `-`, at most 128"
    return Fault("invalid_params", f"{path or 'params'}: {detail}"[:500], path=path)


def bind(handlers: Mapping[str, TypedHandler]) -> dict[str, Handler]:
    """Handlers of plain params. Every name must be a row of the table."""
    return {name: _typed(BY_NAME[name].params, handler) for name, handler in handlers.items()}


def _typed(kind: Any, handler: TypedHandler) -> Handler:
    async def call(peer: Peer, params: dict[str, Any]) -> Any:
        try:
            typed = msgspec.convert(params, kind, strict=True)
        except msgspec.ValidationError as error:
            raise invalid_params(error) from None
        return await handler(peer, typed)

    return call
