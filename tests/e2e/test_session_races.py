"""Calls about one session that do not wait for each other, and what a call that fails must leave as it was."""

from __future__ import annotations

import base64
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm import Gate, Reply
from tests.support.tool_talk import SocketTalk, Talk, talking

ONE_LOADED = {"SIDECAR_SERVER_MAX_LOADED_SESSIONS": "1"}
TOOL = {"parameters": {"type": "object", "properties": {}}}


def reason(frame: Any) -> str:
    return str(frame.get("error", {}).get("data", {}).get("reason", ""))


def send(talk: Any, session: str, text: str = "hello", **more: Any) -> Any:
    """The id of a call that answers when the turn ends."""
    params = {"session_id": session, "content": text, "wait": True, **more}
    return talk.start("agent.chat.send", params)


def ended(talk: Any, call_id: Any, timeout: float = 10) -> Any:
    frame = talk.reply(call_id, timeout)
    assert "result" in frame, frame
    return frame["result"]


def state(talk: Any, session: str) -> str:
    return str(talk.call("agent.session.get", {"session_id": session})["session"]["state"])


def unload(talk: Any, home: Path, session: str) -> None:
    """Puts a session out of memory: at most one is loaded, and others are made. Its checkpoint tells when."""
    checkpoint = home / "sessions" / session / "agents" / "main" / "checkpoint.json"
    checkpoint.unlink(missing_ok=True)
    for _ in range(2):
        talk.create(home)
    end = time.monotonic() + 10
    while not checkpoint.exists():
        assert time.monotonic() < end, "the session stayed in memory"
        time.sleep(0.01)


def hanging(gate: Gate) -> Any:
    def script(request: dict[str, Any], n: int) -> Reply:
        text = str(request["messages"][-1]["content"])
        return Reply("never said whole", hold_after=(2, gate)) if "hang" in text else Reply("ok")

    return script


def numbers(talk: Any, session: str) -> list[int]:
    told = [p for p in talk.notified("agent.chat.event") if p["session_id"] == session]
    return [int(p["event_id"].split("-")[1]) for p in told if not p["event"]["type"].endswith("_delta")]


@contextmanager
def two_hosts(**more: Any) -> Iterator[tuple[SocketTalk, SocketTalk, Path]]:
    with tempfile.TemporaryDirectory(prefix="sc-") as home:
        address = str(Path(home, "s"))
        with (
            talking("--stdio", "--socket", address, **more) as (talk, _, folder),
            SocketTalk(address) as one,
            SocketTalk(address) as two,
        ):
            talk.call("system.ping")
            yield one, two, folder


def test_a_resume_behind_a_close_opens_the_session_again() -> None:
    gate = Gate()
    with talking(script=hanging(gate)) as (talk, _, folder):
        session = talk.create(folder)
        turn = send(talk, session, "hang")
        talk.wait(lambda _: talk.events(session, "text_delta"), "text")
        close = talk.start("agent.session.close", {"session_id": session})
        resume = talk.start("agent.session.resume", {"session_id": session})
        assert talk.reply(close)["result"] == {}
        assert talk.reply(resume)["result"]["recovered"] == []
        assert ended(talk, turn)["stop_reason"] == "cancelled"
        assert state(talk, session) == "idle"
        assert ended(talk, send(talk, session))["text"] == "ok"


def test_what_comes_while_a_session_closes_is_answered() -> None:
    gate = Gate()
    with talking(script=hanging(gate)) as (talk, _, folder):
        session = talk.create(folder)
        send(talk, session, "hang")
        talk.wait(lambda _: talk.events(session, "text_delta"), "text")
        close = talk.start("agent.session.close", {"session_id": session})
        late = [send(talk, session, f"late {n}") for n in range(20)]
        late += [talk.start(f"agent.chat.{m}", {"session_id": session}) for m in ("undo", "clear", "compact")]
        late.append(talk.start("agent.chat.steer", {"session_id": session, "content": "late"}))
        assert talk.reply(close)["result"] == {}
        for call_id in late:
            frame = talk.reply(call_id, 10)
            result = frame.get("result", {})
            taken = result.get("stop_reason") == "cancelled" or result.get("accepted")
            assert taken or reason(frame) in ("session_closed", "turn_active"), frame
        assert state(talk, session) == "closed"


@pytest.mark.parametrize("method", ["close", "delete"])
def test_an_unloaded_session_that_is_ended_is_not_brought_back_by_a_call_behind_it(method: str, tmp_path: Path) -> None:
    with talking(env=ONE_LOADED, home=str(tmp_path)) as (talk, _, folder):
        for n in range(3):
            name = f"unloaded-{n}"
            session = talk.create(folder, session_id=name)
            ended(talk, send(talk, session))
            unload(talk, tmp_path, session)
            end = talk.start(f"agent.session.{method}", {"session_id": session})
            late = [send(talk, session), talk.start("agent.session.attach", {"session_id": session})]
            assert talk.reply(end)["result"] == {}
            for call_id in late:
                frame = talk.reply(call_id, 10)
                assert "result" in frame or reason(frame) in ("session_closed", "session_not_found"), frame
            if method == "close":
                assert state(talk, session) == "closed"
                assert "session" in talk.call("agent.session.resume", {"session_id": session})
            else:
                assert talk.create(folder, session_id=name) == name
            assert ended(talk, send(talk, session))["text"] == "done"


def test_a_session_stays_loaded_while_a_call_is_at_work_with_it() -> None:
    """Putting a large image away takes a while in which nothing runs in the session yet."""
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(9_000_000)).decode()
    image = {"type": "image", "media_type": "image/png", "data": data}
    with talking(env=ONE_LOADED) as (talk, _, folder):
        for _ in range(3):
            session = talk.create(folder)
            params = {"session_id": session, "content": [image], "wait": True}
            turn = talk.start("agent.chat.send", params)
            for _ in range(5):
                talk.start("agent.session.create", {"cwd": str(folder)})
            assert ended(talk, turn, 20)["stop_reason"] == "end_turn"


def test_a_resume_that_fails_leaves_a_session_as_it_was(tmp_path: Path) -> None:
    home = str(tmp_path)
    with talking(home=home) as (talk, _, folder):
        session, closed = talk.create(folder), talk.create(folder)
        talk.call("agent.session.close", {"session_id": closed})
        for change, why in (
            ({"config": {"compaction": {"soft_ratio": 7}}}, "config_invalid"),
            ({"model": "no/x"}, "no_provider"),
        ):
            assert reason_of(talk, closed, change) == why
            assert state(talk, closed) == "closed"
            assert reason(talk.reply(send(talk, closed))) == "session_closed"
            # One that is open goes on as it was.
            assert reason_of(talk, session, change) == why
            assert ended(talk, send(talk, session))["text"] == "done"
        assert talk.call("system.ping")["sessions"] == 1
    with talking(home=home) as (first, _, _), talking(home=home) as (second, _, _):
        assert reason_of(first, session, {"config": {"nope": {}}}) == "config_invalid"
        assert "session" in second.call("agent.session.resume", {"session_id": session})


def reason_of(talk: Talk, session: str, change: dict[str, Any]) -> str:
    return reason(talk.reply(talk.start("agent.session.resume", {"session_id": session, **change})))


def test_two_hosts_that_resume_at_once_both_keep_their_tools(tmp_path: Path) -> None:
    with talking(home=str(tmp_path)) as (talk, _, folder):
        sessions = [talk.create(folder, builtin="none") for _ in range(5)]
    with two_hosts(home=str(tmp_path)) as (one, two, _):
        for session in sessions:
            calls = [
                (host, host.start("agent.session.resume", {"session_id": session, "tools": [{"name": name, **TOOL}]}))
                for host, name in ((one, "of_one"), (two, "of_two"))
            ]
            for host, call_id in calls:
                assert "result" in host.reply(call_id)
            assert one.names(session) == ["of_one", "of_two"]


def test_a_fork_brings_the_tools_of_its_caller_and_no_others(tmp_path: Path) -> None:
    with two_hosts(env=ONE_LOADED, home=str(tmp_path)) as (one, two, folder):
        session = one.create(folder, builtin="none", tools=[{"name": "of_one", **TOOL}])
        two.call("agent.session.resume", {"session_id": session, "tools": [{"name": "of_two", **TOOL}]})
        # The source is out of memory: its hosts are known all the same.
        unload(one, tmp_path, session)
        for host, tools in ((one, ["of_one"]), (two, ["of_two"])):
            fork = host.call("agent.session.fork", {"session_id": session})["session"]["session_id"]
            assert host.names(fork) == tools


def test_event_numbers_go_on_over_close_and_unloading_and_what_was_missed_is_replayed(
    tmp_path: Path,
) -> None:
    with talking(env=ONE_LOADED, home=str(tmp_path), script=lambda request, n: Reply("ok")) as (talk, _, folder):
        session = talk.create(folder)
        for again in (
            lambda: unload(talk, tmp_path, session),
            lambda: talk.call("agent.session.close", {"session_id": session}),
        ):
            ended(talk, send(talk, session))
            before = numbers(talk, session)
            epoch = talk.notified("agent.chat.event")[-1]["event_id"].split("-")[0]
            again()
            params = {"session_id": session, "after_event": f"{epoch}-{before[-1] - 2}"}
            answer = talk.call("agent.session.resume", params)
            assert (answer["events_replayed"], answer["resync_required"]) == (2, False)
            ended(talk, send(talk, session))
            seen = numbers(talk, session)
            assert seen[: len(before)] == before
            assert seen[len(before) :] == [*before[-2:], *range(before[-1] + 1, seen[-1] + 1)]
            talk.frames.clear()


def test_a_message_that_was_sent_long_ago_still_has_its_turn() -> None:
    with talking(script=lambda request, n: Reply(f"answer {n}")) as (talk, _, folder):
        session = talk.create(folder)
        first = ended(talk, send(talk, session, "the first", client_message_id="m-1"))
        for call_id in [send(talk, session, f"{n}") for n in range(130)]:
            ended(talk, call_id, 30)
        for call_id in [send(talk, session, f"{n}") for n in range(130)]:
            ended(talk, call_id, 30)
        assert ended(talk, send(talk, session, "the first", client_message_id="m-1")) == first


@pytest.mark.parametrize(
    ("tools", "path"),
    [
        ([{"name": "a", **TOOL}, {"name": "a", **TOOL}], "tools[1].name"),
        ([{"name": "", **TOOL}], "tools[0].name"),
        ([{"name": "a", "timeout_s": 0, **TOOL}], "tools[0].timeout_s"),
    ],
)
def test_tools_that_no_model_could_be_offered_are_refused(tools: list[Any], path: str) -> None:
    with talking() as (talk, _, folder):
        session = talk.create(folder)
        for method in ("create", "configure", "resume"):
            params = {"cwd": str(folder)} if method == "create" else {"session_id": session}
            frame = talk.reply(talk.start(f"agent.session.{method}", {**params, "tools": tools}))
            assert (frame["error"]["code"], frame["error"]["data"]["path"]) == (-32602, path)
        assert talk.call("system.ping")["sessions"] == 1


def test_large_frames_do_not_push_a_host_out_that_reads() -> None:
    """A text of more than `server.outbox_hard_bytes` comes back in `turn_started`, and in what is replayed."""
    env = {"SIDECAR_SERVER_OUTBOX_SOFT_BYTES": "65536", "SIDECAR_SERVER_OUTBOX_HARD_BYTES": "1000000"}
    long = "word " * 300_000
    config = {"model": {"window": 9_000_000}}
    with two_hosts(env=env, script=lambda request, n: Reply("ok")) as (one, two, folder):
        session = one.create(folder, config=config)
        for _ in range(3):
            assert ended(one, send(one, session, long), 30)["stop_reason"] == "end_turn"
        epoch = one.notified("agent.chat.event")[-1]["event_id"].split("-")[0]
        answer = two.call("agent.session.attach", {"session_id": session, "after_event": f"{epoch}-0"})
        assert answer["events_replayed"] == numbers(one, session)[-1] == len(numbers(two, session))


def compacting(gate: Gate) -> Any:
    """Three turns worth compacting, and a summary that waits."""

    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply("word " * 300) if n < 3 else Reply("summary", gate=gate)

    return script


@pytest.mark.parametrize("method", ["agent.session.close", "agent.session.delete", "system.shutdown"])
def test_the_end_of_a_session_answers_what_waits_behind_a_compaction(method: str) -> None:
    with talking(script=compacting(Gate())) as (talk, llm, folder):
        session = talk.create(folder)
        for _ in range(3):
            ended(talk, send(talk, session, "question " * 300))
        compact = talk.start("agent.chat.compact", {"session_id": session})
        talk.wait(lambda _: len(llm.requests) == 4, "the summary request")
        waiting = [send(talk, session, f"{n}") for n in range(3)]
        talk.call("agent.chat.steer", {"session_id": session, "content": "steer"})
        end = talk.start(method, {} if method == "system.shutdown" else {"session_id": session})
        frame = talk.reply(compact, 4)
        assert (reason(frame), frame["error"]["data"]["cause"]) == ("compaction_failed", "cancelled")
        for call_id in waiting:
            assert ended(talk, call_id, 4)["stop_reason"] == "cancelled"
        assert talk.reply(end, 4)["result"] == {}


def test_a_cancel_ends_a_compaction_that_only_measures_yet(tmp_path: Path) -> None:
    home = str(tmp_path)
    long = "".join(f"{n:x} " for n in range(2_000_000))
    window = {"model": {"window": 90_000_000}}
    with talking(home=home) as (talk, _, folder):
        session = talk.create(folder, config=window)
        history = [{"role": "user", "content": long}, {"role": "assistant", "content": "yes"}]
        assert ended(talk, send(talk, session, history=history), 60)["stop_reason"] == "end_turn"
    with talking(home=home, script=lambda request, n: Reply("summary", delay=30)) as (talk, llm, _):
        talk.call("agent.session.resume", {"session_id": session})
        # Measuring takes long as soon as the vocabulary is loaded, some time after the start.
        for _ in range(6):
            compact = talk.start("agent.chat.compact", {"session_id": session})
            assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
            assert talk.reply(compact, 2)["error"]["data"]["cause"] == "cancelled"
            time.sleep(0.4)
        assert not llm.requests
        assert state(talk, session) == "idle"


def test_a_host_that_brings_a_tool_runs_it_attached_or_not() -> None:
    with two_hosts() as (one, two, folder):
        session = one.create(folder, builtin="none")
        two.handlers["tool.call"] = lambda params: {"content": "from two"}
        two.call("agent.session.configure", {"session_id": session, "tools": [{"name": "tool", **TOOL}]})
        assert one.one(session, "tool", {}).text == "from two"
        assert not two.notified("agent.chat.event")


def test_an_open_call_goes_to_the_new_owner_of_its_tool_when_the_old_one_leaves() -> None:
    with two_hosts() as (one, two, folder):
        tools = [{"name": "tool", **TOOL}]
        session = one.create(folder, builtin="none", tools=tools)
        two.call("agent.session.resume", {"session_id": session})
        turn = two.ask(session, ("tool", {}))
        asked = one.wait_asked("tool.call")
        two.call("agent.session.configure", {"session_id": session, "tools": tools})
        assert not two.asked("tool.call")
        one.socket.shutdown(socket.SHUT_RDWR)
        again = two.wait_asked("tool.call")
        assert again == asked
        two.answer(again, {"content": "from two"})
        assert ended(two, turn)["stop_reason"] == "end_turn"
        assert [r.text for r in two.results(session)] == ["from two"]


def test_a_fork_of_a_session_that_is_being_deleted_is_whole_or_finds_none() -> None:
    with talking() as (talk, _, folder):
        for n in range(20):
            session = talk.create(folder, session_id=f"going-{n}")
            delete = talk.start("agent.session.delete", {"session_id": session})
            forks = [talk.start("agent.session.fork", {"session_id": session}) for _ in range(3)]
            assert talk.reply(delete)["result"] == {}
            for call_id in forks:
                frame = talk.reply(call_id)
                assert "result" in frame or reason(frame) == "session_not_found", frame


def test_calls_that_open_and_close_a_session_take_effect_in_their_order() -> None:
    with talking() as (talk, _, folder):
        session = talk.create(folder)
        for order, left in (("close resume close", "closed"), ("resume close resume", "idle")):
            calls = [talk.start(f"agent.session.{m}", {"session_id": session}) for m in order.split()]
            assert all("result" in talk.reply(call_id) for call_id in calls)
            assert state(talk, session) == left


def test_a_deleted_session_tells_nothing_to_one_that_gets_its_id() -> None:
    with talking() as (talk, _, folder):
        session = talk.create(folder, session_id="again")
        ended(talk, send(talk, session, "what was deleted"))
        epoch = talk.notified("agent.chat.event")[0]["event_id"].split("-")[0]
        before = numbers(talk, session)
        talk.call("agent.session.delete", {"session_id": session})
        talk.create(folder, session_id=session)
        answer = talk.call("agent.session.attach", {"session_id": session, "after_event": f"{epoch}-0"})
        assert (answer["events_replayed"], answer["resync_required"]) == (0, True)
        ended(talk, send(talk, session))
        seen = numbers(talk, session)
        assert seen == [*before, *range(before[-1] + 1, seen[-1] + 1)]


def test_inputs_whose_images_take_long_fill_no_more_than_the_queue() -> None:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(200_000)).decode()
    image = [{"type": "image", "media_type": "image/png", "data": data}]
    gate = Gate()
    with talking(script=hanging(gate), env={"SIDECAR_SERVER_MAX_QUEUED_INPUTS": "2"}) as (talk, _, folder):
        session = talk.create(folder)
        send(talk, session, "hang")
        talk.wait(lambda _: talk.events(session, "text_delta"), "text")
        for method in ("send", "steer"):
            params = {"session_id": session, "content": image}
            calls = [talk.start(f"agent.chat.{method}", params) for _ in range(12)]
            assert [reason(talk.reply(call_id)) for call_id in calls] == ["", "", *["overloaded"] * 10]


def test_a_message_that_could_not_be_stored_runs_when_it_is_sent_again() -> None:
    with talking(env={"SIDECAR_FAILPOINTS": "log.sync=EIO@1"}) as (talk, llm, folder):
        session = talk.create(folder)
        first = send(talk, session, "the message", client_message_id="m-1")
        assert reason(talk.reply(first)) == "store_write_failed"
        assert state(talk, session) == "idle"
        again = ended(talk, send(talk, session, "the message", client_message_id="m-1"))
        assert (again["stop_reason"], again["text"]) == ("end_turn", "done")
        assert ended(talk, send(talk, session, "the message", client_message_id="m-1")) == again
        assert len(llm.requests) == 1
        assert str(llm.requests[0].json).count("the message") == 1


def test_a_cancel_ends_a_turn_of_left_over_steering_that_has_not_begun() -> None:
    """A server that does not answer keeps turns from beginning. The steering is not taken up again after its turn was
    cancelled, and the log knows that turn from its begin to its end."""
    silent = {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
    with talking() as (talk, llm, folder):
        session = talk.create(folder, config={"mcp": {"servers": {"silent": silent}}})
        first = send(talk, session)
        talk.wait(lambda _: state(talk, session) == "running", "the turn")
        assert talk.call("agent.chat.steer", {"session_id": session, "content": "steered"}) == {"accepted": True}
        for count in (1, 2):
            assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
            talk.wait(lambda _, n=count: len(talk.events(session, "turn_ended")) == n, f"end {count}")
        assert ended(talk, first)["stop_reason"] == "cancelled"
        assert state(talk, session) == "idle"
        assert [e["content"][0]["text"] for e in talk.events(session, "turn_started")] == ["hello", "steered"]
        assert talk.call("record.verify", {"session_id": session})["ok"]
        assert llm.count == 0


def test_reading_a_session_that_is_being_deleted_gives_all_of_it_or_finds_none() -> None:
    with talking() as (talk, _, folder):
        seed = [{"role": ("user", "assistant")[n % 2], "content": f"m {n}"} for n in range(400)]
        for n in range(12):
            session = talk.create(folder, session_id=f"read-{n}")
            ended(talk, send(talk, session, history=seed))
            if n % 2:
                talk.call("agent.session.close", {"session_id": session})
            reads = []
            for k in range(6):
                reads.append(talk.start("agent.session.messages", {"session_id": session, "view": "full"}))
                reads.append(talk.start("record.query", {"session_id": session, "grep": "nothing such"}))
                reads.append(talk.start("record.verify", {"session_id": session}))
                reads.append(talk.start("agent.context.get", {"session_id": session}))
                if k == n % 6:
                    delete = talk.start("agent.session.delete", {"session_id": session})
            assert talk.reply(delete)["result"] == {}
            for call_id in reads:
                frame = talk.reply(call_id)
                assert "result" in frame or reason(frame) == "session_not_found", frame


def test_a_cancel_right_behind_its_input_ends_that_turn() -> None:
    with talking(script=lambda request, n: Reply("late", delay=30)) as (talk, _, folder):
        session = talk.create(folder)
        for n in range(20):
            sent = send(talk, session)
            if n % 2:
                state(talk, session)
            assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
            assert ended(talk, sent, 4)["stop_reason"] == "cancelled"
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": False}
        kinds = [f["event"]["type"] for f in talk.notified("agent.chat.event") if f["session_id"] == session]
        assert [k for k in kinds if k in ("turn_started", "turn_ended")] == ["turn_started", "turn_ended"] * 20


def test_a_waiting_input_that_was_given_up_asks_no_model() -> None:
    with talking(script=lambda request, n: Reply("late", delay=30)) as (talk, llm, folder):
        session = talk.create(folder)
        first = send(talk, session)
        talk.wait(lambda _: llm.count == 1, "the first request")
        second = send(talk, session)
        talk.wait(lambda _: waiting_inputs(talk, session) == 1, "the second input")
        talk.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": second}})
        assert reason(talk.reply(second)) == "request_cancelled"
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
        assert ended(talk, first, 4)["stop_reason"] == "cancelled"
        talk.wait(lambda _: len(talk.events(session, "turn_ended")) == 2, "the end of the second turn")
        assert [e["stop_reason"] for e in talk.events(session, "turn_ended")] == ["cancelled"] * 2
        assert len(talk.events(session, "step_started")) == 1
        kinds = [r["record"]["type"] for r in talk.call("record.query", {"session_id": session})["records"]]
        assert (kinds.count("llm.request"), kinds.count("turn.begin"), llm.count) == (1, 2, 1)


def waiting_inputs(talk: Talk, session: str) -> int:
    found = talk.call("record.query", {"session_id": session, "types": ["context.append_message"]})["records"]
    users = [r for r in found if r["record"]["message"]["role"] == "user" and not r["record"]["message"].get("origin")]
    return len(users) - len(talk.events(session, "turn_started"))


def test_what_is_sent_right_behind_a_create_waits_for_it() -> None:
    with talking() as (talk, _, folder):
        created = talk.start("agent.session.create", {"session_id": "named", "cwd": str(folder)})
        sent = talk.start("agent.chat.send", {"session_id": "named", "content": "hello", "wait": True})
        assert talk.reply(created)["result"]["session"]["session_id"] == "named"
        assert ended(talk, sent)["stop_reason"] == "end_turn"
        again = talk.start("agent.session.create", {"session_id": "named", "cwd": str(folder)})
        other = talk.start("agent.chat.send", {"session_id": "named", "content": "again", "wait": True})
        assert reason(talk.reply(again)) == "session_exists"
        assert ended(talk, other)["stop_reason"] == "end_turn"
