"""`sidecar acp` under `acpx`, a headless editor that nobody here wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.node import node, node_packages
from tests.support.running import Place, a_place


@pytest.fixture
def acpx() -> list[str]:
    """The command line, on the Node that it wants."""
    packages = node_packages()
    program = packages / "node_modules" / ".bin" / "acpx"
    if not program.exists():
        pytest.skip("acpx is not among the Node packages")
    return [node(), str(program.resolve())]


async def run(
    acpx: list[str], place: Place, *arguments: str, permissions: str = "--approve-all"
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the messages that acpx prints (both directions), and what it says on stderr."""
    command = [*acpx, "--cwd", str(place.work), permissions, "--format", "json", "--timeout", "30", "--ttl", "5"]
    env = {**place.env, "PATH": f"{Path(acpx[0]).parent}{os.pathsep}{place.env['PATH']}"}
    agent = " ".join(place.command("acp"))
    done = await anyio.run_process(
        [*command, "--agent", agent, *arguments], env=env, check=False, stdin=subprocess.DEVNULL
    )
    messages = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    return done.returncode, messages, done.stderr.decode()


def updates(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [m["params"]["update"] for m in messages if m.get("method") == "session/update"]
    return [u for u in found if u["sessionUpdate"] == kind]


def said(messages: list[dict[str, Any]]) -> str:
    return "".join(u["content"]["text"] for u in updates(messages, "agent_message_chunk"))


async def test_one_shot_with_files_a_terminal_and_permissions(acpx: list[str]) -> None:
    script = sequence(
        Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "written\n"}, id="w1")]),
        Reply("", tool_calls=[call("run_command", {"command": "cat a.txt"}, id="r1")]),
        Reply("All done."),
    )
    with FakeLLM(script) as llm, a_place(llm) as place:
        code, messages, stderr = await run(acpx, place, "exec", "write it")
        assert code == 0, stderr
        assert said(messages) == "All done."
        assert (place.work / "a.txt").read_text() == "written\n"
        methods = [m["method"] for m in messages if "method" in m]
        assert methods.count("session/request_permission") == 2
        assert {"fs/write_text_file", "terminal/create", "terminal/release"} <= set(methods)
        assert llm.requests[-1].texts[-1] == ("tool", "written\n[exit code 0]")


async def test_denied_is_denied(acpx: list[str]) -> None:
    script = sequence(Reply("", tool_calls=[call("write_file", {"path": "a.txt", "content": "x"})]), Reply("Pity."))
    with FakeLLM(script) as llm, a_place(llm) as place:
        _, messages, _ = await run(acpx, place, "exec", "write it", permissions="--deny-all")
        assert said(messages) == "Pity."
        assert not (place.work / "a.txt").exists()
        assert [u["status"] for u in updates(messages, "tool_call_update")][-1] == "failed"


async def test_a_session_goes_on_after_its_agent_was_started_again(acpx: list[str]) -> None:
    with FakeLLM(lambda request, n: Reply(f"answer {n}")) as llm, a_place(llm) as place:
        code, _, stderr = await run(acpx, place, "sessions", "new")
        assert code == 0, stderr
        code, messages, stderr = await run(acpx, place, "prompt", "first")
        assert (code, said(messages)) == (0, "answer 0"), stderr
        # acpx has started the agent anew for the prompt, and takes the session up again by itself.
        assert "session/resume" in [m.get("method") for m in messages]
        code, messages, stderr = await run(acpx, place, "prompt", "/compact")
        assert code == 0, stderr
        code, messages, stderr = await run(acpx, place, "set-mode", "bogus")
        assert code != 0
        assert "-32602" in json.dumps(messages) + stderr
        code, messages, stderr = await run(acpx, place, "prompt", "second")
        assert said(messages).endswith("answer 1") or "answer" in said(messages)
        code, messages, stderr = await run(acpx, place, "sessions", "close")
        assert code == 0, stderr
