"""`sidecar inspect` on a session that a real daemon wrote, while the daemon still has it open."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import anyio
import pytest

from tests.support.fake_llm import FakeLLM, Reply
from tests.support.running import Sidecar, running_sidecar

pytestmark = pytest.mark.anyio

SUMMARY = "SUMMARY: the goal stands, the port is 8081. " + "What was done follows here, in some detail. " * 8
LONG = "because the reasons given before still hold " * 150


async def inspect(sidecar: Sidecar, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process(
        sidecar.command("inspect", *arguments), env=sidecar.env, cwd=sidecar.work, check=False
    )


def data_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    agents: list[dict[str, Any]] = json.loads(found[1])
    return agents


async def test_a_session_becomes_a_page() -> None:
    with FakeLLM(lambda request, n: Reply(SUMMARY if n == 3 else f"answer <b>{n}</b> {LONG}")) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), title="<script>alert(1)</script>", config={"model": {"window": 20_000}}
            )
            for text in ("first wish", "second wish", "third wish"):
                await sidecar.client.chat.run(session.session_id, text)
            await sidecar.client.chat.compact(session.session_id)
            context = await sidecar.client.context.get(session.session_id)

            done = await inspect(sidecar, session.session_id, "--html", "page.html")
            assert done.returncode == 0, done.stderr
            page = (sidecar.work / "page.html").read_text()
            (agent,) = data_of(page)
            assert agent["steps"] == 3
            assert [turn[8] for turn in agent["turns"]] == ["first wish", "second wish", "third wish"]
            assert agent["limits"][-1][2:] == [
                20_000, context.soft_at, context.policy["snip_at"], context.trigger_at, context.block_at,
            ]  # fmt: skip
            assert context.last_landing is not None
            assert agent["points"][-1][2] == context.last_landing.post_tokens
            (compaction,) = agent["compactions"]
            assert compaction["outcome"] == "landed"
            assert "the port is 8081" in page
            assert "answer &lt;b&gt;1&lt;/b&gt;" in page
            assert "<b>1</b>" not in page
            assert "alert(1)</script>" not in page


async def test_what_cannot_be_shown_is_an_error() -> None:
    async with running_sidecar() as sidecar:
        assert (await inspect(sidecar, "no-such-session", "--html", "page.html")).returncode == 1
        assert (await inspect(sidecar, "no-such-session")).returncode == 2
        assert not (sidecar.work / "page.html").exists()
