"""One daemon at a socket for many tests, and one model server whose script depends on the model's name.

    async def test_it(daemon: OneDaemon) -> None:
        async with daemon.talk("openai", sequence(Reply("hi"))) as talk:
            result = await talk.run("hello")
            assert talk.requests[0].texts[-1] == ("user", "hello")

A talk is a session of its own with a model of its own, so tests do not see each other. The fixture `daemon` is in
`tests/e2e/conftest.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from protocol import events as e
from protocol.info import ContextInfo
from protocol.messages import Part, TurnResult
from sidecar.client import SidecarClient
from sidecar.settings import merge
from tests.support.fake_llm import FakeLLM, Reply, Request, Script
from tests.support.running import Place, a_place

DIALECTS = ("openai", "anthropic")
KEY = "sk-test-0123456789abcdefSECRET"
QUICK: dict[str, Any] = {"retry_base_s": 0.01}
"""Retries that do not take long."""

_numbers = itertools.count(1)


class Crowd:
    """A fake model server with a script per model name."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.llm = FakeLLM(self._answer, keep=5_000)

    def _answer(self, request: dict[str, Any], n: int) -> Any:
        model = str(request.get("model"))
        script = self.scripts.get(model)
        if script is None:
            return Reply("nobody plays this model")
        return script(request, len(self.of(model)) - 1)

    def of(self, model: str) -> list[Request]:
        return [r for r in list(self.llm.requests) if r.json.get("model") == model]


@dataclass(slots=True)
class Talk:
    """A session with a model of its own. `seen` are the events of the last `turn`."""

    daemon: OneDaemon
    client: SidecarClient
    session_id: str
    model: str
    seen: list[Any] = field(default_factory=list)

    @property
    def requests(self) -> list[Request]:
        return self.daemon.crowd.of(self.model)

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.daemon.place.records(self.session_id)

    async def run(self, content: str | Sequence[Part], timeout: float = 30) -> TurnResult:
        """One turn; its events are in `seen` afterwards."""
        self.seen = []
        with self.client.events(self.session_id) as stream, anyio.fail_after(timeout):
            sent = await self.client.chat.send(self.session_id, content)
            async for told in stream.of_turn(sent.turn_id):
                self.seen.append(told.event)
        end = self.seen[-1]
        return TurnResult(
            turn_id=end.turn_id, stop_reason=end.stop_reason, text=end.text, usage=end.usage, error=end.error
        )

    def of_type(self, *kinds: type) -> list[Any]:
        return [x for x in self.seen if isinstance(x, kinds)]

    def shown(self) -> str:
        """What a host that follows deltas and resets shows in the end."""
        text = ""
        for event in self.seen:
            match event:
                case e.TextDelta(text=piece, offset=offset):
                    assert offset == len(text), (offset, text)
                    text += piece
                case e.StreamReset(offset=offset):
                    text = text[:offset]
        return text

    async def info(self) -> ContextInfo:
        return await self.client.context.get(self.session_id)


@dataclass(slots=True)
class OneDaemon:
    place: Place
    socket: Path
    process: subprocess.Popen[bytes]
    crowd: Crowd

    @asynccontextmanager
    async def client(self) -> AsyncIterator[SidecarClient]:
        async with SidecarClient.connect(socket=self.socket, reconnect=False) as client:
            yield client

    @asynccontextmanager
    async def talk(
        self,
        provider: str,
        script: Script,
        *,
        config: Mapping[str, Any] | None = None,
        client: SidecarClient | None = None,
        model: str | None = None,
        **more: Any,
    ) -> AsyncIterator[Talk]:
        """A session of `provider` whose model plays `script`; retries are quick unless `config` says otherwise."""
        name = model or f"m{next(_numbers)}"
        self.crowd.scripts[name] = script
        settings = merge({"providers": {provider: QUICK}}, config or {})
        if client is None:
            async with (
                self.client() as own,
                self.talk(provider, script, config=config, client=own, model=name, **more) as talk,
            ):
                yield talk
            return
        session = await client.sessions.create(
            cwd=str(self.place.work), model=f"{provider}/{name}", config=settings, **more
        )
        yield Talk(self, client, session.session_id, name)


@contextmanager
def one_daemon(
    *, env: Mapping[str, str] | None = None, config: str | None = None, arguments: Sequence[str] = ()
) -> Iterator[OneDaemon]:
    """A daemon that lives as long as the block, with keys for both built-in providers."""
    crowd = Crowd()
    folder = Path(tempfile.mkdtemp(prefix="sc-"))
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": f"{KEY}-ant"}
    with crowd.llm, a_place(crowd.llm, env={**keys, **(env or {})}, config=config) as place:
        path = folder / "s"
        with place.stderr_file.open("ab") as stderr:
            process = subprocess.Popen(
                place.command("serve", "--socket", str(path), *arguments),
                env=place.env, cwd=place.work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
        try:
            _wait_for(path, process, place)
            yield OneDaemon(place, path, process, crowd)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(path: Path, process: subprocess.Popen[bytes], place: Place) -> None:
    """The path is there a moment before anybody listens at it."""
    end = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the daemon did not start: {place.stderr()[-2000:]}")
        time.sleep(0.01)
