"""A process that writes sessions dies at every place and at any moment: nothing that it told is ever lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from record_store import failpoints
from record_store.backend import MAIN_AGENT
from record_store.errors import SessionNotFound
from record_store.local import LocalStore
from record_store.replay import state_at
from record_store.verify import verify
from tests.support.store import canonical

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")]

STEPS = 12
FIRST = {
    "fork": ["blob", "tell", "fork"],
    "delete": ["fork", "delete"],
    "blob": ["blob"],
    "checkpoint": ["tell", "checkpoint"],
    "session": ["info"],
    "create": ["fork"],
}
"""What reaches the failpoints of a family."""

DAMAGED = ("torn.", "repair.", "probe.", "log.newline")
"""Only what is broken already comes past these."""

FAILED = ("log.truncate", "log.rewrite")
"""Only what failed before does."""

WRITES = [name for name in failpoints.NAMES if name.endswith(("write", "copy", "newline"))]


class Victims:
    """Lives of a writer on one home, and what they told."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.told: list[int] = []
        self.blobs: list[str] = []
        self.sessions: set[str] = set()
        self.unsure: set[str] = set()
        self.gone: set[str] = set()
        self._seed = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crash_writer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def live(self, rules: str = "", *, first: list[str] | None = None, kill_after_s: float | None = None) -> int:
        """One life; the exit code, negative for a signal. It is killed so long after the first that it told."""
        self._seed += 1
        steps = STEPS if kill_after_s is None else 1_000
        order = {"home": str(self.home), "failpoints": rules, "seed": self._seed, "steps": steps, "first": first or []}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        timer: threading.Timer | None = None
        pid = 0
        for line in self._process.stdout:
            said = json.loads(line)
            if "status" in said:
                if timer is not None:
                    timer.cancel()
                    timer.join()
                return int(said["status"])
            pid = said.get("pid", pid)
            if "told" in said and kill_after_s is not None and timer is None:
                timer = threading.Timer(kill_after_s, _kill, (pid,))
                timer.start()
            self._hear(said)
        raise AssertionError("the writer ended")

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"told": numbers}:
                self.told += numbers
            case {"blob": name}:
                self.blobs.append(name)
            case {"created": name}:
                self.sessions.add(name)
            case {"deleting": name}:
                self.unsure.add(name)
            case {"deleted": name}:
                self.gone.add(name)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    async def check(self) -> list[str]:
        """Everything told is there, whole and in order; the kinds of what had to be recovered."""
        store = LocalStore(self.home)
        listed = {s.session_id for s in (await store.list(limit=10_000)).sessions}
        assert self.sessions - self.unsure - self.gone <= listed
        assert not self.gone & listed
        if "one" not in self.sessions and "one" not in listed:
            with pytest.raises(SessionNotFound):
                await store.open("one")
            return []
        session = await store.open("one")
        journal, recovered = await session.open_agent(MAIN_AGENT)
        numbers = [int(entry.message.id.removeprefix("msg_")) for entry in journal.state.entries]
        assert set(self.told) <= set(numbers)
        assert numbers == sorted(numbers)
        assert canonical(state_at(journal)) == canonical(journal.state)
        assert all(session.blobs.get(name) is not None for name in self.blobs)
        assert [report.problems for report in await verify(session)] == [()]
        assert journal.state.title == "A title"
        await session.close()
        for name in sorted(listed - {"one"})[:2]:
            fork = await store.open(name)
            await fork.open_agent(MAIN_AGENT)
            assert [report.problems for report in await verify(fork)] == [()]
            await fork.close()
        return [x.kind for x in (*session.recovered, *recovered)]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[Victims]:
    made = Victims(tmp_path / "home")
    try:
        yield made
    finally:
        made.end()


async def test_dying_at_every_failpoint(victims: Victims) -> None:
    assert victims.live(first=["tell", "blob"]) == 0
    survived = []
    for name in failpoints.NAMES:
        if name.startswith(DAMAGED) or name in FAILED:
            continue
        first = FIRST.get(name.partition(".")[0], ["tell"])
        for hit in (1, 2):
            if victims.live(f"{name}=crash@{hit}", first=first * hit) != -signal.SIGKILL and hit == 1:
                survived.append(name)
            await victims.check()
    assert survived == []
    assert victims.live() == 0
    await victims.check()
    assert len(victims.told) > 100


async def test_dying_in_the_middle_of_every_write(victims: Victims) -> None:
    chance = random.Random(1)
    kinds: list[str] = []
    for name in WRITES:
        for _ in range(3):
            victims.live(f"{name}=torn:{chance.randint(0, 60)}@{chance.randint(1, 4)}")
            kinds += await victims.check()
    assert "torn_tail" in kinds


async def test_dying_while_a_torn_tail_is_mended(victims: Victims) -> None:
    steps = [n for n in failpoints.NAMES if n.startswith(("torn.", "repair.")) and n != "torn.open"]
    died = 0
    for name in steps:
        assert victims.live("log.write=torn:30@5") == -signal.SIGKILL
        died += victims.live(f"{name}=crash@1") == -signal.SIGKILL
        await victims.check()
    assert died == len(steps)
    log = victims.home / "sessions" / "one" / "agents" / "main"
    assert not [p.name for p in log.iterdir() if p.name.endswith((".pending", ".tmp"))]
    saved = {p.name for p in log.iterdir() if ".torn-" in p.name}
    repairs = [line for line in (log / "wire.jsonl").read_bytes().split(b"\n") if b'"store.repair"' in line]
    assert len(repairs) == len(saved) == len(steps)


async def test_killed_at_any_moment(victims: Victims) -> None:
    chance = random.Random(2)
    for _ in range(30):
        assert victims.live(kill_after_s=chance.uniform(0, 0.08)) == -signal.SIGKILL
        await victims.check()
    assert len(victims.told) > 100


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
async def test_a_medium_that_fails_now_and_then_loses_nothing_either(victims: Victims, error: str) -> None:
    chance = random.Random(3)
    for _ in range(15):
        names = chance.sample(failpoints.NAMES, 4)
        rules = ";".join(f"{name}={error}@{chance.randint(1, 3)}-{chance.randint(3, 6)}" for name in names)
        part = f"log.write=part:{chance.randint(0, 80)}:{error}@{chance.randint(4, 20)}"
        assert victims.live(f"{rules};{part}") == 0
        await victims.check()
    assert len(victims.told) > 100
