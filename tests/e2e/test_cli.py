"""The command line, from outside: exit codes, what goes to stdout and what to stderr, and that nothing leaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.log_editor import edit, lines_of, sealed
from tests.support.running import KEPT, ROOT

KEY = "sk-test-0123456789abcdefSECRET"


def script(request: dict[str, Any], n: int) -> Reply:
    last = request["messages"][-1]
    text = json.dumps(last.get("content"), ensure_ascii=False)
    whole = json.dumps(request["messages"])
    if "slow" in text:
        return Reply("too late", delay=30)
    if "write it" in text:
        return Reply("w", tool_calls=[call("write_file", {"path": "x.txt", "content": "hi"}, f"c{n}")])
    if "in a loop" in whole:
        return Reply("w", tool_calls=[call("list_dir", {}, f"c{n}")])
    if "unauthorized" in text:
        return Reply(status=401, error={"message": f"bad key {KEY}"})
    if "refuse" in text:
        return Reply("no", finish_reason="content_filter")
    return Reply("answer ä😀", finish_reason="length" if "long" in text else None)


@dataclass(slots=True)
class Shell:
    """A user's shell: a home and a folder with spaces and letters beyond ASCII, and a key in its environment."""

    home: Path
    work: Path
    llm: FakeLLM
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "sidecar", *arguments],
            env=self.env | (env or {}),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(
        self, *arguments: str, code: int = 0, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> tuple[str, str]:
        """stdout and stderr of a command that exits with `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "sidecar", *arguments],
            input=stdin,
            capture_output=True,
            env=self.env | (env or {}),
            cwd=self.work,
            timeout=60,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, f"{arguments}: {err[-1500:]}"
        assert KEY not in out + err, f"{arguments} shows the key"
        assert done.returncode == code, f"{arguments} exits {done.returncode}: {out[-300:]} {err[-600:]}"
        if code:
            assert err.strip(), f"{arguments} does not say why it failed"
        return out, err

    def wire(self, sid: str) -> Path:
        return self.home / "sessions" / sid / "agents" / "main" / "wire.jsonl"


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with FakeLLM(script) as llm, tempfile.TemporaryDirectory(prefix="a home ä ") as folder:
        home, work = Path(folder).resolve() / "data ö", Path(folder).resolve() / "wörk dir"
        home.mkdir()
        work.mkdir()
        env = {k: v for k, v in os.environ.items() if k in KEPT}
        env |= {"SIDECAR_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(ROOT)}
        yield Shell(home, work, llm, env | llm.environment() | {"OPENAI_API_KEY": KEY})


@pytest.fixture(scope="module")
def sid(shell: Shell) -> str:
    """A session with one turn."""
    return str(json.loads(shell("run", "first words", "--output", "json")[0])["session_id"])


def test_run_prints_the_answer_and_nothing_else(shell: Shell) -> None:
    assert shell("run", "hello") == ("answer ä😀\n", "")
    assert shell("run", stdin="from stdin ä".encode())[0] == "answer ä😀\n"
    assert shell("run", "-", stdin=b"dash")[0] == "answer ä😀\n"
    assert "dash" in json.dumps(shell.llm.requests[-1].texts)


def test_run_json_is_one_result_and_stream_json_ends_with_it(shell: Shell, sid: str) -> None:
    out, _ = shell("run", "more", "--session", sid, "--output", "stream-json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["event"]["type"] == "turn_started"
    assert lines[-2]["event"]["type"] == "turn_ended"
    assert {line["session_id"] for line in lines} == {sid}
    assert (lines[-1]["stop_reason"], lines[-1]["text"]) == ("end_turn", "answer ä😀")
    assert set(lines[-1]["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens", "requests"}
    assert "first words" in json.dumps(shell.llm.requests[-1].texts)


def test_run_continues_the_last_session_of_this_folder(shell: Shell, tmp_path: Path) -> None:
    made = json.loads(shell("run", "remember", "--output", "json")[0])["session_id"]
    elsewhere = shell("run", "elsewhere", "--output", "json", "--cwd", str(tmp_path))
    assert json.loads(elsewhere[0])["session_id"] != made
    assert json.loads(shell("run", "and on", "--continue", "--output", "json")[0])["session_id"] == made
    empty = tmp_path / "empty"
    empty.mkdir()
    shell("run", "x", "--continue", "--cwd", str(empty), code=1)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["unauthorized"], 1),
        (["x", "--session", "nope"], 1),
        (["x", "--session", "../up"], 1),
        (["x", "--model", "nowhere/m"], 1),
        (["x", "--config", "/no/such.toml"], 1),
        (["x", "--bogus"], 2),
        (["x", "--output", "xml"], 2),
        (["x", "--tools", "some"], 2),
        (["x", "--approve", "maybe"], 2),
        (["x", "--max-steps", "0"], 2),
        (["x", "--max-steps", "some"], 2),
        (["x", "--timeout", "nan"], 2),
        (["x", "--timeout", "-1"], 2),
        (["x", "--cwd", "/no/such"], 2),
        (["x", "--session", "a", "--continue"], 2),
        ([""], 2),
        ([], 2),
        (["please refuse"], 3),
        (["a long one"], 3),
        (["in a loop", "--max-steps", "2"], 3),
        (["slow", "--timeout", "0.5"], 3),
    ],
)
def test_run_exit_codes(shell: Shell, arguments: list[str], code: int) -> None:
    _, err = shell("run", *arguments, code=code)
    assert "_positive" not in err


def test_without_a_key_run_says_what_to_set(shell: Shell) -> None:
    bare = {k: v for k, v in shell.env.items() if not k.startswith(("OPENAI", "ANTHROPIC", "SIDECAR_MODEL"))}
    _, err = Shell(shell.home, shell.work, shell.llm, bare)("run", "x", code=1)
    assert "OPENAI_API_KEY" in err


def test_a_home_that_cannot_be_made_is_named(shell: Shell) -> None:
    (shell.work / "a file").touch()
    _, err = shell("run", "x", code=1, env={"SIDECAR_HOME": str(shell.work / "a file" / "home")})
    assert "SIDECAR_HOME" in err
    _, err = shell("sessions", code=1, env={"SIDECAR_HOME": str(shell.work / "a file")})
    assert "SIDECAR_HOME" in err


@pytest.mark.parametrize("folder", ["~no-such-user-here/x", "/" + "x" * 300, "relative/x"])
def test_a_folder_that_is_none_is_named(shell: Shell, folder: str) -> None:
    _, err = shell("run", "x", "--cwd", folder, code=2)
    assert folder in err
    shell("sessions", "--cwd", folder)


def test_the_configuration_file_is_named(shell: Shell, tmp_path: Path) -> None:
    default = tmp_path / "sidecar" / "config.toml"
    where = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert f"there is no {default}" in shell("doctor", env=where)[0]
    default.parent.mkdir()
    default.write_text("")
    assert f"configuration is valid ({default})" in shell("doctor", env=where)[0]
    default.write_text("not toml =")
    assert str(default) in shell("run", "x", code=1, env=where)[1]
    missing = str(tmp_path / "missing.toml")
    cannot_be_looked_for = str(tmp_path / ("x" * 300))
    for command in (["run", "x"], ["serve", "--stdio"]):
        assert missing in shell(*command, "--config", missing, code=1)[1]
        assert cannot_be_looked_for in shell(*command, code=1, env={"XDG_CONFIG_HOME": cannot_be_looked_for})[1]


@pytest.mark.parametrize("command", ["serve", "serve --stdio", "run x", "record verify"])
def test_help_is_given_wherever_it_is_asked_for(shell: Shell, command: str) -> None:
    out, _ = shell(*command.split(), "--help")
    assert out.startswith(f"usage: sidecar {command.split()[0]}")


@pytest.mark.parametrize("command", ["run", "acp", "sessions", "record verify"])
def test_an_unknown_flag_is_told_with_the_usage_of_its_command(shell: Shell, command: str) -> None:
    _, err = shell(*command.split(), "x", "--no-such-flag", code=2)
    assert err.startswith(f"usage: sidecar {command} ")
    assert "--no-such-flag" in err


def test_without_a_terminal_only_auto_approves(shell: Shell) -> None:
    target = shell.work / "x.txt"
    for approve in ("ask", "deny"):
        shell("run", "write it", "--tools", "edit", "--approve", approve)
        assert not target.exists()
    shell("run", "write it", "--tools", "edit", "--approve", "auto")
    assert target.read_text() == "hi"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_cancels_the_turn(shell: Shell, name: str) -> None:
    before = len(shell.llm.requests)
    process = shell.start("run", "slow", "--output", "json")
    while len(shell.llm.requests) == before:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert result["stop_reason"] == "cancelled"
    assert '"stop_reason":"cancelled"' in shell.wire(result["session_id"]).read_text()


def test_an_interrupt_before_the_turn_is_quiet(shell: Shell) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "run"],
        env=shell.env,
        cwd=shell.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    # More than a pipe holds: when it is written, the command reads.
    process.stdin.write(b"word " * 100_000)
    for _ in range(100):
        # A signal just before a read begins is seen when the read ends: the next one interrupts it.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            continue
    assert process.poll() == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_sessions_json_is_one_array(shell: Shell, sid: str) -> None:
    rows = json.loads(shell("sessions", "--json")[0])
    mine = next(r for r in rows if r["session_id"] == sid)
    assert set(mine) == {
        "session_id", "title", "cwd", "model", "created_at", "updated_at", "state", "turns", "agents",
        "tools_builtin", "used", "window",
    }  # fmt: skip
    assert (mine["cwd"], mine["tools_builtin"], mine["state"]) == (str(shell.work), "read", "idle")
    assert [r["updated_at"] for r in rows] == sorted((r["updated_at"] for r in rows), reverse=True)
    assert sid in shell("sessions")[0]
    assert json.loads(shell("sessions", "--json", env={"SIDECAR_HOME": str(shell.home / "none")})[0]) == []
    shell("sessions", "--bogus", code=2)


def test_record_commands(shell: Shell, sid: str, tmp_path: Path) -> None:
    wire = shell.wire(sid).read_bytes()
    assert len(shell("record", "show", sid)[0].splitlines()) == wire.count(b"\n")
    shown = shell("record", "show", sid, "--json", "--from", "2", "--to", "3")[0].splitlines()
    assert [json.loads(line)["seq"] for line in shown] == [2, 3]
    assert "no problems" in shell("record", "verify", sid)[0]
    assert "first words" in shell("record", "grep", sid, "FIRST words")[0]
    assert shell("record", "export", sid)[0].encode() == wire
    out = tmp_path / "o ut ä.jsonl"
    shell("record", "export", sid, "--out", str(out), "--format", "jsonl")
    assert out.read_bytes() == wire
    page = shell("record", "export", sid, "--format", "markdown")[0]
    assert "first words" in page
    assert "answer ä😀" in page
    assert shell.wire(sid).read_bytes() == wire


def test_record_verify_fails_on_damage(shell: Shell) -> None:
    made = json.loads(shell("run", "to be damaged", "--output", "json")[0])["session_id"]

    def blank(lines: list[bytes]) -> None:
        lines[4] = b"garbage"

    wire = edit(shell.wire(made), blank)
    process = shell.start("record", "verify", made)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"line 5: json" in out
    assert shell("record", "export", made)[0].encode() == wire
    assert shell("run", "go on", "--session", made)[0] == "answer ä😀\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["record", "show"],
        ["record", "verify"],
        ["record", "export"],
        ["record", "export", "--format", "markdown"],
        ["inspect", "--html", "never.html"],
        ["compact"],
    ],
)
def test_an_unknown_session_is_named(shell: Shell, arguments: list[str]) -> None:
    out, err = shell(*arguments, "no-such-one", code=1)
    assert "no-such-one" in err
    assert out == ""
    assert not (shell.work / "never.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["nonsense"], 2),
        (["record"], 2),
        (["record", "show"], 2),
        (["record", "grep", "SID"], 2),
        (["record", "export", "SID", "--format", "xml"], 2),
        (["record", "export", "SID", "--out", "/no/such/folder/x"], 1),
        (["record", "grep", "SID", "(", "--regex"], 1),
        (["inspect", "SID"], 2),
        (["inspect", "SID", "--html", "/no/such/folder/x.html"], 1),
        (["inspect", "SID", "--html", "/"], 1),
        (["compact"], 2),
        (["compact", "SID", "--connect", "/no/such/socket"], 1),
        (["run", "x", "--connect", "/no/such/socket"], 1),
        (["serve", "--bogus"], 2),
        (["serve", "--config", "/no/such.toml"], 1),
    ],
)
def test_failures_are_told_in_a_line(shell: Shell, sid: str, arguments: list[str], code: int) -> None:
    shell(*(sid if a == "SID" else a for a in arguments), code=code)


def test_compact_and_inspect(shell: Shell, tmp_path: Path) -> None:
    made = json.loads(shell("run", "small", "--output", "json")[0])["session_id"]
    out, err = shell("inspect", made, "--html", str(tmp_path / "p ä.html"))
    page = (tmp_path / "p ä.html").read_text("utf-8")
    assert "<html" in page
    assert 'src="http' not in page
    assert str(tmp_path) in out
    # Too short to get smaller: a clear word, no trace.
    _, err = shell("compact", made, code=1)
    assert "no_gain" in err


def test_doctor_names_keys_and_shows_none(shell: Shell) -> None:
    out, _ = shell("doctor")
    for word in ("OPENAI_API_KEY is set", "ANTHROPIC_API_KEY", "vocabulary", "store", "sidecar"):
        assert word in out
    broken = shell.home / "not a folder"
    broken.write_text("")
    process = shell.start("doctor", env={"SIDECAR_HOME": str(broken)})
    out_bytes, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"bad   store" in out_bytes
    assert b"Traceback" not in err


@pytest.mark.parametrize("command", [["run", "x"], ["serve", "--stdio"], ["serve"]])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[compaction]\nnope = 1\n", ["compaction.nope"]),
        ("[loop_control]\nmax_steps = 0\n", ["loop_control.max_steps", "0", "1 to 1000000"]),
        ("not toml =", ["TOML"]),
    ],
)
def test_a_bad_configuration_is_named(shell: Shell, tmp_path: Path, command: list[str], text: str, words: Any) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    _, err = shell(*command, "--config", str(file), code=1)
    assert [w for w in words if w not in err] == []


def test_the_environment_configures_too(shell: Shell) -> None:
    _, err = shell("run", "x", code=1, env={"SIDECAR_LOOP_CONTROL_MAX_STEPS": "0"})
    assert "loop_control.max_steps" in err
    shell("run", "in a loop", code=3, env={"SIDECAR_LOOP_CONTROL_MAX_STEPS": "2", "SIDECAR_OF_ANOTHER_PROGRAM": "x"})
    for command in (["run", "x"], ["serve", "--stdio"]):
        _, err = shell(*command, code=1, env={"SIDECAR_COMPACTION_TRIGGER": "0.7"})
        assert "SIDECAR_COMPACTION_TRIGGER" in err
        assert "SIDECAR_COMPACTION_SOFT_RATIO" in err


@pytest.mark.parametrize("command", ["record show {} --json", "run more --output stream-json --session {}", "sessions"])
def test_a_reader_that_leaves_early(shell: Shell, sid: str, command: str) -> None:
    line = f"{sys.executable} -m sidecar {command.format(sid)} | true"
    done = subprocess.run(line, shell=True, env=shell.env, cwd=shell.work, capture_output=True, timeout=30, check=False)
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"Exception ignored" not in done.stderr, done.stderr
    assert shell("record", "verify", sid)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["record show {}", "record export {}", "record grep {} words", "sessions --json"])
def test_output_that_finds_no_room_is_told_in_a_line(shell: Shell, sid: str, command: str) -> None:
    arguments = [sys.executable, "-m", "sidecar", *command.format(sid).split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            arguments, env=shell.env, cwd=shell.work, stdout=full, stderr=subprocess.PIPE, timeout=30, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["sidecar: the output cannot be written: No space left on device"]


def test_output_into_a_pipe_is_utf8_in_every_locale(shell: Shell) -> None:
    made = json.loads(shell("run", "wörds 漢字", "--output", "json")[0])["session_id"]
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (["record", "show", made], ["record", "show", made, "--json"], ["sessions"]):
        assert "wörds 漢字" in shell(*command, env=ascii_only)[0]


@pytest.mark.parametrize("time", [10**18, -(10**18), 2**80, True, None, "now"])
def test_a_time_that_no_calendar_has_is_shown_as_none(shell: Shell, time: Any) -> None:
    made = json.loads(shell("run", "timeless", "--output", "json")[0])["session_id"]
    wire = shell.wire(made)
    seq = len(lines_of(wire)) + 1
    wire.write_bytes(wire.read_bytes() + sealed({"type": "from.the.future", "time": time}, seq) + b"\n")
    out, _ = shell("record", "show", made)
    assert out.splitlines()[-1].split()[-2:] == ["from.the.future", "{}"]
