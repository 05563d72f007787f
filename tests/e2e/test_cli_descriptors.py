"""Commands whose parent has closed one of the first three descriptors, as some schedulers and supervisors do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.fake_llm import FakeLLM, Reply
from tests.support.running import a_place

COMMAND = f"{sys.executable} -m sidecar run --output text hello"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("closed", "printed"), [("<&-", b"hi\n"), (">&-", b""), ("2>&-", b"hi\n"), ("<&- 2>&-", b"hi\n")]
)
def test_a_closed_descriptor_costs_only_what_would_go_there(closed: str, printed: bytes) -> None:
    with FakeLLM(lambda request, n: Reply("hi")) as llm, a_place(llm) as place:
        done = subprocess.run(
            f"{COMMAND} {closed}", shell=True, env=place.env, cwd=place.work, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_complaints_do_not_move_to_stdout() -> None:
    with a_place() as place:
        done = subprocess.run(
            f"{COMMAND} 2>&-", shell=True, env=place.env, cwd=place.work, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (1, b"")
