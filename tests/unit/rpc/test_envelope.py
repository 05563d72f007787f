"""What a parsed frame is taken for."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.rpc.envelope import Answer, Batch, Invalid, Notification, Request, classify


def frame(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **members}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (frame(id=1, method="m"), Request(1, "m", {})),
        (frame(id="a", method="m", params={"x": 1}), Request("a", "m", {"x": 1})),
        (frame(id=1.5, method="m"), Request(1.5, "m", {})),
        (frame(id=None, method="m"), Request(None, "m", {})),
        (frame(method="m"), Notification("m", {})),
        (frame(id="s-1", result=None), Answer("s-1", None, None)),
        (frame(id="s-1", result={"a": 1}, error=None), Answer("s-1", {"a": 1}, None)),
        (frame(id="s-1", error={"code": 1}), Answer("s-1", None, {"code": 1})),
        (frame(id=None, error={"code": -32700}), Answer(None, None, {"code": -32700})),
        (frame(id=5, result=1), Answer(None, 1, None)),
    ],
)
def test_valid(value: Any, message: Any) -> None:
    assert classify(value) == message


@pytest.mark.parametrize(
    ("value", "call_id", "reason", "path"),
    [
        (5, None, "invalid_request", None),
        (None, None, "invalid_request", None),
        ("x", None, "invalid_request", None),
        (True, None, "invalid_request", None),
        ({}, None, "invalid_request", "jsonrpc"),
        ([], None, "invalid_request", None),
        ({"id": "k", "method": "m"}, "k", "invalid_request", "jsonrpc"),
        ({"jsonrpc": "1.0", "id": 1.5, "method": "m"}, 1.5, "invalid_request", "jsonrpc"),
        (frame(id="k", method=5), "k", "invalid_request", "method"),
        (frame(id=7), 7, "invalid_request", "method"),
        (frame(id=True, method="m"), None, "invalid_request", "id"),
        (frame(id={"a": 1}, method="m"), None, "invalid_request", "id"),
        (frame(id="x" * 1025, method="m"), None, "invalid_request", "id"),
        (frame(id="k", method="m", params="x"), "k", "invalid_params", "params"),
        (frame(id="k", method="m", params=[1]), "k", "invalid_params", "params"),
        (frame(id="k", method="m", params=None), "k", "invalid_params", "params"),
        ([{}] * 1001, None, "batch_too_large", None),
    ],
)
def test_invalid(value: Any, call_id: Any, reason: str, path: str | None) -> None:
    message = classify(value)
    assert isinstance(message, Invalid)
    assert message.fault is not None
    assert (message.id, message.fault.reason, message.fault.data.get("path")) == (call_id, reason, path)
    assert message.own_id is None


def test_a_notification_with_wrong_params_is_not_answered() -> None:
    assert classify(frame(method="m", params=5)) == Invalid(None, None)


@pytest.mark.parametrize("value", [{"id": "s-1", "result": 1}, {"id": "s-1"}, frame(id="s-1")])
def test_an_answer_without_its_envelope_names_the_call_it_settles(value: Any) -> None:
    message = classify(value)
    assert isinstance(message, Invalid)
    assert (message.id, message.own_id) == ("s-1", "s-1")


def test_each_member_of_a_batch_is_taken_by_itself() -> None:
    batch = classify([frame(id=1, method="m"), 5, frame(method="n"), frame(id="s-1", result=2), []])
    assert isinstance(batch, Batch)
    assert [type(member) for member in batch.members] == [Request, Invalid, Notification, Answer, Invalid]
    assert len(classify([frame(method="m")] * 1000).members) == 1000  # type: ignore[union-attr]
