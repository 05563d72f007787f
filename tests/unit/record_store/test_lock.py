"""The lock: one holder, a growing token, nothing left behind by the dead."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from record_store import lock
from record_store.errors import SessionLocked, SessionNotFound, StaleWriter
from record_store.names import SessionPaths

HOLD = """
import sys
from pathlib import Path
from record_store import lock
from record_store.names import SessionPaths
held = lock.acquire(SessionPaths(Path(sys.argv[1])), "one")
print(held.lease.token, flush=True)
sys.stdin.read()
"""


def start_holder(root: Path) -> tuple[subprocess.Popen[str], int]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, int(child.stdout.readline())


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_a_session_has_one_holder(tmp_path: Path) -> None:
    paths = SessionPaths(tmp_path)
    held = lock.acquire(paths, "one")
    content = json.loads(paths.lock.read_text())
    assert content == {"token": held.lease.token, "pid": os.getpid(), "host": socket.gethostname()[:64]}
    assert os.stat(paths.lock).st_mode & 0o777 == 0o600
    with pytest.raises(SessionLocked) as caught:
        lock.acquire(paths, "one")
    assert caught.value.pid == os.getpid()
    held.check()
    held.release()
    held.release()
    with pytest.raises(StaleWriter):
        held.check()
    again = lock.acquire(paths, "one")
    assert again.lease.token > held.lease.token
    again.release()


def test_another_process_is_told_who_holds_it_and_takes_over_from_the_killed(tmp_path: Path) -> None:
    child, token = start_holder(tmp_path)
    try:
        with pytest.raises(SessionLocked) as caught:
            lock.acquire(SessionPaths(tmp_path), "one")
        assert (caught.value.pid, caught.value.host) == (child.pid, socket.gethostname()[:64])
        child.send_signal(signal.SIGKILL)
        child.wait()
        held = lock.acquire(SessionPaths(tmp_path), "one")
        assert held.lease.token > token
        held.release()
    finally:
        end(child)


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    held = lock.acquire(SessionPaths(tmp_path), "one")
    sleeper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        held.release()
        lock.acquire(SessionPaths(tmp_path), "one").release()
    finally:
        sleeper.kill()
        sleeper.communicate()


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"token":', b"\0" * 256, b"[]"])
def test_a_torn_lock_file_stops_nobody_and_tokens_still_grow(tmp_path: Path, content: bytes) -> None:
    paths = SessionPaths(tmp_path)
    first = lock.acquire(paths, "one")
    first.release()
    paths.lock.write_bytes(content)
    second = lock.acquire(paths, "one")
    assert second.lease.token > first.lease.token
    second.check()
    second.release()


def test_a_holder_whose_file_was_removed_is_stale(tmp_path: Path) -> None:
    paths = SessionPaths(tmp_path)
    old = lock.acquire(paths, "one")
    paths.lock.unlink()
    with pytest.raises(StaleWriter):
        old.check()
    new = lock.acquire(paths, "one")
    assert new.lease.token > old.lease.token
    old.release()
    new.check()
    new.release()


def test_a_holder_that_finds_another_token_is_stale(tmp_path: Path) -> None:
    """As on a system whose locks do not hold: a second writer was let in and left its token."""
    paths = SessionPaths(tmp_path)
    old = lock.acquire(paths, "one")
    line = paths.lock.read_bytes()
    foreign = line.replace(b"%d" % old.lease.token, b"%d" % (old.lease.token + 1))
    with paths.lock.open("r+b") as file:
        file.write(foreign)
    with pytest.raises(StaleWriter):
        old.check()
    old.release()
    assert paths.lock.read_bytes() == foreign


def test_a_session_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        lock.acquire(SessionPaths(tmp_path / "nothing"), "one")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("token", [2**64, 10**400, -1, 1.5e300, float("inf"), "many", None])
def test_a_token_that_nobody_wrote_stops_nobody(tmp_path: Path, token: object) -> None:
    paths = SessionPaths(tmp_path)
    paths.lock.write_text(json.dumps({"token": token, "pid": 1, "host": "h"}).ljust(255)[:255] + "\n")
    for _ in range(2):
        held = lock.acquire(paths, "one")
        held.check()
        held.release()
