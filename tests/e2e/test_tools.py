"""The built-in tools through a real daemon, as a model and a host see them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.raw_host import ROOT
from tests.support.tool_talk import Result, talking

READ = ["glob", "grep", "list_dir", "read_file", "read_skill", "recall", "record_read", "record_search", "todo_write"]
EDIT = sorted([*READ, "write_file", "edit_file"])
ALL = sorted([*EDIT, "run_command", "remember", "run_skill"])


def sent(llm: Any) -> list[str]:
    return [t["function"]["name"] for t in llm.requests[-1].json.get("tools", [])]


def test_the_words_and_their_tools() -> None:
    with talking() as (talk, llm, work):
        for word, names in (("none", []), ("read", READ), ("edit", EDIT), ("all", ALL)):
            session = talk.create(work, word)
            assert talk.names(session) == names
            talk.do(session)
            assert sent(llm) == names
        plain = talk.call("agent.session.create", {"cwd": str(work)})["session"]
        assert plain["tools_builtin"] == "none"
        assert talk.names(plain["session_id"]) == []


def test_tools_of_all_kinds_are_sorted_and_their_bytes_stay() -> None:
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}, "x-odd": [1]}
    tools = [{"name": n, "description": "", "parameters": schema} for n in ("zebra", "Alpha", "list_dirs")]
    with talking() as (talk, llm, work):
        session = talk.create(work, "read", tools=tools)
        for _ in range(3):
            talk.do(session, ("list_dir", {}))
        names = sorted([*READ, "zebra", "Alpha", "list_dirs"])
        assert sent(llm) == names == talk.names(session)
        pieces = {body[body.index(b'"tools":') :].split(b'"stream"')[0] for body in llm.bodies}
        assert len({json.dumps(r.json["tools"]) for r in llm.requests}) == 1, len(pieces)
        given = next(t for t in llm.requests[0].json["tools"] if t["function"]["name"] == "zebra")
        assert json.dumps(given["function"]["parameters"]) == json.dumps(schema)


def test_read_file_says_lines_from_one_and_refuses_what_is_no_text() -> None:
    with talking() as (talk, _, work):
        (work / "lines").write_text("".join(f"line {n}\n" for n in range(1, 11)))
        (work / "binary").write_bytes(b"\x00\x01\x02PNG" * 50)
        (work / "wide").write_bytes("\ufeffgrüße\r\nzwei\r\n".encode("utf-16"))
        (work / "bom").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
        (work / "empty").write_text("")
        os.mkfifo(work / "fifo")
        (work / "device").symlink_to("/dev/zero")
        (work / "huge").write_text("".join(f"row {n:07}\n" for n in range(400_000)))
        session = talk.create(work, "read", {"tools": {"roots": ["/dev"]}})

        def read(path: str, **more: Any) -> Result:
            return talk.one(session, "read_file", {"path": path, **more})

        assert read("lines").text.startswith("line 1\nline 2\n")
        some = read("lines", offset=3, limit=2).text
        assert some.startswith("line 3\nline 4\n")
        assert "line 2\n" not in some
        assert "line 5\n" not in some
        assert read("lines", offset=50).failed
        assert read("huge", offset=399_999, limit=2).text.startswith("row 0399998\nrow 0399999")
        assert not read("huge").failed
        assert "grüße" in read("wide").text
        assert read("bom").text.startswith("one")
        assert not read("empty").failed
        for path, word in (("binary", "binary"), ("fifo", "fifo"), ("device", "device"), (".", "director")):
            refused = read(path)
            assert refused.failed, path
            assert word in refused.text.lower() or "pipe" in refused.text.lower(), refused.text
        missing = read("line")
        assert missing.failed
        assert "lines" in missing.text
        for wrong in ({"offset": 0}, {"limit": 0}, {"offset": "3"}):
            assert read("lines", **wrong).failed


def test_listing_and_finding() -> None:
    with talking() as (talk, _, work):
        (work / "src" / "deep").mkdir(parents=True)
        (work / "src" / "a.py").write_text("import os\nNeedle = 1\n")
        (work / "src" / "deep" / "b.py").write_text("needle\nneedle again\n")
        (work / "notes.md").write_text("a NEEDLE in hay\n")
        session = talk.create(work, "read")
        listed = talk.one(session, "list_dir", {}).text
        assert "src/" in listed
        assert "notes.md" in listed
        assert "a.py" in talk.one(session, "list_dir", {"path": "src"}).text
        assert talk.one(session, "list_dir", {"path": "nowhere"}).failed
        found = talk.one(session, "glob", {"pattern": "**/*.py"}).text
        assert found.split("\n")[:2] == ["src/a.py", "src/deep/b.py"]
        assert "b.py" in talk.one(session, "glob", {"pattern": "*.py", "path": "src/deep"}).text
        assert not talk.one(session, "glob", {"pattern": "*.rs"}).failed
        hits = talk.one(session, "grep", {"pattern": "needle"}).text
        assert "src/deep/b.py:1:needle" in hits
        assert "notes.md" not in hits
        every = talk.one(session, "grep", {"pattern": "needle", "ignore_case": True}).text
        assert "notes.md:1:" in every
        assert "src/a.py:2:" in every
        only = talk.one(session, "grep", {"pattern": "needle", "ignore_case": True, "glob": "*.md"}).text
        assert "b.py" not in only
        assert "notes.md" in only
        one = talk.one(session, "grep", {"pattern": "needle", "limit": 1, "path": "src"}).text
        assert one.count("needle") == 1 or "needle again" not in one
        assert talk.one(session, "grep", {"pattern": "("}).failed


def test_grep_is_the_same_without_ripgrep(tmp_path: Path) -> None:
    if shutil.which("rg") is None:
        pytest.skip("RIPGREP IS MISSING: only the own search was tried")
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "bash", "python3", "git"):
        if found := shutil.which(name):
            (bare / name).symlink_to(found)
    texts = []
    for env in ({}, {"PATH": str(bare)}):
        with talking(env=env) as (talk, _, work):
            (work / "x.txt").write_text("alpha\nbeta alpha\n")
            (work / ".gitignore").write_text("ignored\n")
            (work / "ignored").write_text("alpha\n")
            (work / "b").write_bytes(b"alpha\0alpha\n")
            session = talk.create(work, "read")
            texts.append([talk.one(session, "grep", {"pattern": p}).text for p in ("al.ha", r"^\w+\s", "nothing")])
    assert texts[0] == texts[1]


def test_writing_and_editing_keep_what_a_file_is() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, "edit")
        made = talk.one(session, "write_file", {"path": "new/dir/x.txt", "content": "one\ntwo\n"})
        assert not made.failed
        path = work / "new" / "dir" / "x.txt"
        assert path.read_bytes() == b"one\ntwo\n"
        assert made.event["locations"] == [str(path)]
        path.chmod(0o750)
        edited = talk.one(session, "edit_file", {"path": str(path), "old_text": "two", "new_text": "three"})
        assert not edited.failed
        assert path.read_bytes() == b"one\nthree\n"
        assert path.stat().st_mode & 0o777 == 0o750
        assert edited.event["locations"] == [str(path)]
        assert edited.event["diff"]["path"] == str(path)
        assert "two" in edited.event["diff"]["old_text"]
        assert "three" in edited.event["diff"]["new_text"]
        crlf = work / "crlf"
        crlf.write_bytes(b"\xef\xbb\xbfa\r\nb\r\nc\r\n")
        talk.one(session, "edit_file", {"path": "crlf", "old_text": "a\nb\n", "new_text": "a\nB\nbb\n"})
        assert crlf.read_bytes() == b"\xef\xbb\xbfa\r\nB\r\nbb\r\nc\r\n"
        wide = work / "wide"
        wide.write_bytes("\ufeffgrüße\r\n".encode("utf-16-le"))
        assert not talk.one(session, "edit_file", {"path": "wide", "old_text": "ü", "new_text": "u"}).failed
        assert wide.read_bytes() == "\ufeffgruße\r\n".encode("utf-16-le")
        twice = work / "twice"
        twice.write_text("x\nx\n")
        refused = talk.one(session, "edit_file", {"path": "twice", "old_text": "x", "new_text": "y"})
        assert refused.failed
        assert "2" in refused.text or "twice" in refused.text
        assert twice.read_text() == "x\nx\n"
        every = {"path": "twice", "old_text": "x", "new_text": "y", "replace_all": True}
        assert not talk.one(session, "edit_file", every).failed
        assert twice.read_text() == "y\ny\n"
        assert talk.one(session, "edit_file", {"path": "twice", "old_text": "nowhere", "new_text": "y"}).failed
        assert talk.one(session, "edit_file", {"path": "absent", "old_text": "a", "new_text": "y"}).failed
        assert talk.one(session, "edit_file", {"path": "twice", "old_text": "", "new_text": "y"}).failed
        (work / "bin").write_bytes(b"\0\1\2")
        assert talk.one(session, "edit_file", {"path": "bin", "old_text": "a", "new_text": "b"}).failed


def test_commands_end_whole_and_say_how() -> None:
    secrets = {"MY_API_KEY": "s1", "GITHUB_TOKEN": "s2", "A_SECRET": "s3", "DBPASSWORD": "s4", "PGPASSWORD_X": "s5"}
    with talking(env={**secrets, "PLAIN": "seen", "SIDECAR_LOG_LEVEL": "info"}) as (talk, _, work):
        (work / "sub").mkdir()
        session = talk.create(work)

        def run(command: str, **more: Any) -> Result:
            return talk.one(session, "run_command", {"command": command, **more})

        assert "hello" in run("echo hello").text
        failed = run("echo out; echo err >&2; exit 7")
        assert "7" in failed.text
        assert "out" in failed.text
        assert "err" in failed.text
        assert str(work / "sub") in run("pwd", cwd="sub").text
        assert run("pwd", cwd="..").failed
        assert run("pwd", cwd="nowhere").failed
        assert "empty" in run("cat; echo empty").text
        assert run('[ -n "$BASH_VERSION" ] && echo is bash').text.startswith("is bash")
        seen = run("env").text
        assert "PLAIN=seen" in seen
        for name in (*secrets, "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SIDECAR_"):
            assert name not in seen, name
        started = time.monotonic()
        late = run("echo early; sleep 60", timeout_s=0.5)
        assert late.failed
        assert "early" in late.text
        assert "timed out" in late.text
        assert time.monotonic() - started < 10
        big = run("head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end")
        assert len(big.text) < 60_000
        assert "the end" in big.text


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> None:
    end = time.monotonic() + 8
    while alive(pid):
        assert time.monotonic() < end, f"{pid} still runs"
        time.sleep(0.02)


def pid_in(path: Path) -> int:
    end = time.monotonic() + 10
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, "the child did not start"
        time.sleep(0.02)
    return int(path.read_text())


BACKGROUND = "sleep 300 & echo $! > pid; "


def test_children_end_with_the_command_on_cancel_and_on_timeout() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work)
        assert not talk.one(session, "run_command", {"command": BACKGROUND + "true"}).failed
        gone(pid_in(work / "pid"))
        (work / "pid").unlink()
        detached = "setsid nohup sleep 300 >/dev/null 2>&1 & echo $! > pid; disown -a; sleep 0.2"
        talk.one(session, "run_command", {"command": detached})
        gone(pid_in(work / "pid"))
        (work / "pid").unlink()
        talk.one(session, "run_command", {"command": BACKGROUND + "wait", "timeout_s": 0.5})
        gone(pid_in(work / "pid"))
        (work / "pid").unlink()
        turn = talk.ask(session, ("run_command", {"command": "trap '' TERM INT; " + BACKGROUND + "wait"}))
        pid = pid_in(work / "pid")
        started = time.monotonic()
        assert talk.call("agent.chat.cancel", {"session_id": session}) == {"cancelled": True}
        assert talk.reply(turn)["result"]["stop_reason"] == "cancelled"
        assert time.monotonic() - started < 1.5
        gone(pid)
        assert talk.results(session)[-1].failed
        assert talk.one(session, "run_command", {"command": "echo after"}).text.startswith("after")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_the_daemon(how: signal.Signals) -> None:
    with talking() as (talk, _, work):
        session = talk.create(work)
        talk.ask(session, ("run_command", {"command": "trap '' TERM INT; " + BACKGROUND + "wait"}))
        pid = pid_in(work / "pid")
        os.kill(talk.process.pid, how)
        assert talk.exit_code(8) == (0 if how == signal.SIGTERM else -9)
        gone(pid)


def test_todos_are_an_event_and_a_record() -> None:
    todos = [{"content": "first", "status": "done"}, {"content": "second", "status": "in_progress"}]
    with talking() as (talk, _, work):
        session = talk.create(work, "read")
        assert not talk.one(session, "todo_write", {"todos": todos}).failed
        assert talk.events(session, "todo_updated")[0]["todos"] == todos
        answer = talk.call("record.query", {"session_id": session, "types": ["todo.update"]})
        assert [r["record"]["todos"] for r in answer["records"]] == [todos]
        assert talk.one(session, "todo_write", {"todos": [{"content": "x", "status": "later"}]}).failed
        assert talk.one(session, "todo_write", {"todos": [{"content": "x"}]}).failed
        assert talk.one(session, "todo_write", {}).failed
        assert len(talk.events(session, "todo_updated")) == 1


def test_the_log_is_searched_and_read() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work, "read")
        said = {"session_id": session, "content": "the password of the day is Krokodil", "wait": True}
        talk.call("agent.chat.send", said)
        found = talk.one(session, "record_search", {"query": "krokodil"}).text
        line = int(found.split("line ")[-1].split(",")[0])
        lines = talk.call("record.query", {"session_id": session, "grep": "Krokodil"})["records"]
        assert line in [r["line"] for r in lines]
        read = talk.one(session, "record_read", {"line": line}).text
        assert "the password of the day is Krokodil" in read
        assert talk.one(session, "record_read", {"line": line, "offset": 4, "limit": 8}).text.endswith("password")
        assert "Krokodil" in talk.one(session, "record_search", {"query": "kro.o", "regex": True}).text
        assert talk.one(session, "record_search", {"query": "(", "regex": True}).failed
        assert talk.one(session, "record_read", {"line": 100_000}).failed
        assert talk.one(session, "record_read", {"line": 0}).failed


def test_what_does_not_fit_a_schema_is_never_run() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "word": {"enum": ["a", "b"]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    handlers = {"tool.call": lambda _: {"content": "ran"}}
    with talking(handlers=handlers) as (talk, llm, work):
        tools = [{"name": "count", "description": "", "parameters": schema}]
        session = talk.create(work, tools=tools)
        assert talk.one(session, "count", {"n": 1}).text == "ran"
        wrong: list[Any] = [{}, {"n": "1"}, {"n": 1, "word": "c"}, {"n": 1, "more": 1}, {"n": True}, {"n": 1.5}]
        for arguments in (*wrong, "[1]", "{", "null", '"x"', "7"):
            refused = talk.one(session, "count", arguments)
            assert refused.failed, arguments
            assert "ran" not in refused.text.split()
        assert len(talk.asked("tool.call")) == 1
        for name, arguments in (
            ("write_file", {"path": "x"}),
            ("write_file", {"path": "x", "content": 1}),
            ("write_file", {"path": "x", "content": "y", "mode": 1}),
            ("run_command", {"command": ["touch", "x"]}),
            ("run_command", {"command": "touch x", "timeout_s": "1"}),
            ("run_command", {"command": "touch x", "timeout_s": -1}),
        ):
            assert talk.one(session, name, arguments).failed, arguments
        assert not (work / "x").exists()
        unknown = talk.one(session, "raed_file", {"path": "x"})
        assert unknown.failed
        assert "read_file" in unknown.text
        results = [m for m in llm.requests[-1].json["messages"] if m["role"] == "tool"]
        assert results[-1]["content"]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"name": ""}, "tools[0].name"),
        ({"timeout_s": 0}, "tools[0].timeout_s"),
        ({"timeout_s": -1}, "tools[0].timeout_s"),
    ],
)
def test_a_tool_without_a_name_or_without_time_is_refused(wrong: dict[str, Any], path: str) -> None:
    tool = {"name": "one", "description": "", "parameters": {"type": "object"}, **wrong}
    with talking() as (talk, _, work):
        refused = talk.call("agent.session.create", {"cwd": str(work), "tools": [tool]})
        assert (refused["code"], refused["data"]["path"]) == (-32602, path)


def test_no_way_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("treasure\n")
    linked = tmp_path / "linked-root"
    more = tmp_path / "more"
    more.mkdir()
    (more / "inside").write_text("allowed\n")
    linked.symlink_to(more)
    with talking() as (talk, _, work):
        (work / "link").symlink_to(outside)
        (work / "file").symlink_to(outside / "secret")
        (work / "new").symlink_to(outside / "made")
        (work / "ok").write_text("fine\n")
        (work / "inner").symlink_to(work / "ok")
        session = talk.create(work, config={"tools": {"roots": [str(linked)]}})
        ways = ["../outside/secret", str(outside / "secret"), "link/secret", "file", f"./ok/../../{outside}/secret"]
        for path in (*ways, "link/../../outside/secret", "/etc/passwd", "~/x", "/proc/self/environ"):
            read = talk.one(session, "read_file", {"path": path})
            assert read.failed, path
            assert "treasure" not in read.text
            assert talk.one(session, "edit_file", {"path": path, "old_text": "treasure", "new_text": "gone"}).failed
            if path != "~/x":
                assert talk.one(session, "write_file", {"path": path, "content": "gone"}).failed, path
        for path in ("new", "link/made", str(outside / "made")):
            assert talk.one(session, "write_file", {"path": path, "content": "gone"}).failed
        assert not (outside / "made").exists()
        assert (outside / "secret").read_text() == "treasure\n"
        for name, arguments in (
            ("list_dir", {"path": "link"}),
            ("list_dir", {"path": ".."}),
            ("glob", {"pattern": "*", "path": str(outside)}),
            ("glob", {"pattern": "../**/secret"}),
            ("glob", {"pattern": "link/*"}),
            ("glob", {"pattern": "**/secret"}),
            ("grep", {"pattern": "treasure", "path": "link"}),
            ("grep", {"pattern": "treasure", "path": "file"}),
            ("grep", {"pattern": "treasure"}),
            ("grep", {"pattern": "treasure", "path": str(outside)}),
            ("run_command", {"command": "cat secret", "cwd": "link"}),
        ):
            text = talk.one(session, name, arguments).text
            assert "link/secret" not in text, (name, arguments, text)
            assert "treasure\n" not in text, (name, arguments, text)
            assert ":treasure" not in text, (name, arguments, text)
        assert talk.one(session, "read_file", {"path": "inner"}).text.startswith("fine")
        for way in (linked / "inside", more / "inside"):
            assert talk.one(session, "read_file", {"path": str(way)}).text.startswith("allowed"), way


def test_long_results_are_spilled_and_read_back() -> None:
    long = "".join(f"{n:06} some words\n" for n in range(20_000))
    handlers = {"tool.call": lambda p: {"content": long[: p["arguments"]["n"]]}}
    tool = {"name": "long", "description": "", "parameters": {"type": "object"}}
    with talking(handlers=handlers) as (talk, llm, work):
        session = talk.create(work, "none", tools=[tool])
        assert talk.one(session, "long", {"n": 50_000}).text == long[:50_000]
        assert talk.names(session) == ["long"]
        short = talk.one(session, "long", {"n": 200_000}).text
        assert len(short.encode()) < 50_000
        assert "200000 bytes" in short.replace(",", "")
        assert short.startswith(long[:100])
        assert long[:200_000].endswith(short[-100:])
        assert {"record_read", "long"} <= set(talk.names(session))
        assert "record_read" in sent(llm)
        line, offset = short.split("record_read(line=")[1].split(")")[0].split(", offset=")
        read = talk.one(session, "record_read", {"line": int(line), "offset": int(offset), "limit": 5000}).text
        assert long[int(offset) : int(offset) + 5000] in read
        every, at = "", 0
        while at < 200_000:
            piece = talk.one(session, "record_read", {"line": int(line), "offset": at, "limit": 100_000}).text
            assert "spilled" not in piece[:200]
            body = piece.partition("\n")[2]
            every, at = every + body, at + len(body)
        assert every == long[:200_000]
        small = talk.create(work, "none", {"tools": {"spill_bytes": 2000}}, tools=[tool])
        assert "bytes stored" in talk.one(small, "long", {"n": 2001}).text
        assert talk.call("record.verify", {"session_id": session})["ok"]


def test_writes_in_order_reads_at_once_and_paths_respected() -> None:
    with talking() as (talk, _, work):
        session = talk.create(work)
        steps = [("run_command", {"command": f"sleep 0.{5 - n}; echo {n} >> order"}) for n in range(4)]
        talk.do(session, *steps)
        assert (work / "order").read_text().split() == ["0", "1", "2", "3"]
        results = talk.do(
            session,
            ("write_file", {"path": "p", "content": "first"}),
            ("read_file", {"path": "p"}),
            ("edit_file", {"path": "p", "old_text": "first", "new_text": "second"}),
            ("read_file", {"path": "./p"}),
        )
        assert [r.failed for r in results] == [False] * 4
        assert results[1].text.startswith("first")
        assert results[3].text.startswith("second")


def test_a_headless_user_edits_a_project_and_runs_its_tests(tmp_path: Path) -> None:
    work = tmp_path / "project"
    work.mkdir()
    (work / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (work / "test_sums.py").write_text(
        "import unittest\nfrom sums import add\n\nclass T(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    )
    test = {"command": "python3 -m unittest -q"}
    edit = {"path": "sums.py", "old_text": "a - b", "new_text": "a + b"}
    replies = sequence(
        Reply("", tool_calls=[call("read_file", {"path": "sums.py"}), call("run_command", test)]),
        Reply("", tool_calls=[call("edit_file", edit)]),
        Reply("", tool_calls=[call("run_command", test)]),
        Reply("All green."),
    )
    with FakeLLM(replies) as llm:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        env |= {"SIDECAR_HOME": str(tmp_path / "home"), **llm.environment()}
        command = [sys.executable, "-m", "sidecar", "run", "--tools", "all", "--approve", "auto", "--output", "json"]
        done = subprocess.run([*command, "fix it"], cwd=work, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["text"] == "All green."
        assert answer["stop_reason"] == "end_turn"
        assert "a + b" in (work / "sums.py").read_text()
        tools = [t for r, t in llm.requests[-1].texts if r == "tool"]
        assert "FAILED" in tools[1]
        assert "OK" in tools[3]
