"""What a parsed frame is: a request, a notification, an answer to a call of ours, a batch, or nothing valid. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sidecar.errors import Fault

MAX_BATCH = 1000
MAX_ID_CHARS = 1024
"""An id is echoed in every answer; a longer one is no readable id."""

RequestId = str | int | float | None
"""Null is a readable id too; booleans, objects and arrays are none."""


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """To a call of ours. `error` is the host's error member, whatever it holds; None means success."""

    id: str | None
    result: Any = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """Answered with `fault`, or not at all if it is a notification (`fault` None).

    `own_id` is the id of a call of ours that this seems to answer: it is settled as an error.
    """

    id: RequestId
    fault: Fault | None
    own_id: str | None = None


Message = Request | Notification | Answer | Invalid


@dataclass(frozen=True, slots=True)
class Batch:
    members: tuple[Message, ...]


def classify(value: Any) -> Message | Batch:
    """Whatever JSON a frame held."""
    if not isinstance(value, list):
        return _classify_one(value)
    if not value:
        return Invalid(None, Fault("invalid_request", "A batch must not be empty"))
    if len(value) > MAX_BATCH:
        return Invalid(None, Fault("batch_too_large", f"A batch holds at most {MAX_BATCH} calls"))
    return Batch(tuple(_classify_one(member) for member in value))


def _classify_one(value: Any) -> Message:
    if not isinstance(value, dict):
        return Invalid(None, Fault("invalid_request", "A message must be a JSON object"))
    if "method" not in value and ("result" in value or "error" in value):
        return _classify_answer(value)
    return _classify_call(value)


def _classify_answer(value: dict[str, Any]) -> Message:
    raw_id = value.get("id")
    own_id = raw_id if isinstance(raw_id, str) else None
    if value.get("jsonrpc") != "2.0":
        return Invalid(_readable(raw_id), Fault("invalid_request", 'jsonrpc must be "2.0"', path="jsonrpc"), own_id)
    return Answer(own_id, value.get("result"), value.get("error"))


def _classify_call(value: dict[str, Any]) -> Message:
    raw_id = value.get("id")
    call_id = _readable(raw_id)
    method = value.get("method")
    own_id = raw_id if isinstance(raw_id, str) and "method" not in value else None
    if value.get("jsonrpc") != "2.0":
        return Invalid(call_id, Fault("invalid_request", 'jsonrpc must be "2.0"', path="jsonrpc"), own_id)
    if not isinstance(method, str):
        return Invalid(call_id, Fault("invalid_request", "method must be a string", path="method"), own_id)
    if raw_id is not None and call_id is None:
        return Invalid(
            None,
            Fault(
                "invalid_request",
                f"id must be a string of at most {MAX_ID_CHARS} characters, a number or null",
                path="id",
            ),
        )
    is_notification = "id" not in value
    params = value.get("params", {})
    if not isinstance(params, dict):
        fault = Fault("invalid_params", "params must be an object", path="params")
        return Invalid(call_id, None if is_notification else fault)
    return Notification(method, params) if is_notification else Request(call_id, method, params)


def _readable(raw_id: Any) -> RequestId:
    if isinstance(raw_id, str):
        return raw_id if len(raw_id) <= MAX_ID_CHARS else None
    return raw_id if isinstance(raw_id, (int, float)) and not isinstance(raw_id, bool) else None
