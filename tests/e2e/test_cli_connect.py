"""`sidecar run --connect`: a turn in a daemon that runs already, and what becomes of it when that daemon does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import IO

import pytest

from tests.support.fake_llm import FakeLLM, Reply
from tests.support.running import Place, serving_sidecar

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")


def start(place: Place, socket: object, *arguments: str) -> subprocess.Popen[bytes]:
    command = place.command("run", "--connect", str(socket), *arguments, "hello")
    return subprocess.Popen(
        command,
        env=place.env,
        cwd=place.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_text(stream: IO[bytes] | None) -> None:
    assert stream is not None
    for line in stream:
        if b'"text_delta"' in line:
            return
    raise AssertionError("no text came")


@pytest.mark.anyio
@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_daemon_that_dies_ends_the_command(interrupted: bool) -> None:
    with FakeLLM(lambda request, n: Reply("slow answer", stall_after=2)) as llm:
        async with serving_sidecar(llm=llm) as (place, socket, daemon):
            run = start(place, socket, "--output", "stream-json")
            wait_for_text(run.stdout)
            if interrupted:
                daemon.send_signal(signal.SIGSTOP)
                run.send_signal(signal.SIGINT)
                time.sleep(0.2)
            daemon.kill()
            _, complaint = run.communicate(timeout=15)
            assert run.returncode == 1
            assert complaint.decode() == f"sidecar: no daemon answers at {socket}\n"


@pytest.mark.anyio
async def test_an_interrupt_and_the_time_limit_end_the_turn_there() -> None:
    with FakeLLM(lambda request, n: Reply("slow answer", stall_after=2)) as llm:
        async with serving_sidecar(llm=llm) as (place, socket, _):
            run = start(place, socket, "--output", "stream-json")
            wait_for_text(run.stdout)
            run.send_signal(signal.SIGINT)
            rest, _ = run.communicate(timeout=15)
            assert run.returncode == 130
            assert b'"stop_reason":"cancelled"' in rest.splitlines()[-1]
            limited = start(place, socket, "--timeout", "0.5")
            limited.communicate(timeout=15)
            assert limited.returncode == 3
