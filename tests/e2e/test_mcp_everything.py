"""The reference server of the protocol's own project, over stdio and over HTTP: listed, called, cancelled, killed and
restarted, through the pool as a session uses it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from protocol.messages import ImagePart
from sidecar.settings import Mcp, McpServer
from sidecar.tools.mcp import McpPool
from sidecar.tools.schema import mismatch
from tests.support.node import node
from tests.support.tools import context_in, text_of

PACKAGE = "@modelcontextprotocol/server-everything"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server's script: as `scripts/test` installed it, else from npm in a temporary folder."""
    installed = os.environ.get("SIDECAR_TEST_NODE")
    folder = Path(installed) if installed else tmp_path_factory.mktemp("npm")
    script = folder / "node_modules" / PACKAGE / "dist" / "index.js"
    npm = shutil.which("npm")
    if not script.exists() and npm is None:
        pytest.skip("NPM IS MISSING: the real MCP server was not tried")
    if not script.exists():
        folder = tmp_path_factory.mktemp("npm-everything")
        script = folder / "node_modules" / PACKAGE / "dist" / "index.js"
        done = subprocess.run(
            [str(npm), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), PACKAGE],
            capture_output=True,
            text=True,
            timeout=180,
        )
        if done.returncode != 0:
            pytest.skip(f"NPM COULD NOT INSTALL {PACKAGE}: {done.stderr[-500:]}")
    return str(script)


class Session:
    def __init__(self, pool: McpPool, notices: list[tuple[str, str]], folder: Path) -> None:
        self.pool = pool
        self.notices = notices
        self._context = context_in(folder)

    async def call(self, name: str, **arguments: object) -> tuple[bool, str]:
        tool = {t.spec.name: t for t in self.pool.tools()}[f"mcp__everything__{name}"]
        assert await mismatch(tool.spec, arguments) is None
        outcome = await tool.run(self._context, arguments)
        return outcome.is_error, text_of(outcome)

    async def noticed(self, kind: str) -> None:
        with anyio.fail_after(20):
            while kind not in [k for k, _ in self.notices]:
                await anyio.sleep(0.01)


@asynccontextmanager
async def session(server: McpServer, folder: Path) -> AsyncIterator[Session]:
    notices: list[tuple[str, str]] = []
    async with anyio.create_task_group() as group:
        pool = McpPool(
            Mcp(servers={"everything": server}),
            group,
            lambda kind, text: notices.append((kind, text)),
            environment={**os.environ, "SOME_TOKEN": "secret"},
            cwd=str(folder),
        )
        assert await pool.ready()
        yield Session(pool, notices, folder)
        await pool.aclose()


async def try_everything(s: Session) -> None:
    names = [t.spec.name for t in s.pool.tools()]
    assert names == sorted(names)
    assert {"mcp__everything__echo", "mcp__everything__get-sum", "mcp__everything__get-tiny-image"} <= set(names)
    assert await s.call("echo", message="hello") == (False, "Echo: hello")
    assert "5" in (await s.call("get-sum", a=2, b=3))[1]
    assert "temperature" in (await s.call("get-structured-content", location="New York"))[1]
    tiny = {t.spec.name: t for t in s.pool.tools()}["mcp__everything__get-tiny-image"]
    outcome = await tool_images(s, tiny.spec.name)
    assert [p.media_type for p in outcome] == ["image/png"]
    wrong = await mismatch({t.spec.name: t for t in s.pool.tools()}["mcp__everything__echo"].spec, {"message": 3})
    assert "`message`: must be a string, got 3" in (wrong or "")


async def tool_images(s: Session, name: str) -> list[ImagePart]:
    tool = {t.spec.name: t for t in s.pool.tools()}[name]
    return [p for p in (await tool.run(s._context, {})).content if isinstance(p, ImagePart)]


async def cancel_a_long_call(s: Session) -> None:
    with anyio.move_on_after(0.3) as scope:
        await s.call("trigger-long-running-operation", duration=30, steps=30)
    assert scope.cancelled_caught
    assert await s.call("echo", message="after") == (False, "Echo: after")


def children() -> list[int]:
    """Pids of the servers that this process started."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "node"], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


async def test_over_stdio(program: str, tmp_path: Path) -> None:
    server = McpServer(command=node(), args=(program, "stdio"), timeout_s=20, trust_hints=True)
    async with session(server, tmp_path) as s:
        effects = {t.spec.name.rpartition("__")[2]: t.side_effects for t in s.pool.tools()}
        assert effects["echo"] is False
        assert effects["gzip-file-as-resource"] is True
        await try_everything(s)
        assert "SOME_TOKEN" not in (await s.call("get-env"))[1]
        await cancel_a_long_call(s)
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        await s.noticed("mcp_server_died")
        assert await s.call("echo", message="restarted") == (False, "Echo: restarted")
        assert children() != [pid]
    assert children() == []


class HttpServer:
    """The same program, listening on a port of its own."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"

    async def start(self) -> None:
        self._process = subprocess.Popen(
            [node(), self._program, "streamableHttp"],
            env={**os.environ, "PORT": str(self._port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with anyio.fail_after(20):
            while True:
                try:
                    return await (await anyio.connect_tcp("127.0.0.1", self._port)).aclose()
                except OSError:
                    await anyio.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def test_over_http(program: str, tmp_path: Path) -> None:
    server = HttpServer(program)
    try:
        await server.start()
        async with session(McpServer(url=server.url, headers={"X-Test": "1"}, timeout_s=20), tmp_path) as s:
            await try_everything(s)
            await cancel_a_long_call(s)
            server.kill()
            assert (await s.call("echo", message="down"))[0]
            await server.start()
            assert await s.call("echo", message="up again") == (False, "Echo: up again")
    finally:
        server.kill()
