"""How the daemon ends, and that it does: end of input, signals, shutdown, a dead parent, a failed start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.raw_host import PATIENCE_S, ROOT, RawHost, daemon_environment

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and process trees")


def running(host: RawHost) -> int:
    call_id: int = host.start("test.wait")
    host.call("test.echo")
    return call_id


def assert_ended_gracefully(host: RawHost, call_id: int) -> None:
    assert host.exit_code() == 0
    host.wait_end()
    assert host.notified("test.shutdown") == [{"mode": "graceful"}]
    assert host.reply(call_id)["result"] == {"ended": True}


def test_at_the_end_of_input_open_calls_are_answered() -> None:
    with RawHost() as host:
        call_id = running(host)
        host.close_stdin()
        assert_ended_gracefully(host, call_id)


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_gracefully(number: int) -> None:
    with RawHost() as host:
        call_id = running(host)
        host.process.send_signal(number)
        assert_ended_gracefully(host, call_id)


def test_a_shutdown_call_is_answered_when_all_is_done() -> None:
    with RawHost() as host:
        call_id = running(host)
        assert host.call("system.shutdown") == {}
        assert host.notified("test.shutdown"), "it was answered before the application had shut down"
        assert_ended_gracefully(host, call_id)


def test_shutdown_now_cuts_a_graceful_one_short() -> None:
    with RawHost(application={"hang": True}) as host:
        running(host)
        first = host.start("system.shutdown", {"mode": "graceful"})
        second = host.start("system.shutdown", {"mode": "now"})
        assert host.reply(first)["result"] == host.reply(second)["result"] == {}
        assert host.notified("test.shutdown") == [{"mode": "now"}]
        assert host.exit_code() == 0


def test_calls_that_come_while_it_ends_are_told_so() -> None:
    with RawHost(application={"hang": True}) as host:
        running(host)
        host.start("system.shutdown")
        assert host.call("system.ping")["ok"] is True
        error = host.call("test.echo")
        assert (error["code"], error["data"]["reason"]) == (-32090, "overloaded")


@pytest.mark.parametrize("application", [{"hang": True}, {"load_s": 60}])
def test_nothing_that_hangs_keeps_it_alive_over_five_seconds(application: dict[str, object]) -> None:
    with RawHost(application=application) as host:
        call_id = host.start("test.wait")
        host.call("system.ping")
        host.close_stdin()
        assert host.exit_code(5) == 0
        assert host.reply(call_id)


@posix
def test_a_loop_that_is_stuck_ends_too() -> None:
    with RawHost() as host:
        host.call("test.echo")
        host.start("system.shutdown")
        host.start("test.block", {"seconds": 60})
        host.send_raw(b"\n")
        host.process.send_signal(signal.SIGTERM)
        host.process.send_signal(signal.SIGINT)
        assert host.exit_code() in (0, 130)


@posix
def test_the_second_interrupt_ends_it_at_once() -> None:
    with RawHost(application={"hang": True}) as host:
        running(host)
        host.process.send_signal(signal.SIGINT)
        host.wait(lambda _: host.call("test.echo").get("code") == -32090, "the graceful end to begin")
        host.process.send_signal(signal.SIGINT)
        assert host.exit_code() == 130


def test_a_host_that_wrote_and_left_is_served() -> None:
    with RawHost(application={"load_s": 0.3}) as host:
        call_id = host.start("test.echo", {"a": 1})
        host.send_raw(b'{"jsonrpc":"2.0","id":"last","method":"test.echo"}')
        host.close_stdin()
        assert host.exit_code() == 0
        assert host.reply(call_id)["result"] == {"a": 1}
        assert host.reply("last")["result"] == {}


def test_a_host_that_reads_nothing_any_more_ends_it() -> None:
    with RawHost() as host:
        host.call("test.echo")
        host.stall()
        host.start("test.echo")
        host.wait(lambda frames: len(frames) >= 3, "the last piece before the stall")
        assert host.process.stdout is not None
        os.close(os.dup(host.process.stdout.fileno()))
        host.process.stdout.close()
        host.go_on()
        host.start("test.echo")
        assert host.exit_code() == 0


def test_a_bad_configuration_is_told_to_host_and_person() -> None:
    with RawHost(application={"fault": "config_invalid"}) as host:
        error = host.call("test.echo")
        assert (error["code"], error["data"]["reason"]) == (-32080, "config_invalid")
        assert host.exit_code() == 1
        assert host.stderr == "sidecar: The application does not start; a hint\n"


def test_an_application_that_crashes_ends_it_with_a_log() -> None:
    with RawHost(application={"crash": True}) as host:
        assert host.call("test.echo")["code"] == -32000
        assert host.exit_code() == 1
        assert "the lifespan fails" in host.stderr


def test_wrong_usage_is_exit_code_2(tmp_path: Path) -> None:
    for arguments in (["serve", "--nope"], ["nope"], []):
        done = subprocess.run(
            [sys.executable, "-m", "sidecar", *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=daemon_environment(str(tmp_path)),
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: sidecar" in done.stderr


PARENT = """
import json, os, subprocess, sys
read, write = os.pipe()
command = [sys.executable, "-m", "tests.support.rpc_application", "serve", "--stdio"]
daemon = subprocess.Popen(command, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
sibling = subprocess.Popen(["sleep", "60"], pass_fds=(write, daemon.stdout.fileno()))
os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"test.echo"}\\n')
while json.loads(daemon.stdout.readline()).get("id") != 1: pass
print(daemon.pid, sibling.pid, flush=True)
sys.stdin.read()
"""


@posix
def test_a_parent_killed_while_a_sibling_holds_the_pipes_is_noticed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=daemon_environment(str(tmp_path)),
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    daemon, sibling = (int(pid) for pid in parent.stdout.readline().split())
    try:
        assert is_alive(daemon)
        parent.kill()
        parent.wait()
        end = time.monotonic() + 5
        while is_alive(daemon) and time.monotonic() < end:
            time.sleep(0.05)
        assert not is_alive(daemon)
        assert is_alive(sibling), "the pipes were not held open"
    finally:
        os.kill(sibling, signal.SIGKILL)
        parent.stdin.close()
        parent.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_only_frames_reach_stdout() -> None:
    with RawHost() as host:
        assert host.call("test.print") == {"stdin": ""}
        assert all("jsonrpc" in frame for frame in host.frames)
        for text in ("printed by a library", "written to descriptor 1", "printed by a child"):
            host.wait_stderr(text)
        if sys.platform == "linux":
            process = f"/proc/{host.process.pid}/fd"
            assert os.readlink(f"{process}/1") == os.readlink(f"{process}/2")


@posix
@pytest.mark.parametrize("kind", ["file", "socketpair", "one pipe for both", "null"])
def test_stdio_may_be_anything(kind: str, tmp_path: Path) -> None:
    request = b'{"jsonrpc":"2.0","id":1,"method":"test.echo","params":{"a":1}}\n'
    command = [sys.executable, "-m", "tests.support.rpc_application", "serve"]
    env = daemon_environment(str(tmp_path))
    out = tmp_path / "out"
    if kind == "socketpair":
        import socket

        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = subprocess.Popen(command, stdin=theirs, stdout=theirs, cwd=ROOT, env=env)
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)
            theirs.close()
            ours.settimeout(PATIENCE_S)
            data = b""
            while piece := ours.recv(65536):
                data += piece
        assert process.wait(PATIENCE_S) == 0
    else:
        (tmp_path / "in").write_bytes(request if kind != "null" else b"")
        with (tmp_path / "in").open("rb") as stdin, out.open("wb") as stdout:
            if kind == "one pipe for both":
                done = subprocess.run(
                    command, input=request, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env
                )
                data, code = done.stdout, done.returncode
            else:
                code = subprocess.run(command, stdin=stdin, stdout=stdout, cwd=ROOT, env=env).returncode
                data = out.read_bytes()
        assert code == 0
    frames = [json.loads(line) for line in data.splitlines()]
    assert frames[0]["method"] == "system.ready"
    if kind != "null":
        assert {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}} in frames
