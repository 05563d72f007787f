"""Who may say yes to a call, and what happens when nobody does: frames of raw hosts against a real daemon."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm import FakeLLM
from tests.support.raw_host import RawHost
from tests.support.tool_talk import SocketTalk, Talk, obedient, talking

WRITE = ("write_file", {"path": "w", "content": "x"})
COMMAND = ("run_command", {"command": "touch c"})
CAN = {"tools": True, "approvals": True}


def yes(outcome: str = "allow_once") -> Any:
    return lambda _: {"outcome": outcome}


@contextmanager
def served(**more: str) -> Iterator[tuple[str, Path, FakeLLM]]:
    """A daemon at a socket: the socket, a folder to work in, the model."""
    with FakeLLM(obedient) as llm, tempfile.TemporaryDirectory(prefix="sc-") as folder:
        work = Path(folder, "work").resolve()
        work.mkdir()
        address = str(Path(folder, "s", "s"))
        env = llm.environment() | more
        with RawHost("--socket", address, module="sidecar", env=env):
            end = time.monotonic() + 15
            while not Path(address).exists():
                assert time.monotonic() < end
                time.sleep(0.02)
            yield address, work, llm


def client(address: str, handlers: Any = None, **capabilities: bool) -> SocketTalk:
    talk = SocketTalk(address, handlers)
    talk.hello(**capabilities)
    return talk


def approvals(talk: Any, session: str) -> list[tuple[str, str, str]]:
    found = talk.call("record.query", {"session_id": session, "types": ["tool.approval"]})["records"]
    return [(r["record"]["name"], r["record"]["outcome"], r["record"]["by"]) for r in found]


@pytest.mark.parametrize(
    ("mode", "asked"),
    [("ask", ["write_file", "run_command"]), ("auto_edit", ["run_command"]), ("auto", []), ("deny", [])],
)
def test_each_mode(mode: str, asked: list[str]) -> None:
    with talking(handlers={"approval.request": yes()}) as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": mode}})
        results = talk.do(session, WRITE, COMMAND, ("read_file", {"path": "w"}))
        assert [f["params"]["name"] for f in talk.asked("approval.request")] == asked
        ran = mode != "deny"
        assert [r.failed for r in results] == ([False] * 3 if ran else [True] * 3)
        assert (work / "w").exists() is ran
        assert (work / "c").exists() is ran
        by = ["policy" if n not in asked else "host" for n in ("write_file", "run_command")]
        outcome = "allow_once" if ran else "reject"
        assert approvals(talk, session) == [("write_file", outcome, by[0]), ("run_command", outcome, by[1])]


def test_the_frame_names_all() -> None:
    with talking(handlers={"approval.request": yes()}) as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": "ask"}})
        talk.do(session, COMMAND)
        frame = talk.asked("approval.request")[0]
        params = frame["params"]
        assert frame["id"].startswith("s-")
        assert params["session_id"] == session
        assert params["arguments"] == {"command": "touch c"}
        assert params["options"] == ["allow_once", "allow_session", "reject"]
        assert params["turn_id"] == talk.events(session, "turn_ended")[0]["turn_id"]
        assert params["tool_call_id"] == talk.results(session)[0].event["tool_call_id"]


def test_rules_with_globs_and_deny_wins() -> None:
    config = {
        "approval": {
            "mode": "ask",
            "allow": ["run_command(touch *)", "write_file(src/**)", "edit_file"],
            "deny": ["run_command(*forbidden*)", "write_file(src/private/**)", "read_file(**/.env)"],
        }
    }
    with talking(handlers={"approval.request": yes("reject")}) as (talk, _, work):
        (work / "src" / "private").mkdir(parents=True)
        (work / ".env").write_text("secret")
        (work / "link").symlink_to(work / "src" / "private")
        session = talk.create(work, config=config)

        def write(path: str) -> bool:
            return not talk.one(session, "write_file", {"path": path, "content": "x"}).failed

        assert not talk.one(session, "run_command", {"command": "touch fine"}).failed
        assert talk.one(session, "run_command", {"command": "touch forbidden"}).failed
        assert talk.one(session, "run_command", {"command": "touch a; touch forbidden"}).failed
        assert write("src/a/b")
        assert not write("src/private/b")
        assert not write("src/../src/private/b")
        assert not write("link/b")
        assert talk.one(session, "read_file", {"path": ".env"}).failed
        assert not talk.asked("approval.request")
        assert not write("other")
        assert not write("src/../other")
        assert talk.one(session, "run_command", {"command": "touch x; rm -rf src"}).failed
        assert len(talk.asked("approval.request")) == 3
        assert (work / "src").exists()


def test_deny_wins_over_auto_and_over_a_grant() -> None:
    with talking(handlers={"approval.request": yes("allow_session")}) as (talk, _, work):
        session = talk.create(work, config={"approval": {"deny": ["run_command"]}})
        assert talk.one(session, *COMMAND).failed
        other = talk.create(work, config={"approval": {"mode": "ask"}})
        assert not talk.one(other, *COMMAND).failed
        talk.call("agent.session.configure", {"session_id": other, "config": {"approval": {"deny": ["run_command"]}}})
        assert talk.one(other, *COMMAND).failed


def test_a_grant_is_for_its_tool_and_its_session_and_stays_over_resume(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    config = {"approval": {"mode": "ask"}}
    with talking(handlers={"approval.request": yes("allow_session")}, home=home) as (talk, _, work):
        session = talk.create(work, config=config)
        talk.do(session, COMMAND)
        talk.do(session, COMMAND)
        assert len(talk.asked("approval.request")) == 1
        talk.do(session, WRITE)
        assert len(talk.asked("approval.request")) == 2
        other = talk.create(work, config=config)
        talk.do(other, COMMAND)
        assert len(talk.asked("approval.request")) == 3
        fork = talk.call("agent.session.fork", {"session_id": session})["session"]["session_id"]
        talk.do(fork, COMMAND)
        assert len(talk.asked("approval.request")) == 4
        cwd = str(work)
        talk.process.kill()
        talk.process.wait()
        Path(cwd).mkdir(exist_ok=True)
        with FakeLLM(obedient) as llm, Talk(env=llm.environment() | {"SIDECAR_HOME": home}) as again:
            again.hello()
            again.call("agent.session.resume", {"session_id": session})
            assert not again.one(session, *COMMAND).failed
            assert approvals(again, session)[-1] == ("run_command", "allow_once", "session_grant")
            again.call("agent.session.resume", {"session_id": other})
            assert again.one(other, *WRITE).failed


def test_nobody_to_ask_is_denied_at_once() -> None:
    for capabilities in ({}, {"approvals": False}):
        with talking(capabilities=capabilities) as (talk, _, work):
            session = talk.create(work, config={"approval": {"mode": "ask"}})
            assert talk.one(session, *COMMAND, timeout=5).failed
            assert not talk.asked("approval.request")
            assert approvals(talk, session) == [("run_command", "reject", "nobody")]


def test_one_that_never_initialised_runs_its_tools_and_nothing_else() -> None:
    handlers = {"tool.call": lambda _: {"content": "mine"}, "approval.request": yes()}
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with FakeLLM(obedient) as llm, tempfile.TemporaryDirectory() as work:
        with Talk(handlers=handlers, env=llm.environment()) as talk:
            session = talk.create(work, config={"approval": {"mode": "ask"}}, tools=[tool])
            results = talk.do(session, ("mine", {}), COMMAND)
            assert results[0].text == "mine"
            assert results[1].failed
            assert not talk.asked("approval.request")


MALFORMED: tuple[Any, ...] = (
    *({"outcome": "yes"}, {}, {"outcome": True}, "allow_once", ["allow_once"], 1),
    *({"outcome": ["allow_once"]}, {"outcome": "ALLOW_ONCE"}),
)


@pytest.mark.parametrize("answer", MALFORMED)
def test_a_malformed_answer_is_a_no(answer: Any) -> None:
    with talking(handlers={"approval.request": lambda _: answer}) as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": "ask"}})
        assert talk.one(session, *COMMAND, timeout=5).failed
        assert not (work / "c").exists()


def test_an_error_and_null_are_a_no_and_a_reason_reaches_the_model() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": "ask"}})
        ended = talk.ask(session, COMMAND)
        frame = talk.wait_asked("approval.request")
        talk.send({"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32601, "message": "no such method"}})
        talk.reply(ended)
        assert talk.results(session)[-1].failed
        ended = talk.ask(session, COMMAND)
        talk.answer(talk.wait_asked("approval.request", 2), None)
        talk.reply(ended)
        assert talk.results(session)[-1].failed
        ended = talk.ask(session, COMMAND)
        talk.answer(talk.wait_asked("approval.request", 3), {"outcome": "reject", "reason": "use the other folder"})
        talk.reply(ended)
        assert "use the other folder" in talk.results(session)[-1].text
        assert not (work / "c").exists()


def test_cancel_while_an_approval_is_open() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": "ask"}})
        ended = talk.ask(session, COMMAND)
        frame = talk.wait_asked("approval.request")
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
        assert talk.reply(ended, 1.5)["result"]["stop_reason"] == "cancelled"
        resolved = talk.wait_notified("request.resolved")
        assert resolved == {"request_id": frame["id"], "reason": "cancelled"}
        talk.answer(frame, {"outcome": "allow_once"})
        assert talk.call("system.ping")["ok"]
        time.sleep(0.2)
        assert not (work / "c").exists()
        assert talk.results(session)[-1].failed


def test_first_answer_counts_and_the_others_are_told() -> None:
    with served() as (address, work, _):
        with client(address, **CAN) as a, client(address, **CAN) as b, client(address, tools=True) as c:
            session = a.create(work, config={"approval": {"mode": "ask"}})
            for one in (b, c):
                one.call("agent.session.attach", {"session_id": session})
            ended = a.ask(session, COMMAND)
            frames = [t.wait_asked("approval.request") for t in (a, b)]
            b.answer(frames[1], {"outcome": "reject", "reason": "b says no"})
            a.reply(ended)
            told = a.wait_notified("request.resolved")
            assert told["request_id"] == frames[0]["id"]
            assert isinstance(told["reason"], str)
            a.answer(frames[0], {"outcome": "allow_once"})
            assert a.call("system.ping")["ok"]
            assert not (work / "c").exists()
            assert "b says no" in a.results(session)[-1].text
            assert not c.asked("approval.request")
            assert not b.notified("request.resolved")
            assert not c.notified("request.resolved")


def test_a_tool_call_goes_to_its_owner_and_only_there() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with served() as (address, work, _):
        with client(address, {"tool.call": lambda _: {"content": "a"}}, **CAN) as a, client(address, **CAN) as b:
            session = a.create(work, tools=[tool])
            b.call("agent.session.attach", {"session_id": session})
            assert a.one(session, "mine", {}).text == "a"
            assert not b.asked("tool.call")


def test_when_the_one_that_could_approve_goes_it_is_waited_for_and_then_denied() -> None:
    config = {"approval": {"mode": "ask", "wait_s": 1}}
    with served() as (address, work, _):
        with client(address, tools=True) as watcher:
            with client(address, **CAN) as a:
                session = a.create(work, config=config)
                watcher.call("agent.session.attach", {"session_id": session})
                a.ask(session, COMMAND)
                a.wait_asked("approval.request")
            started = time.monotonic()
            watcher.wait(lambda _: watcher.events(session, "turn_ended"), "the turn's end")
            assert time.monotonic() - started > 0.8
            assert watcher.results(session)[-1].failed
            assert not (work / "c").exists()
            assert approvals(watcher, session)[-1] == ("run_command", "reject", "nobody")


def test_an_open_approval_is_sent_again_to_one_that_attaches() -> None:
    with served() as (address, work, _):
        with client(address, tools=True) as watcher:
            with client(address, **CAN) as a:
                session = a.create(work, config={"approval": {"mode": "ask"}})
                watcher.call("agent.session.attach", {"session_id": session})
                a.ask(session, COMMAND)
                first = a.wait_asked("approval.request")
            with client(address, **CAN) as back:
                back.call("agent.session.attach", {"session_id": session})
                frame = back.wait_asked("approval.request")
                assert frame["id"] == first["id"]
                assert frame["params"] == first["params"]
                back.answer(frame, {"outcome": "allow_once"})
                watcher.wait(lambda _: watcher.events(session, "turn_ended"), "the turn's end")
                assert (work / "c").exists()


def test_host_tools_are_asked_for_when_configured() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    reading = {"name": "looks", "description": "", "parameters": {"type": "object"}, "side_effects": False}
    handlers = {"tool.call": lambda _: {"content": "ran"}, "approval.request": yes("reject")}
    with talking(handlers=handlers) as (talk, _, work):
        plain = talk.create(work, "none", {"approval": {"mode": "ask"}}, tools=[tool, reading])
        assert talk.one(plain, "mine", {}).text == "ran"
        assert not talk.asked("approval.request")
        strict = talk.create(work, "none", {"approval": {"mode": "ask", "host_tools": True}}, tools=[tool, reading])
        assert talk.one(strict, "mine", {}).failed
        assert len(talk.asked("approval.request")) == 1
        assert len(talk.asked("tool.call")) == 1
        assert talk.one(strict, "looks", {}).text == "ran"


def test_a_host_tool_that_takes_too_long_is_cancelled_at_its_host() -> None:
    tool = {"name": "slow", "description": "", "parameters": {"type": "object"}, "timeout_s": 0.5}
    with talking() as (talk, _, work):
        session = talk.create(work, "none", tools=[tool])
        ended = talk.ask(session, ("slow", {}))
        frame = talk.wait_asked("tool.call")
        assert talk.reply(ended)["result"]["stop_reason"] == "end_turn"
        result = talk.results(session)[-1]
        assert result.failed
        cancelled = talk.wait_notified("tool.cancel")
        assert cancelled == {"session_id": session, "tool_call_id": frame["params"]["tool_call_id"]}
        assert talk.wait_notified("request.resolved") == {"request_id": frame["id"], "reason": "timeout"}
        talk.answer(frame, {"content": "late"})
        assert talk.call("system.ping")["ok"]


def test_a_host_that_comes_back_gets_its_call_again() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with served() as (address, work, _):
        with client(address, tools=True) as watcher:
            with client(address, **CAN) as a:
                session = a.create(work, tools=[tool])
                watcher.call("agent.session.attach", {"session_id": session})
                a.ask(session, ("mine", {}))
                first = a.wait_asked("tool.call")
            with client(address, **CAN) as back:
                back.call("agent.session.resume", {"session_id": session, "tools": [tool]})
                frame = back.wait_asked("tool.call")
                assert frame["params"] == first["params"]
                back.answer(frame, {"content": "at last"})
                watcher.wait(lambda _: watcher.events(session, "turn_ended"), "the turn's end")
                assert watcher.results(session)[-1].text == "at last"


def test_one_that_is_here_already_and_brings_the_tool_gets_the_open_call() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with served() as (address, work, _):
        with client(address, tools=True) as watcher:
            with client(address, **CAN) as a:
                session = a.create(work, tools=[tool])
                watcher.call("agent.session.attach", {"session_id": session})
                a.ask(session, ("mine", {}))
                a.wait_asked("tool.call")
            watcher.call("agent.session.configure", {"session_id": session, "tools": [tool]})
            watcher.answer(watcher.wait_asked("tool.call"), {"content": "taken over"})
            watcher.wait(lambda _: watcher.events(session, "turn_ended"), "the turn's end")
            assert watcher.results(session)[-1].text == "taken over"


def test_a_call_that_one_is_running_is_not_run_by_another() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with served() as (address, work, _):
        with client(address, **CAN) as a, client(address, **CAN) as b:
            session = a.create(work, tools=[tool])
            b.call("agent.session.attach", {"session_id": session})
            ended = a.ask(session, ("mine", {}))
            frame = a.wait_asked("tool.call")
            b.call("agent.session.resume", {"session_id": session, "tools": [tool]})
            assert b.call("system.ping")["ok"]
            a.answer(frame, {"content": "from a"})
            a.reply(ended)
            assert a.results(session)[-1].text == "from a"
            assert not b.asked("tool.call")
            b.ask(session, ("mine", {}))
            b.answer(b.wait_asked("tool.call"), {"content": "from b"})
            b.wait(lambda _: len(b.results(session)) == 2, "the second result")
            assert len(a.asked("tool.call")) == 1


def test_one_that_detaches_and_attaches_is_asked_again() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, config={"approval": {"mode": "ask"}})
        ended = talk.ask(session, COMMAND)
        first = talk.wait_asked("approval.request")
        talk.call("agent.session.detach", {"session_id": session})
        talk.call("agent.session.attach", {"session_id": session})
        again = talk.wait_asked("approval.request", 2)
        assert again["id"] == first["id"]
        talk.answer(again, {"outcome": "allow_once"})
        assert talk.reply(ended)["result"]["stop_reason"] == "end_turn"
        assert (work / "c").exists()


def test_a_host_that_stays_away_is_an_error_result() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with served() as (address, work, _):
        with client(address, tools=True) as watcher:
            with client(address, **CAN) as a:
                session = a.create(work, config={"tools": {"host_wait_s": 0.5}}, tools=[tool])
                watcher.call("agent.session.attach", {"session_id": session})
                a.ask(session, ("mine", {}))
                a.wait_asked("tool.call")
            watcher.wait(lambda _: watcher.events(session, "turn_ended"), "the turn's end")
            assert watcher.events(session, "turn_ended")[-1]["stop_reason"] == "end_turn"
            assert watcher.results(session)[-1].failed
            again = watcher.one(session, "mine", {})
            assert again.failed


def test_host_calls_run_at_once_and_are_answered_in_call_order() -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with talking() as (talk, llm, work):
        session = talk.create(work, "none", tools=[tool])
        ended = talk.ask(session, *(("mine", {"n": n}) for n in range(3)))
        talk.wait_asked("tool.call", 3)
        for frame in reversed(talk.asked("tool.call")):
            talk.answer(frame, {"content": [{"type": "text", "text": f"n{frame['params']['arguments']['n']}"}]})
        talk.reply(ended)
        assert [r.text for r in talk.results(session)] == ["n0", "n1", "n2"]
        assert [t for r, t in llm.requests[-1].texts if r == "tool"] == ["n0", "n1", "n2"]


@pytest.mark.parametrize("answer", [{"content": 5}, {}, "text", [], {"content": [{"type": "odd"}]}])
def test_a_malformed_tool_result_is_an_error_result(answer: Any) -> None:
    tool = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    with talking(handlers={"tool.call": lambda _: answer}) as (talk, _, work):
        session = talk.create(work, "none", tools=[tool])
        assert talk.one(session, "mine", {}, timeout=5).failed
