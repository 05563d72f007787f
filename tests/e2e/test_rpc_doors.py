"""Unix sockets and TCP: who may listen where, who may come in, several transports and clients at once."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_host import PATIENCE_S, ROOT, RawHost, SocketHost, daemon_environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets and modes")

CLIENT = {"name": "tests", "version": "1"}


def refused(tmp_path: Path, *arguments: str) -> str:
    """What stderr says of a start that must fail."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.rpc_application", "serve", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=daemon_environment(str(tmp_path)),
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"sidecar: .*; .*\n", done.stderr), done.stderr
    return done.stderr


def initialize(host: SocketHost, token: Any) -> Any:
    return host.call("system.initialize", {"protocol_version": 1, "client": CLIENT, "token": token})


# ---------------------------------------------------------------- Unix sockets


def test_socket_and_missing_directories_are_for_the_owner_alone_and_leave_with_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "made" / "by" / "it.sock"
    with RawHost("--socket", str(path)) as host:
        assert host.wait_stderr("ready") == f"sidecar: ready: socket {path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert {stat.S_IMODE(p.stat().st_mode) for p in (path.parent, path.parent.parent)} == {0o700}
        with SocketHost(str(path)) as client:
            assert client.call("test.echo", {"a": 1}) == {"a": 1}
        host.process.terminate()
        assert host.exit_code() == 0
        assert not path.exists()


def test_who_waits_for_the_path_finds_all_doors_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "token").write_text("t0ken")
    for number in range(5):
        path = tmp_path / f"{number}.sock"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        tcp = ("--tcp", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token"))
        with RawHost("--socket", str(path), *tcp) as host:
            end = time.monotonic() + PATIENCE_S
            while not path.exists():
                assert time.monotonic() < end, host.stderr
            socket.create_connection(("127.0.0.1", port)).close()
            with SocketHost(str(path)) as client:
                assert client.call("system.ping")["ok"]
            host.process.terminate()
            assert host.exit_code() == 0
        assert not [p for p in tmp_path.iterdir() if p.name != "token"]


def test_a_path_of_the_greatest_length_is_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * (104 - len(str(tmp_path))))
    path = folder / "s"
    with RawHost("--socket", str(path)), SocketHost(wait_for(path)) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert client.call("system.ping")["ok"]


def wait_for(path: Path) -> str:
    """The path, once a socket listens there."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return str(path)
        time.sleep(0.01)
    raise TimeoutError(path)


def test_places_that_are_not_safe_or_not_free_are_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for mode, others in ((0o711, True), (0o755, True), (0o701, True), (0o700, False), (0o740, False)):
        folder = tmp_path / f"mode-{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        if others:
            assert f"chmod 700 {folder}" in refused(tmp_path, "--socket", str(folder / "s"))
            assert (list(folder.iterdir()), stat.S_IMODE(folder.stat().st_mode)) == ([], mode)
        else:
            with RawHost("--socket", str(folder / "s")) as host:
                host.wait_stderr("ready")
    shared = tmp_path / "shared"  # like /tmp, whose mode nobody must be told to change
    shared.mkdir()
    shared.chmod(0o1777)
    told = refused(tmp_path, "--socket", str(shared / "s"))
    assert "chmod" not in told
    assert f"{shared}/sidecar-{os.geteuid()}" in told
    file, directory, link = tmp_path / "file", tmp_path / "directory", tmp_path / "link"
    file.write_text("precious")
    directory.mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    for path in (file, directory, link):
        assert "is no socket" in refused(tmp_path, "--socket", str(path))
    assert file.read_text() == "precious"
    assert link.is_symlink()
    assert "not a directory" in refused(tmp_path, "--socket", str(file / "s"))
    assert "shorter path" in refused(tmp_path, "--socket", str(tmp_path / ("x" * 120)))


def test_a_dead_socket_is_replaced_and_a_second_daemon_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "s"
    with RawHost("--socket", str(path)) as first:
        first.wait_stderr("ready")
        assert "another daemon" in refused(tmp_path, "--socket", str(path))
        with SocketHost(str(path)) as client:
            assert client.call("system.ping")["ok"] is True
        first.process.kill()
        first.exit_code()
        assert path.exists()
        with RawHost("--socket", str(path)) as second:
            second.wait_stderr("ready")
            with SocketHost(str(path)) as client:
                assert client.call("test.echo", {"a": 1}) == {"a": 1}


def test_a_daemon_removes_only_its_own_socket(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "s"
    with RawHost("--socket", str(path)) as host:
        host.wait_stderr("ready")
        path.unlink()
        path.write_text("someone else's")
        host.process.terminate()
        assert host.exit_code() == 0
        assert path.read_text() == "someone else's"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to be another user")
def test_a_peer_with_another_uid_is_refused(tmp_path: Path) -> None:
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); os.setuid(65534); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"system.ping"}\\n\'); print(s.recv(1000))\n'
    )
    folder = Path("/tmp") / f"sidecar-uid-{os.getpid()}"
    path = folder / "s"
    with RawHost("--socket", str(path)) as host:
        host.wait_stderr("ready")
        folder.chmod(0o711)
        path.chmod(0o666)
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
        assert done.stdout == "b''\n" or "ConnectionReset" in done.stderr or "BrokenPipe" in done.stderr, done
        host.wait_stderr("another uid")
        with SocketHost(str(path)) as client:
            assert client.call("system.ping")["ok"] is True
        host.process.terminate()
        host.exit_code()
    folder.rmdir()


# ---------------------------------------------------------------- TCP


def tcp_address(host: RawHost) -> tuple[str, int]:
    name, _, port = host.wait_stderr("ready: tcp").rpartition(" ")[2].rpartition(":")
    return name, int(port)


def test_tcp_wants_the_token_first(tmp_path: Path) -> None:
    with RawHost("--tcp", "127.0.0.1:0") as host:
        address = tcp_address(host)
        token_file = Path(host.wait_stderr("the token").rpartition(" ")[2])
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        token = token_file.read_text().strip()
        assert len(token) >= 32
        assert token not in host.stderr
        with SocketHost(address) as client:
            assert initialize(client, token)["protocol_version"] == 1
            assert client.call("test.echo", {"a": 1}) == {"a": 1}
            assert initialize(client, "wrong now")["protocol_version"] == 1
        host.process.terminate()
        assert host.exit_code() == 0
        assert not token_file.exists()


PING = b'{"jsonrpc":"2.0","id":1,"method":"system.ping"}'


@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_a_stranger_is_answered_once_and_turned_away(framing: str, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("correct-horse\n")
    shown = b'{"jsonrpc":"2.0","id":1,"method":"system.initialize","params":{"token":%b,"protocol_version":1}}'
    good = shown % b'"correct-horse"'
    firsts: list[tuple[bytes, Any]] = [
        (PING, 1),
        (shown % b'"wrong"', 1),
        (shown % b"5", 1),
        (shown % b'"correct-hors\\ud800"', 1),
        (b'{"jsonrpc":"2.0","id":7,"method":"system.initialize"}', 7),
        (b"[%b]" % good, None),
        (b'{"jsonrpc":"2.0","id":"s-1","result":1}', None),
        (b"hello", None),
        (b"5", None),
        (b"\xff", None),
        (b"[" * 300 + b"]" * 300, None),
        (b'"' + b"x" * 70_000 + b'"', None),
    ]
    with RawHost("--tcp", "127.0.0.1:0", "--token-file", str(token_file)) as host:
        address = tcp_address(host)
        for raw, call_id in firsts:
            with SocketHost(address, framing) as client:
                client.send_raw(client.encode(raw) + client.encode(good) + client.encode(PING))
                client.wait_end()
                (answer,) = client.frames
                assert (answer["id"], answer["error"]["code"]) == (call_id, -32011), raw[:60]
                assert answer["error"]["data"]["reason"] == "unauthorized"
        with SocketHost(address) as client:
            client.send_raw(b"x" * 200_000)
            client.wait_end()
            assert [frame["error"]["code"] for frame in client.frames] == [-32011]
        with socket.create_connection(address) as client:
            client.sendall(PING + b"\n" + b"x" * 1_000_000)
            data = b""
            while piece := client.recv(65536):
                data += piece
            assert b"-32011" in data, "it was cut off without a word"
        with SocketHost(address, framing) as client:
            refused_version = {"protocol_version": 99, "client": CLIENT, "token": "correct-horse"}
            assert client.call("system.initialize", refused_version)["code"] == -32010
            assert client.call("system.ping")["ok"] is True
            assert initialize(client, "correct-horse")["protocol_version"] == 1
            seen = client.call("test.hooks")
            met = ["lifespan", f"connected {seen['peer']}", f"initialized {seen['peer']}"]
            assert seen["hooks"] == met, "the application heard of strangers"
        assert token_file.exists()


def test_tcp_is_for_this_machine_unless_told_otherwise(tmp_path: Path) -> None:
    assert "--allow-remote" in refused(tmp_path, "--tcp", "0.0.0.0:0")
    assert "readable" in refused(tmp_path, "--tcp", "127.0.0.1:0", "--token-file", str(tmp_path / "none"))
    (tmp_path / "two").write_text("a\nb\n")
    assert "one line" in refused(tmp_path, "--tcp", "127.0.0.1:0", "--token-file", str(tmp_path / "two"))
    (tmp_path / "empty").write_text("\n")
    assert "one line" in refused(tmp_path, "--tcp", "127.0.0.1:0", "--token-file", str(tmp_path / "empty"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "EADDRINUSE" in refused(tmp_path, "--tcp", f"127.0.0.1:{taken.getsockname()[1]}")
    with RawHost("--tcp", "0.0.0.0:0", "--allow-remote") as host:
        assert tcp_address(host)[0] == "0.0.0.0"
    with RawHost("--tcp", "localhost:0") as host:
        assert tcp_address(host)[0] == "127.0.0.1"


# ---------------------------------------------------------------- together


def test_all_transports_and_both_framings_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path, token_file = str(tmp_path / "s"), tmp_path / "token"
    token_file.write_text("t0ken")
    arguments = ("--stdio", "--socket", path, "--tcp", "127.0.0.1:0", "--token-file", str(token_file))
    with RawHost(*arguments, framing="headers") as host:
        address = tcp_address(host)
        host.call("test.echo")
        listening = host.notified("system.ready")[0]["listen"]
        assert listening == [
            {"transport": "stdio"},
            {"transport": "socket", "address": path},
            {"transport": "tcp", "address": f"127.0.0.1:{address[1]}"},
        ]
        with SocketHost(path, "headers") as a, SocketHost(path) as b, SocketHost(address, "headers") as c:
            assert initialize(c, "t0ken")["protocol_version"] == 1
            peers = {one.call("test.hooks")["peer"].partition("-")[0] for one in (host, a, b, c)}
            assert peers == {"stdio", "socket", "tcp"}
            asking = host.start("test.call_all")
            b.wait(lambda frames: [f for f in frames if f.get("method") == "test.ask"], "the question")
            question = next(f for f in b.frames if f.get("method") == "test.ask")
            b.send({"jsonrpc": "2.0", "id": question["id"], "result": "yes"})
            assert host.reply(asking)["result"] == {"answers": ["yes"]}
            for one in (host, a, c):
                resolved = one.wait_notified("request.resolved")
                assert resolved == {"request_id": question["id"], "reason": "answered"}
            assert not b.notified("system.ready")
            host.close_stdin()
            a.wait(lambda _: "gone stdio-1" in a.call("test.hooks")["hooks"], "the end of stdio")
            assert host.process.poll() is None, "another transport is open"
            a.call("system.shutdown")
            assert host.exit_code() == 0
            for one in (a, b, c):
                one.wait_notified("test.shutdown")


def test_a_client_that_only_ends_its_side_still_gets_its_answers(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = str(tmp_path / "s")
    with RawHost("--socket", path) as host:
        host.wait_stderr("ready")
        with SocketHost(path) as client:
            client.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"test.echo"}\n' * 3)
            client.send_raw(b'{"jsonrpc":"2.0","id":2,"method":"test.call","params":{"method":"tool.call"}}')
            client.socket.shutdown(socket.SHUT_WR)
            assert client.reply(2)["result"] == {"gone": True}
            client.wait_end()
            assert sum(frame.get("id") == 1 for frame in client.frames) == 3
