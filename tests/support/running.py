"""A real daemon process with a client on its stdio, or on its socket, and a home of its own.

    async with running_sidecar(llm=llm) as sidecar:
        session = await sidecar.client.sessions.create(cwd=str(sidecar.work))
        result = await sidecar.client.chat.run(session.session_id, "hello")
        assert sidecar.records(session.session_id)[-1]["type"] == "turn.end"

Use it inside the test, not in a fixture: it holds a task group open.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import anyio

from sidecar.client import SidecarClient
from sidecar.client.host import Answer, Answers, Approve
from tests.support.fake_llm import FakeLLM
from tests.support.wire import read_records

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "COVERAGE_PROCESS_START", "TIKTOKEN_CACHE_DIR")
"""What a test's daemon inherits: nothing that could configure it."""


@dataclass(slots=True)
class Place:
    """Where a daemon lives: `home` is its SIDECAR_HOME (and HOME), `work` an empty folder for sessions to work in."""

    home: Path
    work: Path
    stderr_file: Path
    env: dict[str, str] = field(default_factory=dict)
    config_file: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        config = [] if self.config_file is None else ["--config", str(self.config_file)]
        return [sys.executable, "-m", "sidecar", *arguments, *config]

    def wire(self, session_id: str, agent_id: str = "main") -> Path:
        return self.home / "sessions" / session_id / "agents" / agent_id / "wire.jsonl"

    def records(self, session_id: str, agent_id: str = "main") -> list[dict[str, Any]]:
        """Every whole line of the log, in order."""
        return read_records(self.wire(session_id, agent_id))

    def stderr(self) -> str:
        return self.stderr_file.read_text(errors="replace") if self.stderr_file.exists() else ""


@dataclass(slots=True)
class Sidecar(Place):
    """A running daemon: its place, a connected client, its process."""

    client: SidecarClient = field(kw_only=True)

    @property
    def pid(self) -> int:
        return self.client.server.server.pid

    async def kill(self) -> None:
        """kill -9, and returns when it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        process = self.client.process
        if process is not None:
            with anyio.fail_after(10):
                await process.wait()

    def rss_kib(self) -> int:
        """Resident memory; Linux only."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS")


@contextlib.contextmanager
def a_place(
    llm: FakeLLM | None = None,
    *,
    home: Path | None = None,
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    config: str | None = None,
) -> Any:
    """A `Place`; one made here is removed afterwards. `config` is the text of a `config.toml`."""
    base = Path(tempfile.mkdtemp(prefix="sidecar-test-"))
    try:
        where = home or base / "home"
        work = base / "work"
        where.mkdir(parents=True, exist_ok=True)
        work.mkdir()
        place = Place(where, work.resolve(), base / "stderr.log", _environment(where, llm, model, env))
        if config is not None:
            place.config_file = base / "config.toml"
            place.config_file.write_text(config)
        yield place
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _environment(home: Path, llm: FakeLLM | None, model: str | None, extra: Mapping[str, str] | None) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k in KEPT}
    env |= {"SIDECAR_HOME": str(home), "HOME": str(home), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    if llm is not None:
        env |= llm.environment(model)
    return env | dict(extra or {})


@asynccontextmanager
async def running_sidecar(
    *,
    llm: FakeLLM | None = None,
    home: Path | None = None,
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    config: str | None = None,
    arguments: Sequence[str] = ("serve", "--stdio"),
    approve: Approve | None = None,
    answer: Answer | None = None,
    answers: Answers | None = None,
) -> AsyncIterator[Sidecar]:
    """A daemon as a child over stdio. With `home`, a stored home is used again (and stays)."""
    with a_place(llm, home=home, model=model, env=env, config=config) as place, _open(place.stderr_file) as stderr:
        async with SidecarClient.spawn(
            place.command(*arguments),
            env=place.env,
            cwd=place.work,
            stderr=stderr,
            name="tests",
            approve=approve,
            answer=answer,
            answers=answers,
        ) as client:
            yield _running(place, client)


@asynccontextmanager
async def serving_sidecar(
    *,
    llm: FakeLLM | None = None,
    home: Path | None = None,
    model: str | None = None,
    env: Mapping[str, str] | None = None,
    config: str | None = None,
    arguments: Sequence[str] = (),
) -> AsyncIterator[tuple[Place, Path, subprocess.Popen[bytes]]]:
    """A daemon at a Unix socket: its place, the socket, its process. Clients connect by themselves."""
    with a_place(llm, home=home, model=model, env=env, config=config) as place, _open(place.stderr_file) as stderr:
        folder = Path(tempfile.mkdtemp(prefix="sc-"))
        socket = folder / "s"
        process = subprocess.Popen(
            place.command("serve", "--socket", str(socket), *arguments),
            env=place.env,
            cwd=place.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        try:
            await until(lambda: socket.exists() or process.poll() is not None, what="the socket")
            if process.poll() is not None:
                raise RuntimeError(f"the daemon ended at start: {place.stderr()[-2000:]}")
            yield place, socket, process
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
            shutil.rmtree(folder, ignore_errors=True)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            await anyio.to_thread.run_sync(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _open(path: Path) -> IO[bytes]:
    return path.open("ab")


def _running(place: Place, client: SidecarClient) -> Sidecar:
    return Sidecar(place.home, place.work, place.stderr_file, place.env, place.config_file, client=client)


async def until(condition: Any, timeout: float = 15.0, what: str = "condition") -> Any:
    """Returns the first true value of `condition()`; TimeoutError names what did not come."""
    try:
        with anyio.fail_after(timeout):
            while not (value := condition()):
                await anyio.sleep(0.005)
            return value
    except TimeoutError:
        raise TimeoutError(f"{what} did not come within {timeout} s") from None
