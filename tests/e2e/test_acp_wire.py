"""`sidecar acp` at the wire: what no client of good manners sends, and what must never come back."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.support.fake_llm import FakeLLM, Gate, Reply
from tests.support.running import Place, a_place


class Wire:
    """A line-wise JSON-RPC peer. Answers are kept by id, those with `id: null` in `nameless`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.answers: dict[Any, dict[str, Any]] = {}
        self.nameless: list[dict[str, Any]] = []
        self.notifications: list[dict[str, Any]] = []
        self.order: list[str] = []
        self._news = asyncio.Condition()
        self._next = 0

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            assert "\n" not in line.decode().rstrip("\n")
            async with self._news:
                if "method" in message:
                    self.notifications.append(message)
                    self.order.append(message["params"].get("update", {}).get("sessionUpdate", message["method"]))
                elif message["id"] is None:
                    self.nameless.append(message)
                else:
                    self.answers[message["id"]] = message
                    self.order.append(f"answer {message['id']}")
                self._news.notify_all()

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def start(self, method: str, params: Any = None, **more: Any) -> int:
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params or {}, **more}
        self.raw(json.dumps(message).encode() + b"\n")
        return self._next

    async def wait(self, id: Any) -> dict[str, Any]:
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(lambda: id in self.answers)
            return self.answers[id]

    async def call(self, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
        return await self.wait(self.start(method, params, **more))

    async def refusal(self, data: bytes) -> dict[str, Any]:
        """The next answer without an id, after these bytes."""
        before = len(self.nameless)
        self.raw(data)
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(lambda: len(self.nameless) > before)
            return self.nameless[before]["error"]  # type: ignore[no-any-return]


@asynccontextmanager
async def wire(place: Place, *arguments: str) -> AsyncIterator[Wire]:
    with place.stderr_file.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *place.command("acp", *arguments),
            env=place.env,
            cwd=place.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            limit=64 << 20,
        )
    peer = Wire(process)
    reader = asyncio.ensure_future(peer.read())
    try:
        yield peer
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(15):
            assert await process.wait() == 0
        await reader


async def new_session(peer: Wire, place: Place) -> str:
    made = await peer.call("session/new", {"cwd": str(place.work), "mcpServers": []})
    return str(made["result"]["sessionId"])


async def test_bad_frames_are_answered_and_the_connection_lives() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        async with wire(place) as peer:
            assert "result" in await peer.call("initialize", {"protocolVersion": 1})
            for data, code in (
                (b"{oh no\n", -32700),
                (b'{"jsonrpc": "2.0", "id": 1, "params": NaN}\n', -32700),
                (b"\xff\xfe\n", -32700),
                (b"[" * 100_000 + b"\n", -32700),
                (b"[]\n", -32600),
                (b"42\n", -32600),
                (b'"hello"\n', -32600),
                (b"null\n", -32600),
                (b'{"jsonrpc": "2.0"}\n', -32600),
                (b'{"jsonrpc": "2.0", "id": [1], "method": "initialize"}\n', -32600),
            ):
                assert (await peer.refusal(data))["code"] == code, data[:40]
            peer.raw(b'\n  \n{"jsonrpc": "2.0", "id": "x", "method": 5}\n')
            assert (await peer.wait("x"))["error"]["code"] == -32600
            peer.raw(b'{"jsonrpc": "2.0", "id": "y", "method": "session/new", "params": []}\n')
            assert (await peer.wait("y"))["error"]["code"] == -32602
            assert (await peer.call("no/such"))["error"]["code"] == -32601
            peer.raw(b'{"jsonrpc": "2.0", "method": "no/such", "params": {}}\n')
            peer.raw(b'{"jsonrpc": "2.0", "id": 777, "result": {}}\n')
            assert await new_session(peer, place)


async def test_errors_say_what_is_wrong_and_nothing_of_the_inside() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        async with wire(place) as peer:
            await peer.call("initialize", {"protocolVersion": 1})
            error = (await peer.call("session/prompt", {"sessionId": "x", "prompt": "sk-my-secret"}))["error"]
            assert error["code"] == -32602
            assert error["data"]["errors"][0]["path"] == "prompt"
            assert "sk-my-secret" not in json.dumps(error)
            assert "pydantic" not in json.dumps(error)
            error = (await peer.call("session/prompt", {"sessionId": "x", "prompt": []}))["error"]
            assert (error["code"], error["data"]) == (-32002, {"sessionId": "x"})
            error = (await peer.call("session/delete", {}))["error"]
            assert error["code"] == -32602
            error = (await peer.call("session/delete", {"sessionId": "never-was"}))["error"]
            assert error["code"] == -32002
            error = (await peer.call("session/load", {"sessionId": "../..", "cwd": "/", "mcpServers": []}))["error"]
            assert error["code"] == -32602
            error = (await peer.call("authenticate", {"methodId": "x"}))["error"]
            assert error["code"] == -32602


async def test_a_request_can_be_cancelled_and_meta_changes_nothing() -> None:
    gate = Gate()
    with FakeLLM(lambda request, n: Reply("never", gate=gate)) as llm, a_place(llm) as place:
        async with wire(place) as peer:
            await peer.call("initialize", {"protocolVersion": 1})
            session = await new_session(peer, place)
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "half a \ud83d pair"}]}
            for n, field in enumerate(("requestId", "id"), 1):
                sent = peer.start("session/prompt", {**prompt, "_meta": {"session_id": "other", "prompt": []}})
                await llm.wait_for(n)
                cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {field: sent}}
                peer.raw(json.dumps(cancel).encode() + b"\n")
                assert (await peer.wait(sent))["error"]["code"] == -32800
                await llm.wait_for_disconnect(n)
            assert llm.requests[0].texts[-1] == ("user", "half a \ufffd pair")


async def test_the_session_is_known_before_anything_is_said_about_it() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        async with wire(place) as peer:
            await peer.call("initialize", {"protocolVersion": 1})
            await new_session(peer, place)
            with anyio.fail_after(10):
                while "usage_update" not in peer.order:
                    await anyio.sleep(0.01)
            assert peer.order == ["answer 1", "answer 2", "available_commands_update", "usage_update"]


async def test_it_works_without_initialize_and_ends_with_its_input() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        async with wire(place) as peer:
            session = await new_session(peer, place)
            answer = await peer.call(
                "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
            )
            assert answer["result"]["stopReason"] == "end_turn"
        assert place.records(session)[-1]["type"] in ("turn.end", "config.update")
