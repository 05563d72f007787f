"""Failpoints: off unless asked for, and doing what they are asked."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from record_store import failpoints

PACKAGE = Path(failpoints.__file__).parent


def test_they_are_off() -> None:
    assert failpoints.on is False


def test_every_name_in_the_code_is_listed_and_every_listed_one_is_used() -> None:
    source = "\n".join(p.read_text() for p in PACKAGE.glob("*.py") if p.name != "failpoints.py")
    used = set(re.findall(r'failpoints\.hit\("([a-z.]+)"\)', source))
    used |= set(re.findall(r'files\.write_all\(.*"([a-z.]+)"\)', source))
    atomic = set(re.findall(r'write_atomic\([^"]*"([a-z]+)"', source))
    used |= {f"{name}.{step}" for name in atomic for step in failpoints.ATOMIC_STEPS} - {"session.sync"}
    assert used == set(failpoints.NAMES)


def test_a_rule_acts_when_it_should() -> None:
    def fires() -> bool:
        try:
            failpoints.hit("log.sync")
        except OSError as error:
            return error.errno == errno.EIO
        return False

    def errors(spec: str) -> list[int]:
        with failpoints.active(spec):
            return [n for n in range(1, 6) if fires()]

    assert errors("log.sync=EIO") == [1, 2, 3, 4, 5]
    assert errors("log.sync=EIO@2") == [2]
    assert errors("log.sync=EIO@4+") == [4, 5]
    assert errors("log.sync=EIO@2-3") == [2, 3]
    assert errors("log.*=EIO@1") == [1]
    assert errors("other=EIO") == []
    assert errors("other=ENOSPC; log.sync=EIO@5") == [5]


def test_writes_take_what_they_are_told(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with failpoints.active("w=short:3"):
        assert failpoints.write("w", fd, b"abcdef") == 3
    with failpoints.active("w=part:2:ENOSPC@1"):
        assert failpoints.write("w", fd, b"xyz") == 2
        with pytest.raises(OSError) as caught:
            failpoints.write("w", fd, b"z")
        assert caught.value.errno == errno.ENOSPC
        assert failpoints.write("w", fd, b"z") == 1
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"abcxyz"


@pytest.mark.parametrize("spec", ["x", "x=", "x=nonsense", "x=short", "x=part:x:EIO", "x=EIO@z"])
def test_a_wrong_rule_is_refused(spec: str) -> None:
    with pytest.raises(ValueError):
        failpoints.parse(spec)


@pytest.mark.parametrize(("action", "left"), [("crash", b""), ("torn:4", b"abcd")])
def test_a_crash_is_one(tmp_path: Path, action: str, left: bytes) -> None:
    script = (
        "import os, sys; from record_store import failpoints\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "failpoints.write('w', fd, b'abcdef'); os.write(1, b'alive')"
    )
    environment = {**os.environ, failpoints.ENVIRONMENT: f"w={action}"}
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file")], capture_output=True, env=environment, check=False
    )
    assert child.returncode == -9
    assert child.stdout == b""
    assert (tmp_path / "file").read_bytes() == left
