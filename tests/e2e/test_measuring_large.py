"""Text that tokenizers choke on: a megabyte of one character, of CJK, of noise. Turns go through, others go on."""

from __future__ import annotations

import random
import string

import anyio
import pytest

from protocol import events as e
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.one_daemon import OneDaemon
from tests.support.running import running_sidecar

pytestmark = pytest.mark.anyio

_dice = random.Random(7)
TEXTS = {
    "spaces": " " * 1_000_000 + "x",
    "one letter": "a" * 1_000_000,
    "line ends": "x" + "\n" * 1_000_000 + "x",
    "chinese": "".join(chr(0x4E00 + _dice.randrange(20_000)) for _ in range(350_000)),
    "emoji": "😀" * 250_000,
    "noise": "".join(_dice.choice(string.ascii_letters) for _ in range(1_000_000)),
}
CONFIG = {"model": {"window": 50_000_000}, "tools": {"spill_bytes": 1 << 24}}


@pytest.mark.parametrize("name", TEXTS)
async def test_as_input_and_as_result(daemon: OneDaemon, name: str) -> None:
    """It reaches the model whole; pings and another session's turns are answered meanwhile."""
    text = TEXTS[name]

    @host_tool("big", "Gives much.", {})
    async def big(call: HostCall) -> str:
        return text

    def script(request: dict[str, object], n: int) -> Reply:
        return Reply("", tool_calls=[call("big", {})], usage=False) if n == 0 else Reply("done", usage=False)

    async with (
        daemon.talk("openai", script, config=CONFIG, tools=[big]) as talk,
        daemon.talk("openai", lambda r, n: Reply("quick"), client=talk.client) as other,
    ):
        done = anyio.Event()

        async def meanwhile() -> None:
            while not done.is_set():
                await talk.client.system.ping()
                assert (await other.run("hello")).text == "quick"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meanwhile)
            result = await talk.run(text, timeout=60)
            done.set()
        assert result.text == "done", result.error
        first, second = talk.requests
        assert first.texts[-1] == ("user", text)
        assert ("tool", text) in second.texts
        # The estimate of both, within what an estimate may be off by.
        used = (await talk.info()).used
        lowest = 2 * len(text.encode()) / 130
        assert lowest < used < 3 * len(text.encode())


async def test_estimates_before_the_vocabulary_are_replaced_by_it() -> None:
    """The very first thing that a daemon hears is a large text; what it says of its size settles on the true count."""
    text = "The quick brown fox jumps over the lazy dog. " * 2_000
    with FakeLLM(lambda request, n: Reply("ok", usage=False)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), config={"model": {"window": 1_000_000}}
            )
            await sidecar.client.chat.run(session.session_id, text)
            with anyio.fail_after(20):
                while True:
                    used = (await sidecar.client.context.get(session.session_id)).used
                    if 20_000 < used < 20_400:
                        break
                    await anyio.sleep(0.02)


async def test_plain_text_is_counted_as_it_is(daemon: OneDaemon) -> None:
    """Twenty-four thousand tokens of plain words are estimated as such, without any report of the provider's."""
    async with daemon.talk("openai", lambda r, n: Reply("ok", usage=False), config=CONFIG) as talk:
        await talk.run("one two three four five. " * 4_000)
        used = (await talk.info()).used
        assert 23_000 < used < 26_000
        assert not talk.of_type(e.CompactionStarted)
