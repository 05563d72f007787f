"""A raw host whose scripted model makes the calls that the user asks for: `talk.do(session, ("glob", {...}), ...)`.

Everything goes through a real daemon: the calls over HTTP from the model, the results as events. Standard library only,
but for the fake model.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.raw_host import PATIENCE_S, Frame, RawHost, SocketHost, Wire

Call = tuple[str, "dict[str, Any] | str"]
Handler = Callable[[dict[str, Any]], Any]
"""Answers a request of the daemon; None leaves it open."""


def obedient(request: dict[str, Any], _n: int) -> Reply:
    """A model that makes the calls which the last user message holds as JSON, then says "done"."""
    last = request["messages"][-1]
    text = last["content"] if isinstance(last["content"], str) else "".join(p.get("text", "") for p in last["content"])
    if last["role"] == "user" and text.startswith("[["):
        return Reply("", tool_calls=[call(name, arguments) for name, arguments in json.loads(text)])
    return Reply("done")


@dataclass(frozen=True, slots=True)
class Result:
    """A `tool_result` event."""

    event: dict[str, Any]

    @property
    def text(self) -> str:
        return "".join(p.get("text", "") for p in self.event["content"])

    @property
    def failed(self) -> bool:
        return bool(self.event["is_error"])


class Answering(Wire):
    """A wire whose requests are answered by `handlers`, by method, as they come."""

    handlers: dict[str, Handler]

    def _split(self, buffer: bytes) -> bytes:
        before = len(self.frames)
        rest = super()._split(buffer)
        for frame in self.frames[before:]:
            if isinstance(frame, dict) and "method" in frame and "id" in frame:
                handler = self.handlers.get(frame["method"])
                answer = handler(frame["params"]) if handler is not None else None
                if answer is not None:
                    self.send({"jsonrpc": "2.0", "id": frame["id"], "result": answer})
        return rest

    # -- what a host does

    def hello(self, **capabilities: bool) -> Any:
        client = {"name": "raw", "version": "1"}
        params = {"protocol_version": 1, "client": client, "capabilities": capabilities}
        return self.call("system.initialize", params)

    def create(self, cwd: Path | str, builtin: str = "all", config: dict[str, Any] | None = None, **more: Any) -> str:
        """The id of a new session; `config` is merged over the word for the built-in tools and mode `auto`."""
        merged: dict[str, Any] = {"tools": {"builtin": builtin}, "approval": {"mode": "auto"}}
        for name, section in (config or {}).items():
            merged[name] = {**merged.get(name, {}), **section}
        answer = self.call("agent.session.create", {"cwd": str(cwd), "config": merged, **more})
        assert "session" in answer, answer
        return str(answer["session"]["session_id"])

    def names(self, session: str) -> list[str]:
        return [t["name"] for t in self.call("tool.list", {"session_id": session})["tools"]]

    def ask(self, session: str, *calls: Call) -> Any:
        """Starts a turn that makes the calls in one step; the id of the call that answers at its end."""
        text = json.dumps([list(c) for c in calls])
        return self.start("agent.chat.send", {"session_id": session, "content": text, "wait": True})

    def do(self, session: str, *calls: Call, timeout: float = PATIENCE_S) -> list[Result]:
        """A turn that makes the calls in one step; their results in call order."""
        before = len(self.events(session, "tool_result"))
        ended = self.reply(self.ask(session, *calls), timeout)
        assert ended.get("result", {}).get("stop_reason") == "end_turn", ended
        return self.results(session)[before:]

    def one(self, session: str, name: str, arguments: dict[str, Any] | str, timeout: float = PATIENCE_S) -> Result:
        (result,) = self.do(session, (name, arguments), timeout=timeout)
        return result

    # -- what it saw

    def events(self, session: str, kind: str) -> list[dict[str, Any]]:
        every = [p for p in self.notified("agent.chat.event") if p["session_id"] == session]
        return [p["event"] for p in every if p["event"]["type"] == kind]

    def results(self, session: str) -> list[Result]:
        return [Result(e) for e in self.events(session, "tool_result")]

    def asked(self, method: str) -> list[Frame]:
        """Requests of the daemon, in order."""
        return [f for f in list(self.frames) if isinstance(f, dict) and f.get("method") == method and "id" in f]

    def wait_asked(self, method: str, count: int = 1) -> Frame:
        return self.wait(lambda _: self.asked(method)[count - 1 : count], f"{method} number {count}")[0]

    def answer(self, frame: Frame, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})


class Talk(Answering, RawHost):
    """A daemon of its own over stdio."""

    def __init__(self, *arguments: str, handlers: Mapping[str, Handler] | None = None, **more: Any) -> None:
        self.handlers = dict(handlers or {})
        super().__init__(*arguments, module="sidecar", **more)


class SocketTalk(Answering, SocketHost):
    """One more client of a daemon that listens."""

    def __init__(self, address: str, handlers: Mapping[str, Handler] | None = None) -> None:
        self.handlers = dict(handlers or {})
        super().__init__(address)


@contextmanager
def talking(
    *arguments: str,
    handlers: Mapping[str, Handler] | None = None,
    env: Mapping[str, str] | None = None,
    script: Any = obedient,
    home: str | None = None,
    capabilities: dict[str, bool] | None = None,
) -> Iterator[tuple[Talk, FakeLLM, Path]]:
    """A daemon, its model, and an empty folder to work in. `capabilities` {}: said hello and can nothing."""
    said = {"tools": True, "approvals": True, "questions": True} if capabilities is None else capabilities
    with FakeLLM(script) as llm, tempfile.TemporaryDirectory(prefix="talk-") as folder:
        environment = llm.environment() | ({"SIDECAR_HOME": home} if home is not None else {}) | dict(env or {})
        with Talk(*arguments, handlers=handlers, env=environment) as talk:
            talk.hello(**said)
            yield talk, llm, Path(folder).resolve()
