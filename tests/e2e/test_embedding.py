"""The example hosts, run as they are, against the real daemon; and the client's way back to it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute

from protocol.events import Notice, TurnEnded, TurnStarted
from sidecar.client import ConnectionLost, SidecarClient
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.node import node, node_packages
from tests.support.running import ROOT, Place, a_place, running_sidecar, serving_sidecar

EXAMPLES = ROOT / "scripts" / "examples"


def conversation() -> FakeLLM:
    return FakeLLM(
        sequence(
            Reply("", tool_calls=[call("current_time", {"zone": "Europe/Kyiv"})]),
            Reply("It is late. \u2028 Good night."),
        )
    )


async def run_example(place: Place, command: list[str], **more: str) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process(command, env={**place.env, **more}, cwd=place.work, check=False)


async def check_conversation(place: Place, llm: FakeLLM, command: list[str], **more: str) -> None:
    done = await run_example(place, command, **more)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "It is late. \u2028 Good night.\n"
    assert "current_time" in done.stderr.decode()
    roles = [role for role, _ in llm.requests[-1].texts]
    assert roles[-3:] == ["user", "assistant", "tool"]
    assert "20" in llm.requests[-1].texts[-1][1]


async def test_the_python_host() -> None:
    with conversation() as llm, a_place(llm) as place:
        await check_conversation(
            place, llm, [sys.executable, str(EXAMPLES / "python_host.py"), "what time is it"], PYTHONPATH=str(ROOT)
        )


async def test_the_node_host() -> None:
    with conversation() as llm, a_place(llm) as place:
        host = [node(), str(EXAMPLES / "node_host.mjs"), "what time is it"]
        await check_conversation(place, llm, [*host, *place.command("serve", "--stdio")])


async def test_the_vscode_jsonrpc_host() -> None:
    packages = node_packages()
    with conversation() as llm, a_place(llm) as place:
        (place.work / "node_modules").symlink_to(packages / "node_modules")
        host = [node(), str(EXAMPLES / "jsonrpc_host.mjs"), "what time is it"]
        await check_conversation(place, llm, [*host, *place.command("serve", "--stdio")])


async def test_the_vscode_jsonrpc_host_cancels_its_turn() -> None:
    packages = node_packages()
    gate = Gate()
    with FakeLLM(lambda request, n: Reply("never", gate=gate)) as llm, a_place(llm) as place:
        (place.work / "node_modules").symlink_to(packages / "node_modules")
        command = [node(), str(EXAMPLES / "jsonrpc_host.mjs"), "hello", *place.command("serve", "--stdio")]
        process = await anyio.open_process(command, env=place.env, cwd=place.work, start_new_session=True)
        async with process:
            await llm.wait_for(1)
            process.send_signal(2)
            await llm.wait_for_disconnect()
            with anyio.fail_after(15):
                assert await process.wait() == 130


@pytest.mark.parametrize("host", ["python_host.py", "node_host.mjs"])
async def test_a_host_without_a_model_says_what_to_set(host: str) -> None:
    with a_place() as place:
        runner = [sys.executable] if host.endswith(".py") else [node()]
        daemon = [] if host.endswith(".py") else place.command("serve", "--stdio")
        done = await run_example(place, [*runner, str(EXAMPLES / host), "hello", *daemon])
        assert done.returncode == 1
        assert "SIDECAR_MODEL" in done.stderr.decode() or "API_KEY" in done.stderr.decode()
        assert b"Traceback" not in done.stderr


DYING = "import sys; sys.stdin.buffer.readline(); sys.exit(3)"


@pytest.mark.parametrize(
    ("daemon", "said"),
    [
        (["no-such-program"], "the daemon cannot be started"),
        ([sys.executable, "-c", ""], "daemon ended"),
        ([sys.executable, "-c", DYING], "daemon ended"),
    ],
    ids=["missing", "ends at once", "dies"],
)
@pytest.mark.parametrize("host", ["python_host.py", "node_host.mjs", "jsonrpc_host.mjs"])
async def test_a_host_whose_daemon_is_not_there_says_so_and_ends(host: str, daemon: list[str], said: str) -> None:
    with a_place() as place:
        if host == "jsonrpc_host.mjs":
            (place.work / "node_modules").symlink_to(node_packages() / "node_modules")
        runner = [sys.executable] if host.endswith(".py") else [node()]
        with anyio.fail_after(20):
            done = await run_example(place, [*runner, str(EXAMPLES / host), "hello", *daemon])
        assert done.returncode == 1
        said_lines = done.stderr.decode().splitlines()
        assert len(said_lines) == 1, said_lines
        assert said in said_lines[0].replace("connection to the daemon ended", "daemon ended")


async def test_a_client_that_lost_its_connection_misses_nothing() -> None:
    """Its socket is cut in the middle of a turn; another client sees the whole turn, and so does this one."""
    gate = Gate()
    script = sequence(Reply("one two three four", hold_after=(3, gate)), Reply("again"))
    with FakeLLM(script) as llm:
        async with (
            serving_sidecar(llm=llm) as (place, path, _),
            SidecarClient.connect(path, name="shell") as shell,
            SidecarClient.connect(path, name="editor") as editor,
        ):
            session = await shell.sessions.create(cwd=str(place.work))
            await editor.sessions.attach(session.session_id)
            with shell.events(session.session_id) as seen, editor.events(session.session_id) as other:
                turn = await shell.chat.send(session.session_id, "count")
                await llm.wait_for(1)
                before = [await anext(seen)]
                while not isinstance(before[-1].event, TurnStarted):
                    before.append(await anext(seen))
                cut(shell)
                gate.open()
                mine = [e async for e in seen.of_turn(turn.turn_id)]
                theirs = [e async for e in other.of_turn(turn.turn_id)]
            assert isinstance(mine[-1].event, TurnEnded)
            assert mine[-1].event.text == "one two three four"
            durable = [e.event_id for e in theirs if type(e.event).__name__ not in ("TextDelta",)]
            assert [e.event_id for e in [*before, *mine] if type(e.event).__name__ not in ("TextDelta",)] == durable
            assert not [e for e in mine if isinstance(e.event, Notice)]
            assert (await shell.chat.run(session.session_id, "more")).text == "again"


def cut(client: SidecarClient) -> None:
    """As when the other end dies."""
    link = client._connection.link
    assert link is not None
    link.stream.extra(SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)


async def test_a_client_of_a_daemon_that_was_killed_is_told(tmp_path: Path) -> None:
    gate = Gate()
    with FakeLLM(lambda request, n: Reply("never", gate=gate)) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work))
            async with anyio.create_task_group() as tasks:

                async def lost() -> None:
                    with pytest.raises(ConnectionLost):
                        await sidecar.client.chat.run(session.session_id, "hello")

                tasks.start_soon(lost)
                await llm.wait_for(1)
                await sidecar.kill()
        async with running_sidecar(llm=llm, home=tmp_path) as again:
            gate.open()
            opened = await again.client.sessions.resume(session.session_id)
            assert [r.kind for r in opened.recovered] == ["open_turn"]


def from_readme(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


async def test_the_python_of_the_readme_runs_as_it_stands() -> None:
    with (
        FakeLLM(sequence(Reply("", tool_calls=[call("clock", {})]), Reply("It is 12:04."))) as llm,
        a_place(llm) as place,
    ):
        (place.work / "host.py").write_text(from_readme("python").replace('"/work"', repr(str(place.work))))
        done = await run_example(place, [sys.executable, "host.py"], PYTHONPATH=str(ROOT))
        assert done.stdout.decode() == "It is 12:04.\n", done.stderr.decode()
        assert llm.requests[-1].texts[-1] == ("tool", "12:04")


async def test_the_javascript_of_the_readme_runs_as_it_stands() -> None:
    with a_place() as place:
        program, *rest = place.command("serve", "--stdio")
        text = from_readme("js")
        spawned = 'spawn("sidecar", ["serve", "--stdio"]'
        assert spawned in text
        text = text.replace(spawned, f"spawn({json.dumps(program)}, {json.dumps(rest)}") + "child.stdin.end();\n"
        (place.work / "host.mjs").write_text(text)
        done = await run_example(place, [node(), "host.mjs"])
        assert done.returncode == 0, done.stderr.decode()
        assert "system.ready" in done.stdout.decode()
        assert "ok: true" in done.stdout.decode()


def test_examples_are_all_tested() -> None:
    text = Path(__file__).read_text()
    hosts = [p.name for p in EXAMPLES.iterdir() if p.suffix in (".py", ".mjs") and p.name != "__init__.py"]
    assert len(hosts) == 3
    assert not [h for h in hosts if h not in text]
