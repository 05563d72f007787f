"""Processes that want the same session at the same time: one writes, the others are told who."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from record_store.backend import MAIN_AGENT
from record_store.conformance import info, metadata
from record_store.local import LocalStore
from record_store.verify import verify
from tests.support.store import create

pytestmark = pytest.mark.anyio

RACER = """
import json, os, random, sys, time
from pathlib import Path
import anyio
from record_store.conformance import info, message, metadata
from record_store.errors import SessionExists, SessionLocked
from record_store.local import LocalStore

me, turns = int(sys.argv[2]), int(sys.argv[3])

async def main():
    store = LocalStore(Path(sys.argv[1]))
    holders = set()
    print("ready", flush=True)
    sys.stdin.readline()
    while_writing = 0
    while while_writing < turns:
        try:
            session = await store.open("one")
        except SessionLocked as error:
            holders.add(error.pid)
            await anyio.sleep(random.uniform(0, 0.004))
            continue
        journal, recovered = await session.open_agent("main")
        first = journal.append(message(me * 1000 + while_writing * 10))[0]
        for n in range(1, 10):
            await anyio.sleep(0)
            journal.append(message(me * 1000 + while_writing * 10 + n))
        assert journal.last_line == first + 9
        while_writing += 1
        await session.close()
    print(json.dumps(sorted(holders)), flush=True)

anyio.run(main)
"""

CREATOR = """
import sys
from pathlib import Path
import anyio
from record_store.conformance import info, metadata
from record_store.errors import SessionExists, SessionLocked
from record_store.local import LocalStore

async def main():
    store = LocalStore(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    won = []
    for n in range(20):
        try:
            session = await store.create(f"s{n}", info(f"s{n}"), metadata(f"s{n}"))
        except (SessionExists, SessionLocked):
            continue
        won.append(n)
        await session.close()
    print(*won, flush=True)

anyio.run(main)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


async def test_racing_writers_take_turns_and_mix_nothing(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    await session.close()
    racers = [start(RACER, str(tmp_path), str(n), "8") for n in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = [set(json.loads(racer.communicate(timeout=60)[0])) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    pids = {racer.pid for racer in racers}
    assert set().union(*told) <= pids | {0}
    assert set().union(*told) & pids
    session = await LocalStore(tmp_path).open("one")
    journal, recovered = await session.open_agent(MAIN_AGENT)
    assert recovered == []
    numbers = [int(e.message.id.removeprefix("msg_")) for e in journal.state.entries]
    assert sorted(numbers) == [n * 1000 + i for n in range(3) for i in range(80)]
    assert all(numbers[at : at + 10] == list(range(numbers[at], numbers[at] + 10)) for at in range(0, 240, 10))
    assert [report.problems for report in await verify(session)] == [()]
    await session.close()


async def test_a_killed_holder_is_followed_at_once(tmp_path: Path) -> None:
    session, _ = await create(tmp_path)
    await session.close()
    for n in range(3):
        racer = start(RACER, str(tmp_path), str(n), "1000000")
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
        log = tmp_path / "sessions" / "one" / "agents" / "main" / "wire.jsonl"
        size = log.stat().st_size
        while log.stat().st_size < size + 5_000:
            pass
        racer.send_signal(signal.SIGKILL)
        racer.communicate()
        session = await LocalStore(tmp_path).open("one")
        journal, _ = await session.open_agent(MAIN_AGENT)
        assert journal.last_line > n * 10
        assert [report.problems for report in await verify(session)] == [()]
        await session.close()


async def test_one_of_two_creators_wins(tmp_path: Path) -> None:
    racers = [start(CREATOR, str(tmp_path)) for _ in range(2)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [[int(n) for n in racer.communicate(timeout=60)[0].split()] for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(20))
    found = (await LocalStore(tmp_path).list()).sessions
    assert len(found) == 20
    assert not [p.name for p in (tmp_path / "sessions").iterdir() if p.name.startswith(".")]
    assert info("s0") in found
    assert metadata("s0").session_id == "s0"
