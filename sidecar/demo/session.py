"""The main job, start to end: a host, a daemon over stdio, tools, a compaction under way, kill -9, resume.

With a key or `SIDECAR_MODEL` in the environment it asks that model; else a scripted one behind a real HTTP server on
loopback. Prints a timeline of what happened; exit 0 when all of it did.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from protocol import events as e
from protocol.messages import ToolSpec
from sidecar.client.client import SidecarClient
from sidecar.client.errors import ConnectionLost
from sidecar.client.host import HostCall, HostTool
from sidecar.demo.model import CHAPTERS, DemoModel
from sidecar.settings import environment

CODE_WORD = "heliotrope"
KEYS = ("SIDECAR_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
WINDOW = 12_000
CONFIG = {
    "model": {"window": WINDOW},
    "compaction": {"preset": "handoff"},
    "loop_control": {"max_steps": 60, "compaction_trigger_ratio": 0.65},
}


def chapter(number: int) -> str:
    """About 900 tokens that are the same every time."""
    words = ("lamp", "oil", "north", "fog", "tide", "gull", "brass", "signal", "keeper", "harbour", "rope", "storm")
    lines = [f"Chapter {number} of the log book."]
    for i in range(60):
        picked = " ".join(words[(number * 7 + i * 3 + k * 5) % len(words)] for k in range(9))
        lines.append(f"{number}.{i:02d} {picked}.")
    lines.append(f"The keeper wrote: {words[number % len(words)]} {number * 137}.")
    return "\n".join(lines)


class Timeline:
    """Lines with the time since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.landed = 0
        self.tool_calls = 0
        self.during_compaction = 0
        self._compacting = False

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.2f} s  {text}", flush=True)

    def show(self, event: e.AnyEvent) -> None:
        match event:
            case e.TurnStarted(content=content):
                text = "".join(getattr(p, "text", "") for p in content)
                self.say(f"turn started: {text[:90]!r}")
            case e.ToolCallStarted(name=name, arguments=arguments):
                self.tool_calls += 1
                self.during_compaction += self._compacting
                self.say(
                    f"  tool call {name}({arguments}){'   (while the summary is made)' if self._compacting else ''}"
                )
            case e.ToolResult(content=content, is_error=error):
                size = sum(len(getattr(p, "text", "")) for p in content)
                self.say(f"  tool result, {size:,} characters{', an error' if error else ''}")
            case e.ContextSoftLimit(used=used, window=window):
                self.say(f"  the context fills: {used:,} of {window:,} tokens")
            case e.ContextRewritten(action=action, pre_tokens=before, post_tokens=after):
                self.say(f"  context rewritten ({action}): {before:,} to {after:,} tokens")
            case e.CompactionStarted(mode=mode, pre_tokens=tokens):
                self._compacting = True
                where = "in the background" if mode == "background" else "while the turn waits"
                self.say(f"  compaction started {where} at {tokens:,} tokens")
            case e.CompactionBlocked():
                self.say("  the turn waits for the compaction")
            case e.CompactionLanded(pre_tokens=before, post_tokens=after, line=line, duration_ms=took):
                self._compacting = False
                self.landed += 1
                self.say(f"  compaction landed: {before:,} to {after:,} tokens in {took} ms, record {line}")
            case e.CompactionDiscarded(reason=reason) | e.CompactionFailed(reason=reason):
                self._compacting = False
                self.say(f"  compaction ended without effect: {reason}")
            case e.RetryScheduled(reason=reason, delay_ms=delay):
                self.say(f"  {reason}: trying again in {delay} ms")
            case e.TurnEnded(stop_reason=reason, text=text, error=error):
                self.say(f"turn ended ({reason}): {text[:160]!r}")
                if error is not None:
                    self.say(f"  {error.reason}: {error.message}")
            case e.Notice(message=message):
                self.say(f"  notice: {message}")


@contextmanager
def model_environment(scripted: bool) -> Iterator[tuple[dict[str, str], DemoModel | None]]:
    """The daemon's environment, and the scripted model if it is the one that is asked."""
    env = dict(environment())
    if not scripted:
        yield env, None
        return
    for key in KEYS:
        env.pop(key, None)
    model = DemoModel()
    env |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-demo", "SIDECAR_MODEL": "openai/scripted"}
    try:
        yield env, model
    finally:
        model.close()


def tools() -> list[HostTool]:
    spec = ToolSpec(
        name="read_chapter",
        description=f"Returns one chapter (1 to {CHAPTERS}) of the lighthouse log book.",
        parameters={
            "type": "object",
            "properties": {"number": {"type": "integer", "minimum": 1, "maximum": CHAPTERS}},
            "required": ["number"],
        },
        side_effects=False,
    )

    async def read_chapter(call: HostCall) -> str:
        return chapter(int(call.arguments["number"]))

    return [HostTool(spec, read_chapter)]


async def first_life(env: dict[str, str], timeline: Timeline, model: DemoModel | None, cwd: str) -> str:
    """A long turn with a compaction in it, then a daemon that is killed in the middle of the next turn."""
    async with SidecarClient.spawn(env=env, cwd=cwd, stderr=None) as client:
        timeline.say(f"daemon started, pid {client.server.server.pid}")
        session = await client.sessions.create(cwd=cwd, config=CONFIG, tools=tools(), title="The log book")
        timeline.say(f"session {session.session_id}, window {WINDOW:,} tokens")
        with client.events(session.session_id) as events:
            first = await client.chat.send(
                session.session_id,
                f"Please read the log book, all {CHAPTERS} chapters, one call at a time, and say if it is complete. "
                f"Remember: my code word is {CODE_WORD}.",
            )
            async for told in events.of_turn(first.turn_id):
                timeline.show(told.event)
            info = await client.context.get(session.session_id)
            timeline.say(f"context now: {info.used:,} of {info.window:,} tokens")
            if model is not None:
                model.hold.clear()
            await client.chat.send(session.session_id, "Now wait for me; something will happen to you.")
            await anyio.sleep(0.5)
            assert client.process is not None
            timeline.say("kill -9: the daemon is killed in the middle of a turn")
            client.process.kill()
            await client.process.wait()
            if model is not None:
                model.hold.set()
        return session.session_id


async def second_life(env: dict[str, str], timeline: Timeline, session_id: str, cwd: str) -> bool:
    async with SidecarClient.spawn(env=env, cwd=cwd, stderr=None) as client:
        timeline.say(f"a new daemon, pid {client.server.server.pid}, resumes the session")
        resumed = await client.sessions.resume(session_id, tools=tools())
        for found in resumed.recovered:
            timeline.say(f"  recovered {found.kind}: {found.detail}")
        info = await client.context.get(session_id)
        timeline.say(f"resumed from the log: {info.used:,} tokens, {resumed.session.turns} turns")
        with client.events(session_id) as events:
            turn = await client.chat.send(session_id, "What was my code word?")
            answer = ""
            async for told in events.of_turn(turn.turn_id):
                timeline.show(told.event)
                if isinstance(told.event, e.TurnEnded):
                    answer = told.event.text
        verified = await client.records.verify(session_id)
        lines = sum(a.lines for a in verified.agents)
        timeline.say(f"event log: {lines} records, {'whole' if verified.ok else 'DAMAGED'}")
        return verified.ok and CODE_WORD in answer.lower()


async def demo(scripted: bool) -> int:
    timeline = Timeline()
    with tempfile.TemporaryDirectory(prefix="sidecar-demo-") as home, model_environment(scripted) as (env, model):
        env["SIDECAR_HOME"] = str(Path(home) / "home")
        cwd = str(await anyio.Path(home, "work").absolute())
        await anyio.Path(cwd).mkdir()
        timeline.say(
            f"model: {'scripted, at ' + model.base_url if model else env.get('SIDECAR_MODEL', 'as configured')}"
        )
        session_id = ""
        with anyio.move_on_after(600) as limit:
            try:
                session_id = await first_life(env, timeline, model, cwd)
            except* Exception as failures:
                if not _only_lost(failures):
                    raise
                session_id = session_id or next(iter(os.listdir(Path(env["SIDECAR_HOME"]) / "sessions")))
            remembered = await second_life(env, timeline, session_id, cwd)
        if limit.cancelled_caught:
            timeline.say("gave up after ten minutes")
            return 1
    print()
    print(f"tool calls: {timeline.tool_calls}, {timeline.during_compaction} of them while a summary was being made")
    print(f"compactions landed: {timeline.landed}")
    print(f"killed and resumed: yes; the code word survived: {'yes' if remembered else 'NO'}")
    return 0 if remembered and timeline.landed and timeline.tool_calls else 1


def _only_lost(failures: BaseExceptionGroup[Exception]) -> bool:
    """Whether nothing went wrong but that the daemon is gone, which it is meant to be."""
    return failures.split(ConnectionLost)[1] is None


def main(scripted: bool) -> int:
    """Runs the demo; 0 when everything that it shows has happened."""
    configured = any(environment().get(k) for k in KEYS)
    return anyio.run(demo, scripted or not configured)
