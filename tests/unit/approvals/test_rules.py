"""What rules, grants and modes decide, and what does not get past them."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.approvals.rules import Subject, Verdict, decide, pieces, policy_of
from sidecar.errors import Fault
from sidecar.settings import ApprovalSettings

CWD = "/work/project"


def path(name: str, argument: str | None, **more: Any) -> Subject:
    others = () if argument is None else (argument,)
    return Subject(name, argument, is_path=True, others=others, is_edit=name in ("write_file", "edit_file"), **more)


def command(line: str) -> Subject:
    return Subject("run_command", line, others=(line,))


def say(
    subject: Subject,
    mode: str = "ask",
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    grants: tuple[str, ...] = (),
) -> str:
    settings = ApprovalSettings(mode=mode, allow=allow, deny=deny)  # type: ignore[arg-type]
    return decide(subject, policy_of(settings, CWD, lambda p: p), grants).decision


@pytest.mark.parametrize(
    ("mode", "edit", "run", "read"),
    [
        ("ask", "ask", "ask", "allow"),
        ("auto_edit", "allow", "ask", "allow"),
        ("auto", "allow", "allow", "allow"),
        ("deny", "deny", "deny", "allow"),
    ],
)
def test_modes(mode: str, edit: str, run: str, read: str) -> None:
    assert say(path("write_file", f"{CWD}/a"), mode) == edit
    assert say(path("edit_file", f"{CWD}/a"), mode) == edit
    assert say(command("ls"), mode) == run
    assert say(Subject("mcp__a__b"), mode) == run
    assert say(path("read_file", f"{CWD}/a", side_effects=False), mode) == read


def test_deny_wins_then_allow_then_mode_then_grants() -> None:
    both = {"allow": ("run_command",), "deny": ("run_command",)}
    assert say(command("ls"), "auto", **both) == "deny"
    assert say(command("ls"), "deny", allow=("run_command",)) == "allow"
    assert say(command("ls"), "ask", grants=("run_command",)) == "allow"
    assert say(command("ls"), "deny", grants=("run_command",)) == "deny"
    assert say(command("ls"), "ask", deny=("run_command",), grants=("run_command",)) == "deny"
    assert say(command("ls"), "ask", grants=("write_file",)) == "ask"


def test_deny_rules_are_for_every_tool() -> None:
    secret = path("read_file", f"{CWD}/.env", side_effects=False)
    assert say(secret, deny=("read_file(.env)",)) == "deny"
    assert say(Subject("deploy", is_host=True), deny=("deploy",)) == "deny"


@pytest.mark.parametrize(
    ("glob", "argument", "allowed"),
    [
        ("src/**", f"{CWD}/src/a/b.py", True),
        ("src/**", f"{CWD}/src2/a", False),
        ("src/*", f"{CWD}/src/a", True),
        ("src/*", f"{CWD}/src/a/b", False),
        ("*.md", f"{CWD}/a.md", True),
        ("*.md", f"{CWD}/d/a.md", False),
        ("**/*.md", f"{CWD}/d/a.md", True),
        ("./src/../docs/*", f"{CWD}/docs/a", True),
        ("/tmp/**", "/tmp/x/y", True),
        ("/tmp/**", f"{CWD}/tmp/x", False),
        ("**", "/etc/passwd", False),
        ("src/{a,b}.py", f"{CWD}/src/b.py", True),
    ],
)
def test_allowed_paths(glob: str, argument: str, allowed: bool) -> None:
    assert say(path("write_file", argument), allow=(f"write_file({glob})",)) == ("allow" if allowed else "ask")


@pytest.mark.parametrize(
    ("glob", "argument", "denied"),
    [
        (".env", f"{CWD}/deep/.env", True),
        (".ENV", f"{CWD}/.env", True),
        ("*.pem", f"{CWD}/a/b.pem", True),
        ("secrets", f"{CWD}/secrets/deep/file", True),
        ("secrets/*", f"{CWD}/secrets/deep/file", True),
        ("secrets/", f"{CWD}/secrets/file", True),
        ("/etc", "/etc/ssh/key", True),
        ("/etc/**", "/etc/ssh/key", True),
        ("src/*.py", f"{CWD}/src/a.txt", False),
        ("secrets", f"{CWD}/secrets2", False),
    ],
)
def test_denied_paths_cover_what_is_below(glob: str, argument: str, denied: bool) -> None:
    assert say(path("write_file", argument), "auto", deny=(f"write_file({glob})",)) == ("deny" if denied else "allow")


def test_a_path_that_could_not_be_resolved_counts_against_the_call() -> None:
    assert say(path("write_file", None), allow=("write_file(**)",)) == "ask"
    assert say(path("write_file", None), "auto", deny=("write_file(x)",)) == "deny"


def test_the_fixed_part_of_a_path_rule_is_resolved_too() -> None:
    def resolve(name: str) -> str:
        return name.replace("/link", "/real")

    policy = policy_of(ApprovalSettings(allow=("write_file(/link/**)",), deny=("write_file(/link/x/*)",)), CWD, resolve)
    assert decide(path("write_file", "/real/a"), policy, ()).decision == "allow"
    assert decide(path("write_file", "/real/x/a"), policy, ()).decision == "deny"
    assert decide(path("write_file", "/link/a"), policy, ()).decision == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git log --oneline -3",
        "git diff 2>&1",
        "git status >/dev/null",
        "git x 2> /dev/null",
        "git a 'b c' $HOME",
    ],
)
def test_commands_that_a_rule_lets_through(line: str) -> None:
    assert say(command(line), allow=("run_command(git *)",)) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git x; rm -rf y",
        "git x && rm y",
        "git x || rm y",
        "git x | sh",
        "git x & rm y",
        "git x\nrm y",
        "git x\rrm y",
        "git `rm y`",
        "git $(rm y)",
        "git <(rm y)",
        "git x > ~/.bashrc",
        "git x >> file",
        "git x < file",
        "git x 2>/dev/nullx",
        "git x >/dev/null; rm y",
        "git x 2>&1; rm y",
        "gitx",
        "git",
        " rm; git x",
        "sudo git x",
    ],
)
def test_commands_that_a_rule_does_not_let_through(line: str) -> None:
    assert say(command(line), allow=("run_command(git *)",)) == "ask"


def test_what_a_rule_writes_out_it_allows() -> None:
    rule = ("run_command(make && make test | tee *.log)",)
    assert say(command("make && make test | tee out.log"), allow=rule) == "allow"
    assert say(command("make && make test | tee x; rm y.log"), allow=rule) == "ask"
    assert say(command("anything"), allow=("run_command(*)",)) == "allow"
    assert say(command("any; thing"), allow=("run_command(*)",)) == "ask"
    assert say(command("any; thing"), allow=("run_command",)) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x",
        "cd y && rm x",
        "true; rm x",
        "echo `rm x`",
        "echo $(rm x)",
        "(rm x)",
        "A=1 B=2 rm x",
        "sudo rm x",
        "sudo -n env A=1 rm x",
        "/bin/rm x",
        "ls\nrm x",
        "if true; then rm x; fi",
        "ls | xargs rm x",
    ],
)
def test_commands_that_a_deny_rule_catches(line: str) -> None:
    assert say(command(line), "auto", deny=("run_command(rm *)",)) == "deny"


def test_commands_that_a_deny_rule_leaves_alone() -> None:
    for line in ("ls", "firm x", "git rm x", "echo 'the rm command'"):
        assert say(command(line), "auto", deny=("run_command(rm *)",)) == "allow", line


def test_pieces_of_nothing() -> None:
    assert [p for p in pieces(" ;; ") if p] == [";;"]


def test_tools_by_glob() -> None:
    assert say(Subject("mcp__github__create"), allow=("mcp__github__*",)) == "allow"
    assert say(Subject("mcp__other__create"), allow=("mcp__github__*",)) == "ask"
    assert say(Subject("mcp__github__create"), "auto", deny=("mcp__*",)) == "deny"
    assert say(Subject("Write_file"), "ask", allow=("write_file",)) == "ask"


def test_tools_without_a_main_argument() -> None:
    call = Subject("mcp__a__b", others=("some text", "rm x"))
    assert say(call, allow=("mcp__a__b(*)",)) == "ask"
    assert say(call, "auto", deny=("mcp__a__b(rm *)",)) == "deny"
    assert say(call, "auto", deny=("mcp__a__b(other *)",)) == "allow"
    assert say(Subject("mcp__a__b"), "auto", deny=("mcp__a__b(x)",)) == "deny"


def test_host_tools_are_the_hosts_unless_told() -> None:
    def host(asked: bool, side_effects: bool = True) -> Verdict:
        policy = policy_of(ApprovalSettings(host_tools=asked, mode="ask"), CWD)
        return decide(Subject("t", is_host=True, side_effects=side_effects), policy, ())

    assert host(False) == Verdict("allow", None, "no approval needed")
    assert host(True).decision == "ask"
    assert host(True, side_effects=False).decision == "allow"


@pytest.mark.parametrize(
    "rule", ["", "run_command(", "run_command()", "a b", "(x)", "run_command(x", "write_file({a,b}" + "{a,b}" * 9 + ")"]
)
def test_a_rule_that_is_none_is_a_configuration_error(rule: str) -> None:
    for settings in (ApprovalSettings(allow=(rule,)), ApprovalSettings(deny=(rule,))):
        with pytest.raises(Fault) as caught:
            policy_of(settings, CWD)
        assert caught.value.reason == "config_invalid"
        assert caught.value.data["key"] in ("approval.allow", "approval.deny")
        assert repr(rule) in caught.value.message


def test_rules_take_no_time_on_long_commands() -> None:
    line = "git " + "--x " * 25_000
    assert say(command(line), allow=("run_command(git *--a*--b*--c*--d*)",)) == "ask"
    assert say(command(line), "auto", deny=("run_command(*--a*--b*--c*)",)) == "allow"
    assert say(command("A=1 " * 20_000 + "x"), "auto", deny=("run_command(rm *)",)) == "allow"
    assert say(command("sudo " * 20_000 + "x"), "auto", deny=("run_command(rm *)",)) == "allow"
