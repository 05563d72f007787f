"""MCP servers of a session as a host and a model see them: real servers over stdio behind a real daemon."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.raw_host import ROOT
from tests.support.tool_talk import Talk, talking

SERVER = str(ROOT / "tests" / "unit" / "tools" / "mcp_server.py")


def server(*mode: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [SERVER, *mode], **more}


def servers(**found: dict[str, Any]) -> dict[str, Any]:
    return {"mcp": {"servers": found}}


def started(trace: Path, count: int = 1) -> list[int]:
    """The pids of the servers that started, in order."""
    end = time.monotonic() + 15
    while True:
        lines = trace.read_text().splitlines() if trace.exists() else []
        pids = [int(line.split()[1]) for line in lines if line.startswith("start ")]
        if len(pids) >= count:
            return pids
        assert time.monotonic() < end, f"{len(pids)} of {count} servers started"
        time.sleep(0.02)


def notices(talk: Talk, session: str) -> list[str]:
    return [n["kind"] for n in talk.events(session, "notice")]


def test_listed_before_the_first_turn_and_called_and_errors_told() -> None:
    with talking() as (talk, llm, work):
        tool = {"name": "zeta", "description": "", "parameters": {"type": "object"}}
        session = talk.create(work, "read", servers(hand=server()), tools=[tool])
        names = talk.names(session)
        assert "mcp__hand__echo" in names
        assert names == sorted(names)
        assert {"zeta", "read_file"} <= set(names)
        results = talk.do(session, ("mcp__hand__echo", {"text": "hi"}), ("mcp__hand__fail", {}))
        assert (results[0].failed, results[0].text) == (False, "echo: hi")
        assert (results[1].failed, results[1].text) == (True, "it went wrong")
        assert [t["function"]["name"] for t in llm.requests[-1].json["tools"]] == names
        assert talk.one(session, "mcp__hand__echo", {"text": 5}).failed
        assert talk.one(session, "mcp__hand__nothing", {}).failed
        assert len({str(r.json["tools"]) for r in llm.requests}) == 1


def test_images_come_through() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, config=servers(hand=server()))
        result = talk.one(session, "mcp__hand__image", {})
        assert [p["type"] for p in result.event["content"]] == ["image"]
        assert result.event["content"][0]["media_type"] == "image/png"
        assert not result.failed


def test_the_environment_is_four_names_and_what_is_configured(tmp_path: Path) -> None:
    where = tmp_path / "where"
    where.mkdir()
    config = servers(hand=server(env={"MINE": "1"}, cwd=str(where)))
    with talking(env={"OTHER": "x", "GITHUB_TOKEN": "t", "LC_CTYPE": "C.UTF-8"}) as (talk, _, work):
        session = talk.create(work, config=config)
        lines = talk.one(session, "mcp__hand__environment", {}).text.splitlines()
        assert lines[-1] == str(where)
        assert "MINE" in lines
        # LC_CTYPE is set by the interpreter of the server itself.
        assert set(lines[:-1]) <= {"PATH", "HOME", "LANG", "TMPDIR", "MINE", "LC_CTYPE"}


def test_one_that_dies_is_told_and_starts_again_on_the_next_call(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with talking() as (talk, _, work):
        session = talk.create(work, config=servers(hand=server(env={"TRACE": str(trace)})))
        assert talk.one(session, "mcp__hand__die", {}).failed
        assert talk.one(session, "mcp__hand__echo", {"text": "back"}).text == "echo: back"
        assert any("mcp" in kind for kind in notices(talk, session))
        first, second = started(trace, 2)
        assert first != second
        os.kill(second, signal.SIGKILL)
        talk.wait(lambda _: len(notices(talk, session)) >= 2, "a second notice")
        assert talk.one(session, "mcp__hand__echo", {"text": "again"}).text == "echo: again"


def test_cancel_and_timeout_and_the_server_goes_on(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    config = servers(hand=server(env={"TRACE": str(trace)}, timeout_s=1))
    with talking() as (talk, _, work):
        session = talk.create(work, config=config)
        late = talk.one(session, "mcp__hand__sleep", {})
        assert late.failed
        ended = talk.ask(session, ("mcp__hand__sleep", {}))
        talk.wait(lambda _: len(talk.events(session, "tool_call_started")) == 2, "the second call")
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
        assert talk.reply(ended, 1.5)["result"]["stop_reason"] == "cancelled"
        assert talk.one(session, "mcp__hand__echo", {"text": "on"}).text == "echo: on"
        assert "notifications/cancelled" in trace.read_text()
        assert len(started(trace)) == 1


def test_a_bad_command_holds_nothing_up() -> None:
    config = servers(bad={"command": "no-such-program-anywhere"}, ends=server("exit"), good=server())
    with talking() as (talk, _, work):
        session = talk.create(work, config=config)
        assert "mcp__good__echo" in talk.names(session)
        assert talk.one(session, "mcp__good__echo", {"text": "x"}).text == "echo: x"
        assert talk.one(session, "mcp__bad__anything", {}).failed
        assert talk.one(session, "mcp__ends__anything", {}).failed
        assert len([k for k in notices(talk, session) if "mcp" in k]) >= 2


def test_a_silent_server_neither_holds_pings_nor_a_cancel() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, config=servers(silent=server("silent")))
        listing = talk.start("tool.list", {"session_id": session})
        assert talk.call("system.ping", {}, 2)["ok"]
        ended = talk.ask(session)
        while talk.call("agent.session.get", {"session_id": session})["session"]["state"] != "running":
            time.sleep(0.02)
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
        assert talk.reply(ended, 1.5)["result"]["stop_reason"] == "cancelled"
        assert "read_file" in [t["name"] for t in talk.reply(listing, 20)["result"]["tools"]]


def test_a_slow_server_is_waited_for() -> None:
    with talking() as (talk, llm, work):
        session = talk.create(work, "none", servers(slow=server("slow")))
        assert talk.one(session, "mcp__slow__echo", {"text": "x"}).text == "echo: x"
        assert "mcp__slow__echo" in [t["function"]["name"] for t in llm.requests[0].json["tools"]]


def test_servers_ask_and_a_trusted_hint_does_not() -> None:
    handlers = {"approval.request": lambda _: {"outcome": "reject"}}
    config = {**servers(hand=server(), kind=server(trust_hints=True)), "approval": {"mode": "ask"}}
    with talking(handlers=handlers) as (talk, _, work):
        session = talk.create(work, config=config)
        results = talk.do(session, ("mcp__hand__look", {}), ("mcp__kind__look", {}), ("mcp__kind__echo", {"text": "x"}))
        assert [r.failed for r in results] == [True, False, True]
        assert [f["params"]["name"] for f in talk.asked("approval.request")] == ["mcp__hand__look", "mcp__kind__echo"]
        hints = {t["name"]: t.get("side_effects") for t in talk.call("tool.list", {"session_id": session})["tools"]}
        assert hints["mcp__hand__look"] is True
        assert hints["mcp__kind__look"] is False


def test_allow_rules_name_servers_by_glob() -> None:
    config = {
        **servers(hand=server()),
        "approval": {"mode": "ask", "allow": ["mcp__hand__*"], "deny": ["mcp__*__fail"]},
    }
    with talking(capabilities={}) as (talk, _, work):
        session = talk.create(work, config=config)
        assert not talk.one(session, "mcp__hand__echo", {"text": "x"}).failed
        assert "it went wrong" not in talk.one(session, "mcp__hand__fail", {}).text


def test_names_that_collide_are_told_apart() -> None:
    tool = {"name": "mcp__hand__echo", "description": "host", "parameters": {"type": "object"}}
    with talking(handlers={"tool.call": lambda _: {"content": "the host"}}) as (talk, _, work):
        session = talk.create(work, "none", servers(hand=server()), tools=[tool])
        names = talk.names(session)
        assert len(names) == len(set(names))
        assert all(n.replace("_", "").replace("-", "").isalnum() and len(n) <= 64 for n in names)
        dotted = [n for n in names if "with" in n]
        assert len(dotted) == 2
        texts = {talk.one(session, n, {"text": "x"}).text for n in dotted}
        assert texts == {"with.dot: x", "with dot: x"}
        assert talk.one(session, "mcp__hand__echo", {}).text == "the host"


def test_servers_end_with_their_session_and_with_the_daemon(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with talking() as (talk, _, work):
        first = talk.create(work, config=servers(hand=server("child", env={"TRACE": str(trace)})))
        talk.do(first)
        talk.call("agent.session.close", {"session_id": first})
        second = talk.create(work, config=servers(hand=server("child", env={"TRACE": str(trace)})))
        talk.do(second)
        pids = started(trace, 2)
        gone(pids[0])
        talk.process.send_signal(signal.SIGTERM)
        assert talk.exit_code(8) == 0
        gone(pids[1])
        for line in trace.read_text().splitlines():
            if line.startswith("child "):
                gone(int(line.split()[1]))


def gone(pid: int) -> None:
    end = time.monotonic() + 8
    while Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < end, f"{pid} still runs"
        time.sleep(0.02)


def test_secrets_of_a_server_are_never_stored_and_are_given_again_after_a_restart(tmp_path: Path) -> None:
    home, secret = tmp_path / "home", "the-value-of-a-token"
    hand = server("--api-key", f"arg-{secret}", env={"SERVICE_TOKEN": secret, "PLAIN": "as it is"}, cwd=str(tmp_path))
    backwards = f"--api-key arg-{secret} {secret}"[::-1]
    with talking(home=str(home)) as (talk, _, work):
        session = talk.create(work, config=servers(hand=hand))
        assert talk.one(session, "mcp__hand__backwards", {"text": "SERVICE_TOKEN"}).text == backwards
        # What is configured beside it leaves it in place, and a fork has it too.
        talk.call("agent.session.configure", {"session_id": session, "config": {"loop_control": {"max_steps": 9}}})
        fork = talk.call("agent.session.fork", {"session_id": session})["session"]["session_id"]
        for each in (session, fork):
            assert talk.one(each, "mcp__hand__backwards", {"text": "SERVICE_TOKEN"}).text == backwards
        shown = str(talk.call("config.get", {"session_id": session, "key": "mcp"}))
        assert secret not in shown
        assert "as it is" in shown
        talk.process.kill()
        assert secret not in talk.stderr
    assert not [p for p in home.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
    with talking(home=str(home)) as (talk, _, _work):
        talk.call("agent.session.resume", {"session_id": session})
        lost = talk.one(session, "mcp__hand__backwards", {"text": "SERVICE_TOKEN"})
        assert lost.failed
        assert "env.SERVICE_TOKEN" in lost.text
        assert "agent.session.configure" in lost.text
        again = servers(hand={k: hand[k] for k in ("args", "env")})
        talk.call("agent.session.configure", {"session_id": session, "config": again})
        assert talk.one(session, "mcp__hand__backwards", {"text": "SERVICE_TOKEN"}).text == backwards


def test_what_a_server_says_of_its_secrets_does_not_reach_the_log(tmp_path: Path) -> None:
    program = tmp_path / "indiscreet.py"
    program.write_text(
        "import json, os, sys\n"
        "print('using', os.environ['API_KEY'], *sys.argv[1:], file=sys.stderr, flush=True)\n"
        "error = {'code': -32000, 'message': 'bad key ' + os.environ['API_KEY']}\n"
        "for line in sys.stdin:\n"
        "    answer = {'jsonrpc': '2.0', 'id': json.loads(line).get('id'), 'error': error}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    told = {
        "command": sys.executable,
        "args": [str(program), "--token=told-by-word"],
        "env": {"API_KEY": "told-by-name"},
    }
    away = {"url": "http://me:told-by-login@127.0.0.1:9/mcp?key=told-by-query"}
    with talking("--stdio", "--log-level", "debug") as (talk, _, work):
        session = talk.create(work, "none", servers(told=told, away=away))
        talk.do(session)
        talk.wait_stderr("using *** ***")
        (notice,) = [n for n in talk.events(session, "notice") if "told" in n["message"]]
        assert "bad key ***" in notice["message"]
        assert "told-by" not in talk.stderr


def test_the_mcp_package_is_loaded_only_for_a_server() -> None:
    with talking() as (talk, _, work):
        talk.do(talk.create(work, "all"), ("list_dir", {}))
        maps = Path(f"/proc/{talk.process.pid}/maps").read_text()
        assert "pydantic_core" not in maps
        session = talk.create(work, "none", servers(hand=server()))
        talk.do(session)
        assert "pydantic_core" in Path(f"/proc/{talk.process.pid}/maps").read_text()
