"""Who is asked, what an answer means, what is recorded; every way that is no clear yes is a no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.messages import ToolSpec
from sidecar.approvals.rules import policy_of
from sidecar.approvals.service import ONCE, ApprovalRequest, ApprovalService, Permission, Unanswered
from sidecar.settings import ApprovalSettings
from sidecar.tools.port import HostTool
from tests.support.tools import TOOLS, context_in


@dataclass
class Host:
    """Answers with what it was given, or by calling it."""

    answer: Any
    asked: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        if callable(self.answer):
            return await self.answer()
        return self.answer


@dataclass
class Log:
    decisions: list[tuple[str, str, str, str, str | None]] = field(default_factory=list)
    failing: bool = False

    def record_approval(self, *, tool_call_id: str, name: str, outcome: str, by: str, reason: str | None) -> None:
        if self.failing:
            raise OSError("disk full")
        self.decisions.append((tool_call_id, name, outcome, by, reason))


async def permit(
    tmp_path: Path, answer: Any, log: Log | None = None, grants: tuple[str, ...] = (), **settings: Any
) -> tuple[Permission, Host, Log]:
    host, log = Host(answer), log or Log()
    context = context_in(tmp_path)
    policy = policy_of(ApprovalSettings(**settings), str(context.cwd))
    service = ApprovalService(host, log)
    tool = TOOLS["write_file"]
    permission = await service.permit(tool, context, {"path": "a.txt", "content": "new\n"}, policy, grants)
    return permission, host, log


async def test_a_yes_is_a_yes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    permission, host, log = await permit(tmp_path, {"outcome": "allow_once"})
    assert permission == Permission(True, "", "allow_once", "host")
    assert log.decisions == [("c", "write_file", "allow_once", "host", None)]
    (request,) = host.asked
    assert (request.session_id, request.turn_id, request.tool_call_id, request.name) == ("s", "t", "c", "write_file")
    assert request.options == ("allow_once", "allow_session", "reject")
    assert request.arguments == {"path": "a.txt", "content": "new\n"}
    assert "-old\n+new" in (request.preview or "")
    permission, _, log = await permit(tmp_path, {"outcome": "allow_session", "more": 1})
    assert (permission.allowed, permission.outcome) == (True, "allow_session")
    assert log.decisions[0][2] == "allow_session"


async def test_a_no_comes_with_its_reason(tmp_path: Path) -> None:
    permission, _, log = await permit(tmp_path, {"outcome": "reject", "reason": "use\0 the other file"})
    assert not permission.allowed
    assert permission.text == (
        "`write_file` was not allowed: the user said no: use\ufffd the other file. Nothing was run."
    )
    assert log.decisions == [("c", "write_file", "reject", "host", "the user said no: use\ufffd the other file")]


async def explode() -> Any:
    raise RuntimeError("connection reset")


@pytest.mark.parametrize(
    ("answer", "by", "why"),
    [
        (Unanswered("nobody"), "nobody", "nobody is connected"),
        (Unanswered("gone"), "nobody", "has gone"),
        (Unanswered("timeout"), "nobody", "nobody answered in time"),
        (explode, "nobody", "has gone"),
        (None, "host", "could not be read"),
        ("allow_once", "host", "could not be read"),
        (True, "host", "could not be read"),
        ({}, "host", "could not be read"),
        ({"outcome": "yes"}, "host", "could not be read"),
        ({"outcome": ["allow_once"]}, "host", "could not be read"),
        ({"outcome": {"outcome": "allow_once"}}, "host", "could not be read"),
        ({"outcome": None}, "host", "could not be read"),
        ({"outcome": "reject", "reason": 5}, "host", "the user said no"),
        ([{"outcome": "allow_once"}], "host", "could not be read"),
    ],
)
async def test_everything_else_is_a_no(tmp_path: Path, answer: Any, by: str, why: str) -> None:
    permission, _, log = await permit(tmp_path, answer)
    assert not permission.allowed
    assert why in permission.text
    assert [d[2:4] for d in log.decisions] == [("reject", by)]


async def test_the_policy_answers_without_asking(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], tuple[str, ...], bool, str]] = [
        ({"mode": "auto"}, (), True, "policy"),
        ({"mode": "auto_edit"}, (), True, "policy"),
        ({"mode": "deny"}, (), False, "policy"),
        ({"allow": ("write_file(*.txt)",)}, (), True, "policy"),
        ({"mode": "auto", "deny": ("write_file(*.txt)",)}, (), False, "policy"),
        ({}, ("write_file",), True, "session_grant"),
    ]
    for settings, grants, allowed, by in cases:
        permission, host, log = await permit(tmp_path, {"outcome": "allow_once"}, grants=grants, **settings)
        assert permission.allowed is allowed
        assert host.asked == []
        assert [(d[2] != "reject", d[3]) for d in log.decisions] == [(allowed, by)]
        assert allowed or permission.text.startswith("`write_file` was not allowed: approval.")


async def test_paths_are_matched_after_resolution(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "a.txt").symlink_to("secret/real.txt")
    permission, host, _ = await permit(
        tmp_path, {"outcome": "allow_once"}, mode="auto", deny=("write_file(secret/**)",)
    )
    assert not permission.allowed
    permission, host, _ = await permit(tmp_path, {"outcome": "reject"}, allow=("write_file(a.txt)",))
    assert not permission.allowed
    assert len(host.asked) == 1
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").symlink_to("/etc/passwd")
    permission, host, _ = await permit(tmp_path, {"outcome": "reject"}, allow=("write_file(**)",))
    assert len(host.asked) == 1


async def test_calls_that_need_no_decision_are_not_recorded(tmp_path: Path) -> None:
    log, host = Log(), Host(None)
    service = ApprovalService(host, log)
    context = context_in(tmp_path)
    policy = policy_of(ApprovalSettings(mode="deny"), str(tmp_path))
    for tool in (TOOLS["read_file"], HostTool(ToolSpec(name="h", parameters={}))):
        permission = await service.permit(tool, context, {"path": "a"}, policy, ())
        assert permission == Permission(True, "", "allow_once", None)
    assert log.decisions == []


async def test_host_tools_ask_if_told(tmp_path: Path) -> None:
    log, host = Log(), Host({"outcome": "allow_once"})
    policy = policy_of(ApprovalSettings(host_tools=True), str(tmp_path))
    tool = HostTool(ToolSpec(name="deploy", parameters={}))
    permission = await ApprovalService(host, log).permit(tool, context_in(tmp_path), {"x": 1}, policy, ())
    assert permission.allowed
    assert host.asked[0].name == "deploy"
    assert host.asked[0].preview is None


async def test_what_must_be_asked_each_time_takes_no_grant(tmp_path: Path) -> None:
    log = Log()
    for answer, allowed in (({"outcome": "allow_session"}, False), ({"outcome": "allow_once"}, True)):
        host = Host(answer)
        service = ApprovalService(host, log)
        permission = await service.ask(context_in(tmp_path), "remember", {"name": "x"}, "a preview", ONCE)
        assert permission.allowed is allowed
        assert host.asked[0].options == ("allow_once", "reject")
        assert host.asked[0].preview == "a preview"


async def test_a_decision_that_cannot_be_recorded_lets_nothing_run(tmp_path: Path) -> None:
    for answer, settings in (({"outcome": "allow_once"}, {}), (None, {"mode": "auto"})):
        with pytest.raises(OSError, match="disk full"):
            await permit(tmp_path, answer, Log(failing=True), **settings)


async def test_cancelling_while_asking_is_no_answer(tmp_path: Path) -> None:
    log = Log()
    never: Callable[[], Awaitable[Any]] = anyio.sleep_forever
    with anyio.move_on_after(0.05) as scope:
        await permit(tmp_path, never, log)
    assert scope.cancelled_caught
    assert log.decisions == []


async def test_a_preview_that_fails_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0\1")
    permission, host, _ = await permit(tmp_path, {"outcome": "allow_once"})
    assert permission.allowed
    assert "binary" in (host.asked[0].preview or "")
