"""`system.initialize` and `system.shutdown`, checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.errors import Fault
from sidecar.rpc.handshake import check_initialize, check_shutdown, initialize_result
from sidecar.rpc.port import Capabilities, ClientInfo

GOOD: dict[str, Any] = {"protocol_version": 1, "client": {"name": "shell", "version": "2"}}


def test_what_a_host_says_of_itself() -> None:
    assert check_initialize(GOOD) == (ClientInfo("shell", "2"), Capabilities(initialized=True))
    _, can = check_initialize({**GOOD, "capabilities": {"tools": True, "approvals": True, "x": False}, "new": 1})
    assert can == Capabilities(tools=True, approvals=True, questions=False, initialized=True)
    assert initialize_result(can, daemon_version="0", pid=5) == {
        "protocol_version": 1,
        "server": {"name": "sidecar", "version": "0", "pid": 5},
        "capabilities": {"tools": True, "approvals": True, "questions": False},
    }
    assert check_initialize({**GOOD, "client": {"name": "n" * 5000, "version": "1"}})[0].name == "n" * 200


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "protocol_version"),
        ({**GOOD, "protocol_version": "one"}, "protocol_version"),
        ({**GOOD, "protocol_version": True}, "protocol_version"),
        ({**GOOD, "protocol_version": 1.0}, "protocol_version"),
        ({"protocol_version": 1}, "client"),
        ({**GOOD, "client": "x"}, "client"),
        ({**GOOD, "client": {"name": "x"}}, "client.version"),
        ({**GOOD, "client": {"name": 5, "version": "1"}}, "client.name"),
        ({**GOOD, "capabilities": []}, "capabilities"),
        ({**GOOD, "capabilities": {"tools": "yes"}}, "capabilities.tools"),
        ({**GOOD, "capabilities": {"tools": 1}}, "capabilities.tools"),
        ({**GOOD, "token": 5}, "token"),
    ],
)
def test_a_wrong_field_is_named(params: dict[str, Any], path: str) -> None:
    with pytest.raises(Fault) as refused:
        check_initialize(params)
    assert (refused.value.code, refused.value.data["path"]) == (-32602, path)


def test_another_version_is_told_what_is_supported() -> None:
    with pytest.raises(Fault) as refused:
        check_initialize({"protocol_version": 99})
    assert (refused.value.code, refused.value.data["supported"]) == (-32010, [1])


def test_the_modes_of_shutdown() -> None:
    assert [check_shutdown(p) for p in ({}, {"mode": "graceful"}, {"mode": "now"})] == ["graceful", "graceful", "now"]
    for wrong in ("later", 5, None, ["now"]):
        with pytest.raises(Fault) as refused:
            check_shutdown({"mode": wrong})
        assert refused.value.data["path"] == "mode"
