"""Calls to handlers, through jsonrpcserver with a method table of our own; what handlers raise becomes an error here.

jsonrpcserver gets one checked call at a time and gives back a plain value; serialising, batches, cancels and
notifications stay outside of it. It is imported with the application, after the first replies.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jsonrpcserver import Error, Success, async_dispatch_to_response
from jsonrpcserver.response import to_serializable

from sidecar import logs
from sidecar.errors import Fault
from sidecar.groups import first_failure
from sidecar.rpc.calls import Call
from sidecar.rpc.port import Handler

log = logs.get(__name__)


class Dispatcher:
    """`methods` is the only table; nothing is ever registered globally."""

    def __init__(self, methods: Mapping[str, Handler]) -> None:
        self._methods = {name: _as_method(handler) for name, handler in methods.items()}

    async def run(self, call: Call) -> None:
        """Answers the call, whatever its handler does. Runs in a task of its own."""
        if call.answered:
            return
        if call.method not in self._methods:
            call.fail(Fault("method_not_found", "There is no such method"))
            return
        try:
            reply = await async_dispatch_to_response(
                {"method": call.method, "params": call.params, "id": 0},
                deserializer=_as_it_is,
                validator=_as_it_is,
                methods=self._methods,
                context=call,
                post_process=to_serializable,
            )
            if "error" in reply:
                call.fail_with(reply["error"])
            else:
                call.succeed(reply["result"])
        except Exception as error:
            call.fail(_internal(call, error))


def _as_it_is(value: Any) -> Any:
    return value


def _as_method(handler: Handler) -> Callable[..., Awaitable[Any]]:
    """Returns a result whatever the handler raises. A cancelled call was answered by its cancel."""

    async def method(call: Call, /, **params: Any) -> Any:
        try:
            with call.begin():
                return Success(await handler(call.peer, params))
            return Success(None)
        except BaseException as error:
            fault = _fault_of(call, error)
            return Error(fault.code, fault.message, fault.as_error()["data"])

    return method


def _fault_of(call: Call, error: BaseException) -> Fault:
    """The only place where what a handler raised is turned into what a host reads.

    Even a `SystemExit` or a panic of a native library is one call's failure, not the daemon's.
    """
    if isinstance(error, BaseExceptionGroup):
        error = first_failure(error)
    if isinstance(error, Fault):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Fault("request_cancelled", "The work was cancelled")
    return _internal(call, error)


def _internal(call: Call, error: BaseException) -> Fault:
    reference = secrets.token_hex(4)
    log.error("a call failed", reference=reference, method=call.method, peer=call.peer.id, exc_info=error)
    return Fault("internal", "An internal error happened", hint="the daemon's log has the details", reference=reference)
