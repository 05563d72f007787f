"""The daemon's side of a connection, scripted: for tests of clients. A real Unix socket, newline-delimited JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

SESSION = {
    "session_id": "s1",
    "title": "",
    "cwd": "/",
    "model": None,
    "created_at": 1,
    "updated_at": 1,
    "state": "idle",
    "turns": 0,
    "agents": ["main"],
    "tools_builtin": "none",
    "used": 0,
    "window": 1,
}

SERVER = {"protocol_version": 1, "server": {"name": "fake", "version": "0", "pid": 1}, "capabilities": {}}


class FakeDaemon:
    """Answers from `results` (method to result, or to a function of params); what is not there it leaves unanswered.

    `received` holds every frame that came; `send` writes to the newest connection.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.received: list[dict[str, Any]] = []
        self.connections = 0
        self.results: dict[str, Any] = {"system.initialize": SERVER}
        self._stream: ByteStream | None = None

    async def serve(self, stream: ByteStream) -> None:
        self.connections += 1
        self._stream = stream
        reader = BufferedByteReceiveStream(stream)
        try:
            async with stream:
                while True:
                    frame = json.loads(await reader.receive_until(b"\n", 1 << 20))
                    self.received.append(frame)
                    await self._react(frame)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _react(self, frame: dict[str, Any]) -> None:
        if "id" not in frame or "method" not in frame or frame["method"] not in self.results:
            return
        result = self.results[frame["method"]]
        if isinstance(result, Callable):  # type: ignore[arg-type]
            result = result(frame.get("params", {}))
        if isinstance(result, dict) and "error" in result:
            await self.send({"id": frame["id"], "error": result["error"]})
        else:
            await self.send({"id": frame["id"], "result": result})

    async def send(self, frame: dict[str, Any]) -> None:
        await self.send_raw(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    async def send_raw(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.send(data)

    async def event(self, n: int, event: dict[str, Any], session_id: str = "s1", turn_id: str = "t1") -> None:
        params = {"session_id": session_id, "agent_id": "main", "event_id": f"0a0b0c0d-{n}", "turn_id": turn_id}
        await self.send({"method": "agent.chat.event", "params": {**params, "event": event}})

    async def drop(self) -> None:
        """Ends the newest connection."""
        assert self._stream is not None
        await self._stream.aclose()

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [f for f in self.received if f.get("method") == method]

    async def wait_for(self, condition: Callable[[dict[str, Any]], bool], timeout: float = 5.0) -> dict[str, Any]:
        """The first frame received, now or later, that fits."""
        seen = 0
        with anyio.fail_after(timeout):
            while True:
                while seen < len(self.received):
                    if condition(self.received[seen]):
                        return self.received[seen]
                    seen += 1
                await anyio.sleep(0.002)


@asynccontextmanager
async def fake_daemon() -> AsyncIterator[FakeDaemon]:
    with tempfile.TemporaryDirectory(prefix="fd-") as folder:
        daemon = FakeDaemon(Path(folder, "s"))
        listener = await anyio.create_unix_listener(daemon.socket)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, daemon.serve)
            yield daemon
            tasks.cancel_scope.cancel()
