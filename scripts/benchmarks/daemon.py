"""The real daemon as a child over stdio, and the model that it asks: what the benchmarks drive.

The client is small on purpose: whatever it costs is counted against the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "TIKTOKEN_CACHE_DIR")

OnEvent = Callable[[dict[str, Any], int], None]
"""Gets the params of an `agent.chat.event` and the moment (CLOCK_MONOTONIC, ns) at which its bytes were read."""


def environment(home: Path, model_port: int | None = None) -> dict[str, str]:
    """What a benchmark's processes inherit: nothing that could configure them."""
    env = {k: v for k, v in os.environ.items() if k in KEPT}
    env |= {"SIDECAR_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(ROOT)}
    if model_port is not None:
        env |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1", "OPENAI_API_KEY": "none"}
    return env


class RpcError(Exception):
    """The daemon answered with an error."""


class Daemon(asyncio.Protocol):
    """One connection. Calls are answered in any order; events go to `on_event`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.stdin: asyncio.WriteTransport | None = None
        self.on_event: OnEvent | None = None
        self._held = b""
        self._last = 0
        self._open: dict[int, asyncio.Future[Any]] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    async def call(self, method: str, **params: Any) -> Any:
        """The result. The frame is written at once."""
        self._last += 1
        future = asyncio.get_running_loop().create_future()
        self._open[self._last] = future
        frame = orjson.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}) + b"\n"
        assert self.stdin is not None
        self.stdin.write(frame)
        return await asyncio.wait_for(future, 60)

    async def create(self, model: str, config: dict[str, Any] | None = None) -> str:
        """A session with nothing but the model: no tools, no memory, no skills."""
        off = {"memory": {"recall": False}, "skills": {"enabled": False}, "instructions": {"enabled": False}}
        made = await self.call("agent.session.create", model=model, config=off | (config or {}))
        return str(made["session"]["session_id"])

    async def turn(self, session_id: str, content: str, **more: Any) -> dict[str, Any]:
        """One whole turn; its `TurnResult`."""
        result: dict[str, Any] = await self.call(
            "agent.chat.send", session_id=session_id, content=content, wait=True, **more
        )
        if result["stop_reason"] != "end_turn":
            raise RpcError(f"the turn ended as {result['stop_reason']}: {result.get('error')}")
        return result

    def data_received(self, data: bytes) -> None:
        moment = time.monotonic_ns()
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if line:
                self._frame(orjson.loads(line), moment)

    def _frame(self, frame: dict[str, Any], moment: int) -> None:
        if "method" in frame:
            if frame["method"] == "agent.chat.event" and self.on_event is not None:
                self.on_event(frame["params"], moment)
            return
        future = self._open.pop(frame["id"], None)
        if future is None or future.done():
            return
        if "error" in frame:
            future.set_exception(RpcError(str(frame["error"])))
        else:
            future.set_result(frame["result"])

    # ---------------------------------------------------------------- what the system says of it

    def cpu_ns(self) -> int:
        """CPU time of all its threads so far. Linux counts in nanoseconds; 0 elsewhere."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(task.read_text().split()[0])
        return total

    def rss_kib(self) -> int:
        """Resident memory; 0 where /proc is not."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    return int(line.split()[1])
        return 0


def spawn(folder: Path, log: Path | None = None, model_port: int | None = None) -> subprocess.Popen[bytes]:
    """A daemon on stdio whose home is in `folder`; its stderr goes to `log`."""
    with (log or Path(os.devnull)).open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "sidecar", "serve", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(folder / "home", model_port),
            cwd=folder,
            bufsize=0,
        )


@asynccontextmanager
async def running_daemon() -> AsyncIterator[tuple[Daemon, int]]:
    """A daemon that is ready and warm, and the port of its model. Both end with the block."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, running_model() as port:
        log = Path(folder) / "stderr.log"
        process = spawn(Path(folder), log, port)
        daemon = Daemon(process)
        loop = asyncio.get_running_loop()
        stdout, _ = await loop.connect_read_pipe(lambda: daemon, process.stdout)
        daemon.stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        try:
            await daemon.call("system.initialize", protocol_version=1, client={"name": "bench", "version": "1"})
            yield daemon, port
        except Exception:
            print(f"the daemon's log ends with:\n{log.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            raise
        finally:
            daemon.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, 10)
            process.kill()
            process.wait()
            stdout.close()


@contextlib.contextmanager
def running_model() -> Any:
    """The port of a model process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.benchmarks.model"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(Path("/nonexistent")),
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)
