"""MCP servers as real processes: listed, called, cancelled, timed out, crashed, restarted, closed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from protocol.messages import ImagePart, TextPart
from sidecar.settings import Mcp, McpServer
from sidecar.tools.mcp import McpPool
from sidecar.tools.mcp.content import outcome_of
from sidecar.tools.mcp.names import MAX_LENGTH, names_of
from sidecar.tools.port import ToolOutcome
from sidecar.tools.registry import ToolSet
from tests.support.tools import context_in, text_of

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))


@dataclass
class Running:
    pool: McpPool
    trace_file: Path
    notices: list[tuple[str, str]] = field(default_factory=list)

    async def call(self, name: str, **arguments: Any) -> ToolOutcome:
        tool = ToolSet.of(mcp=self.pool.tools()).get(name) or self.pool.stand_in(name)
        assert tool is not None
        return await tool.run(context_in(self.trace_file.parent), arguments)  # type: ignore[union-attr]

    def trace(self) -> list[str]:
        return self.trace_file.read_text().splitlines() if self.trace_file.exists() else []

    async def traced(self, start: str, times: int = 1) -> list[str]:
        """The lines that begin so, once there are so many."""
        with anyio.fail_after(20):
            while len(lines := [t for t in self.trace() if t.startswith(start)]) < times:
                await anyio.sleep(0.01)
        return lines

    async def noticed(self, kind: str) -> str:
        with anyio.fail_after(20):
            while not (found := [m for k, m in self.notices if k == kind]):
                await anyio.sleep(0.01)
        return found[0]


@asynccontextmanager
async def running(
    tmp_path: Path, *modes: str, environment: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """A server `a`, and for each further mode one more, `b`, `c`."""
    trace = tmp_path / "trace"
    servers = {
        name: McpServer(command=sys.executable, args=(SCRIPT, mode), env={"TRACE": str(trace)}, **settings)
        for name, mode in zip("abc", modes or ("",), strict=False)
    }
    async with pool_of(tmp_path, servers, environment) as run:
        yield run


@asynccontextmanager
async def pool_of(
    tmp_path: Path, servers: dict[str, McpServer], environment: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    notices: list[tuple[str, str]] = []
    async with anyio.create_task_group() as group:
        pool = McpPool(
            Mcp(servers=servers),
            group,
            lambda kind, text: notices.append((kind, text)),
            environment=os.environ if environment is None else environment,
            cwd=str(tmp_path),
        )
        try:
            yield Running(pool, tmp_path / "trace", notices)
        finally:
            with anyio.CancelScope(shield=True):
                await pool.aclose()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- living servers


async def test_tools_are_listed_and_called(tmp_path: Path) -> None:
    async with running(tmp_path, "chatter") as run:
        assert run.pool.tools() == ()
        assert await run.pool.ready()
        tools = {t.spec.name: t for t in run.pool.tools()}
        assert list(tools) == sorted(tools)
        assert len(tools) == 13
        echo = tools["mcp__a__echo"]
        assert echo.spec.description == "Does echo."
        assert echo.spec.parameters == {"type": "object", "properties": {"text": {"type": "string"}}}
        assert echo.side_effects
        assert tools["mcp__a__look"].side_effects
        assert text_of(await run.call("mcp__a__echo", text="hi")) == "echo: hi"
        assert run.notices == []
        pid = int(run.trace()[0].split()[1])
    assert not alive(pid)


async def test_hints_count_only_where_they_are_trusted(tmp_path: Path) -> None:
    async with running(tmp_path, trust_hints=True) as run:
        await run.pool.ready()
        effects = {t.spec.name: t.side_effects for t in run.pool.tools()}
        assert effects["mcp__a__look"] is False
        assert effects["mcp__a__echo"] is True


async def test_answers_of_every_kind(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        assert (await run.call("mcp__a__image")).content[0].media_type == "image/png"  # type: ignore[union-attr]
        failed = await run.call("mcp__a__fail")
        assert (failed.is_error, text_of(failed)) == (True, "it went wrong")
        mixed = await run.call("mcp__a__mixed")
        first, second = mixed.content
        assert isinstance(second, ImagePart)
        assert isinstance(first, TextPart)
        assert first.text == "\n".join(
            (
                "a\ufffdb",
                "[image, image/png; its data is damaged]",
                "[image of type image/tiff, 9 bytes; only PNG, JPEG, GIF and WebP can be shown]",
                "[audio, audio/wav, 9 bytes; it cannot be shown here]",
                "[resource file:///x]\ninner",
                "[resource file:///y, application/zip, 9 bytes; it cannot be shown here]",
                "[resource zed, file:///z]",
            )
        )
        broken = await run.call("mcp__a__broken")
        assert broken.is_error
        assert "does not answer as an MCP server should" in text_of(broken)
        assert text_of(await run.call("mcp__a__echo", text="still there")) == "echo: still there"


def test_structured_content_stands_in_for_content() -> None:
    result = SimpleNamespace(content=[], structured_content={"a": "ä"}, is_error=False)
    assert outcome_of(result) == ToolOutcome((TextPart('{"a": "ä"}'),))


async def test_changed_tools_are_there_at_the_next_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        await run.call("mcp__a__grow")
        with anyio.fail_after(10):
            while "mcp__a__grown_0" not in {t.spec.name for t in run.pool.tools()}:
                await run.pool.ready()
                await anyio.sleep(0.01)
        assert text_of(await run.call("mcp__a__grown_0", text="x")) == "grown_0: x"


async def test_the_environment_is_small(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "LANG": "C.UTF-8",
        "TMPDIR": str(tmp_path),
        "USER": "u",
        "X_API_KEY": "k",
        "OTHER": "o",
    }
    async with running(tmp_path, environment=environment) as run:
        await run.pool.ready()
        *names, folder = text_of(await run.call("mcp__a__environment")).splitlines()
        names = [n for n in names if not n.startswith("LC_")]  # the interpreter's own
        assert names == ["HOME", "LANG", "PATH", "TMPDIR", "TRACE"]
        assert folder == os.path.realpath(tmp_path)


async def test_two_servers_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, "", "slow") as run:
        await run.pool.ready()
        assert {t.spec.name.split("__")[1] for t in run.pool.tools()} == {"a", "b"}
        results: dict[str, str] = {}

        async def one(server: str) -> None:
            results[server] = text_of(await run.call(f"mcp__{server}__echo", text=server))

        async with anyio.create_task_group() as group:
            for name in ("a", "b"):
                group.start_soon(one, name)
        assert results == {"a": "echo: a", "b": "echo: b"}


# ---------------------------------------------------------------- ending calls


async def test_a_cancelled_call_leaves_at_once_and_tells_the_server(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run.call("mcp__a__sleep"))
            await run.traced("call sleep")
            group.cancel_scope.cancel()
        await run.traced("notifications/cancelled")
        assert text_of(await run.call("mcp__a__echo", text="x")) == "echo: x"
        assert len(await run.traced("start")) == 1


async def test_a_call_that_takes_too_long_is_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, timeout_s=0.5) as run:
        await run.pool.ready()
        slow = await run.call("mcp__a__sleep")
        assert slow.is_error
        assert "did not answer within 0.5 s; it may have had effects" in text_of(slow)
        assert text_of(await run.call("mcp__a__echo", text="x")) == "echo: x"


# ---------------------------------------------------------------- dying and coming back


async def test_a_server_that_dies_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        died = await run.call("mcp__a__die")
        assert died.is_error
        assert "ended during the call" in text_of(died)
        assert "The MCP server a ended" in await run.noticed("mcp_server_died")
        assert "mcp__a__echo" in {t.spec.name for t in run.pool.tools()}
        assert text_of(await run.call("mcp__a__echo", text="back")) == "echo: back"
        assert len(await run.traced("start")) == 2
        await run.call("mcp__a__die")
        assert text_of(await run.call("mcp__a__echo", text="again")) == "echo: again"


async def test_a_server_that_is_killed_between_calls_answers_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        os.kill(int(run.trace()[0].split()[1]), signal.SIGKILL)
        await run.noticed("mcp_server_died")
        assert text_of(await run.call("mcp__a__echo", text="x")) == "echo: x"


async def test_calls_of_a_dying_server_all_end(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.pool.ready()
        outcomes: list[ToolOutcome] = []

        async def sleep() -> None:
            outcomes.append(await run.call("mcp__a__sleep"))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(sleep)
            await run.traced("call sleep", 3)
            os.kill(int(run.trace()[0].split()[1]), signal.SIGKILL)
        assert all(o.is_error and "ended during the call" in text_of(o) for o in outcomes)
        assert len(outcomes) == 3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (McpServer(command="no-such-program"), "its command was not found"),
        (McpServer(command=sys.executable, args=(SCRIPT, "exit")), "could not be started"),
        (McpServer(command="/"), "permission denied"),
        (McpServer(url="http://127.0.0.1:9/mcp"), "it cannot be reached"),
        (McpServer(command=sys.executable, args=(SCRIPT,), cwd="/nowhere"), "not found"),
    ],
)
async def test_a_server_that_cannot_be_started_is_a_notice_and_an_error(
    tmp_path: Path, settings: McpServer, why: str
) -> None:
    async with pool_of(tmp_path, {"a": settings}) as run:
        assert await run.pool.ready()
        assert run.pool.tools() == ()
        text = await run.noticed("mcp_server_failed")
        assert text.startswith("The MCP server a could not be started: ")
        assert why in text
        outcome = await run.call("mcp__a__echo", text="x")
        assert outcome.is_error
        assert "There is no tool `mcp__a__echo`: the MCP server a is not running" in text_of(outcome)


async def test_a_stand_in_starts_the_server_and_calls_it(tmp_path: Path) -> None:
    """A session that was resumed knows tools whose server is not up yet."""
    async with running(tmp_path, "slow") as run:
        assert text_of(await run.call("mcp__a__echo", text="early")) == "echo: early"
        assert "has no such tool" in text_of(await run.call("mcp__a__nothing"))
        assert run.pool.stand_in("mcp__other__x") is None
        assert run.pool.stand_in("echo") is None


async def test_a_turn_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path, "silent", "") as run:
        assert await run.pool.ready(0.2) is False
        with anyio.fail_after(20):
            while not run.pool.tools():
                await anyio.sleep(0.01)
        assert {t.spec.name.split("__")[1] for t in run.pool.tools()} == {"b"}


async def test_closing_ends_what_a_server_left_behind(tmp_path: Path) -> None:
    async with running(tmp_path, "child", "silent") as run:
        await run.traced("child")
        await run.traced("start", 2)
        pids = [int(line.split()[1]) for line in run.trace() if line.split()[0] in ("start", "child")]
        assert all(alive(pid) for pid in pids)
    with anyio.fail_after(10):
        while any(alive(pid) for pid in pids):
            await anyio.sleep(0.01)


async def test_cancelling_the_group_ends_the_servers(tmp_path: Path) -> None:
    servers = {"a": McpServer(command=sys.executable, args=(SCRIPT,), env={"TRACE": str(tmp_path / "trace")})}
    async with anyio.create_task_group() as group:
        pool = McpPool(Mcp(servers=servers), group, lambda *_: None, environment=os.environ, cwd=str(tmp_path))
        await pool.ready()
        group.cancel_scope.cancel()
    assert not alive(int((tmp_path / "trace").read_text().split()[1]))


# ---------------------------------------------------------------- names


def test_names_are_legal_and_stay_apart() -> None:
    long = "x" * 80
    names = names_of(
        [
            ("my server", "a.b"),
            ("my server", "a b"),
            ("my server", "a_b"),
            ("s", long),
            ("s", long + "y"),
            ("a__b", "c"),
            ("a", "b__c"),
        ]
    )
    assert names["my server", "a b"] == "mcp__my_server__a_b"
    assert names["my server", "a.b"].startswith("mcp__my_server__a_b_")
    assert names["my server", "a_b"].startswith("mcp__my_server__a_b_")
    assert names["a", "b__c"] == "mcp__a__b__c"
    assert names["a__b", "c"].startswith("mcp__a__b__c_")
    assert len(set(names.values())) == len(names)
    assert all(len(n) <= MAX_LENGTH and n.replace("_", "").replace("-", "").isalnum() for n in names.values())
    assert names_of(reversed(list(names))) == names


def test_a_name_that_needed_no_change_keeps_it() -> None:
    names = names_of([("s", "a.b"), ("s", "a_b")])
    assert names["s", "a_b"] == "mcp__s__a_b"
    assert names["s", "a.b"].startswith("mcp__s__a_b_")
