"""`run_command` against real processes: how it ends, what it leaves, what it sees."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import anyio
import pytest

from sidecar.settings import ToolSettings
from sidecar.tools.environment import for_commands, for_servers, is_secret
from sidecar.tools.supervisor import Output
from tests.support.tools import bad, call, context_in, good, text_of

UNCONFINED = ToolSettings(builtin="all", sandbox="off")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def gone(*pids: int) -> None:
    """Returns when none of the processes is left; the test's own time limit is the only other way out."""
    with anyio.fail_after(10):
        while any(alive(pid) for pid in pids):
            await anyio.sleep(0.01)


async def written(path: Path, lines: int = 1) -> list[int]:
    """The pids that a command wrote, once they are there."""
    with anyio.fail_after(10):
        while not path.exists() or path.read_text().count("\n") < lines:
            await anyio.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


async def test_output_and_exit_code(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    assert await good(context, "run_command", command="echo out; echo err >&2") == "out\nerr\n[exit code 0]"
    assert await good(context, "run_command", command="printf x") == "x\n[exit code 0]"
    assert await good(context, "run_command", command="true") == "[exit code 0]"
    assert await bad(context, "run_command", command="echo no; exit 3") == "no\n[exit code 3]"
    assert await bad(context, "run_command", command="kill -9 $$") == "[ended by signal 9]"
    assert "not found" in await bad(context, "run_command", command="no-such-program")


async def test_it_is_bash_and_sh_without_bash(tmp_path: Path) -> None:
    bash = await good(context_in(tmp_path), "run_command", command="echo ${BASH_VERSION:-none} {1..3}")
    assert "none" not in bash
    assert "1 2 3" in bash
    from sidecar.tools import command

    only_sh = tmp_path / "bin"
    only_sh.mkdir()
    (only_sh / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    if not os.access("/bin/bash", os.X_OK):
        assert command.shell({"PATH": str(only_sh)}) == [str(only_sh / "sh"), "-c"]
    assert command.shell({"PATH": os.environ["PATH"]})[0].endswith("bash")


async def test_no_stdin_and_no_terminal(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    assert await good(context, "run_command", command="cat; read x; echo got=$x") == "got=\n[exit code 0]"
    text = await good(context, "run_command", command="tty; : </dev/tty || echo no terminal")
    assert text.startswith("not a tty\n")
    assert text.endswith("no terminal\n[exit code 0]")


async def test_working_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    context = context_in(tmp_path)
    assert await good(context, "run_command", command="pwd; echo $PWD", cwd="sub") == (
        f"{context.cwd}/sub\n{context.cwd}/sub\n[exit code 0]"
    )
    assert "There is no `nowhere`" in await bad(context, "run_command", command="pwd", cwd="nowhere")


async def test_a_timeout_ends_everything_and_keeps_the_output(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    command = "echo before; sleep 300 & echo $! > pids; echo $$ >> pids; sleep 300"
    text = await bad(context, "run_command", command=command, timeout_s=0.5)
    assert text.startswith("before\n[timed out after 0.5 s and was ended")
    await gone(*await written(tmp_path / "pids", 2))


async def test_the_default_timeout_is_the_setting(tmp_path: Path) -> None:
    context = context_in(tmp_path, settings=ToolSettings(builtin="all", command_timeout_s=0.3))
    assert "timed out after 0.3 s" in await bad(context, "run_command", command="sleep 300")
    assert ToolSettings().command_timeout_s == 120


@pytest.mark.parametrize("settings", [ToolSettings(builtin="all"), UNCONFINED], ids=["auto", "off"])
@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo $! > pids",
        "nohup sleep 300 >/dev/null 2>&1 & echo $! > pids",
        "setsid sh -c 'echo $$ > pids; exec sleep 300' & sleep 0.1",
        "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > pids; while :; do sleep 1; done' &) ; sleep 0.2",
        "sh -c 'sh -c \"setsid sleep 300 & echo \\$! > pids\" &' ; sleep 0.2",
    ],
    ids=["background", "nohup", "setsid", "deaf", "grandchild"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to the supervisor")
async def test_nothing_outlives_its_command(tmp_path: Path, settings: ToolSettings, command: str) -> None:
    text = await good(context_in(tmp_path, settings=settings), "run_command", command=command)
    assert "processes that it left in the background were ended with it" in text
    await gone(*await written(tmp_path / "pids"))


async def test_cancelling_ends_everything_at_once(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    command = "echo $$ > pids; trap '' TERM; (setsid sleep 300 & echo $! >> pids); while :; do sleep 1; done"
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(context, "run_command", command=command))
        pids = await written(tmp_path / "pids", 2)
        assert all(alive(pid) for pid in pids)
        group.cancel_scope.cancel()
    assert not any(alive(pid) for pid in pids)


async def test_it_ends_when_the_daemon_is_killed(tmp_path: Path) -> None:
    """A process that stands for the daemon runs the command and is killed with -9."""
    script = (
        "import anyio, pathlib, sys; from tests.support.tools import call, context_in\n"
        "anyio.run(lambda: call(context_in(pathlib.Path(sys.argv[1])), 'run_command', command=sys.argv[2]))"
    )
    command = "echo $$ > pids; (setsid sleep 300 & echo $! >> pids); trap '' TERM; while :; do sleep 1; done"
    daemon = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), command], cwd=Path(__file__).resolve().parents[3]
    )
    try:
        pids = await written(tmp_path / "pids", 2)
    finally:
        daemon.kill()
        daemon.wait()
    await gone(*pids)


async def test_a_supervisor_that_is_killed_takes_the_shell_with_it(tmp_path: Path) -> None:
    context = context_in(tmp_path, settings=UNCONFINED)
    text = await bad(context, "run_command", command="echo $$ > pids; kill -9 $PPID; sleep 300")
    assert "supervisor ended" in text
    await gone(*await written(tmp_path / "pids"))


async def test_a_flood_of_output_is_bounded(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command = "echo first; for i in 1 2 3 4 5 6; do yes flood & done; sleep 1.5; kill $(jobs -p); wait; echo last"
    text = text_of(await call(context, "run_command", command=command, timeout_s=20))
    assert text.startswith("first\nflood\n")
    assert "last\n[exit code 0]" in text
    missing = re.search(r"\[\.\.\. ([\d,]+) bytes of output left out \.\.\.\]", text)
    assert missing is not None
    assert int(missing.group(1).replace(",", "")) > 10_000_000
    assert len(text) < 300_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_the_supervisor_keeps_no_more_than_the_ends() -> None:
    output = Output(1000)
    tracemalloc.start()
    try:
        for i in range(20_000):
            output.add(b"%07d\n" % i * 100)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert output.total == 16_000_000
    assert bytes(output.head) == b"0000000\n" * 100 + b"0000001\n" * 25
    assert output.tail == b"0019998\n" * 25 + b"0019999\n" * 100


async def test_head_and_tail_are_what_was_written(tmp_path: Path) -> None:
    text = await good(context_in(tmp_path), "run_command", command="seq 1 100000")
    head, _, tail = text.partition("\n[... ")
    assert head.split("\n")[:3] == ["1", "2", "3"]
    assert tail.endswith("99999\n100000\n[exit code 0]")
    whole = await good(context_in(tmp_path), "run_command", command="seq 1 30000")
    assert whole == "".join(f"{i}\n" for i in range(1, 30001)) + "[exit code 0]"


async def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    text = await good(context_in(tmp_path), "run_command", command=r"printf 'a\0b\xff\033[1mc'")
    assert text == "a\ufffdb\ufffd\x1b[1mc\n[exit code 0]"


async def test_secrets_of_ours_are_not_in_its_environment(tmp_path: Path) -> None:
    secrets = {
        "SIDECAR_HOME": "s1", "sidecar_x": "s2", "OPENAI_API_KEY": "s3", "ANTHROPIC_API_KEY": "s4",
        "GITHUB_TOKEN": "s5", "client_secret": "s6", "DB_PASSWORD": "s7", "PGPASSWORD": "s8", "My_Password_File": "s9",
        "API_KEY": "s10", "TOKEN": "s11", "AWS_SECRET_ACCESS_KEY": "s12", "MY_OWN_PROVIDER": "s13",
    }  # fmt: skip
    kept = {"PATH": os.environ["PATH"], "HOME": "/h", "TOKENIZERS_PARALLELISM": "k1", "KEYBOARD": "k2", "EDITOR": "k3"}
    context = context_in(tmp_path, environment={**secrets, **kept}, secret_names=frozenset({"my_own_provider"}))
    text = await good(context, "run_command", command="env; cat /proc/self/environ | tr '\\0' '\\n'")
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert not names & set(secrets)
    assert set(kept) <= names
    assert not re.search(r"=s\d+$", text, re.MULTILINE)


@pytest.mark.parametrize("settings", [ToolSettings(builtin="all"), UNCONFINED], ids=["auto", "off"])
async def test_the_supervisor_holds_no_secrets_either(tmp_path: Path, settings: ToolSettings) -> None:
    environment = {**os.environ, "X_TOKEN": "a-secret-value"}
    context = context_in(tmp_path, environment=environment, settings=settings)
    text = text_of(await call(context, "run_command", command="tr '\\0' '\\n' < /proc/$PPID/environ; true"))
    assert "a-secret-value" not in text


def test_which_names_are_secrets() -> None:
    for name in ("SIDECAR_MODEL", "X_API_KEY", "x_token", "A_SECRET", "PASSWORD", "THE_PASSWORDS", "DATABASE_PASSWD"):
        assert is_secret(name), name
    for name in ("PATH", "TOKENS_PER_MINUTE", "KEY", "SECRETARY", "MONKEY", "PASS", "TOKENIZER", "SIDECARS"):
        assert not is_secret(name), name
    assert for_commands({"A": "1", "B_TOKEN": "2", "C": "3"}, ["c"]) == {"A": "1"}
    environment = {"PATH": "p", "HOME": "h", "LANG": "l", "TMPDIR": "t", "USER": "u", "X_TOKEN": "x"}
    assert for_servers(environment, {"MINE": "m", "LANG": "de"}) == {
        "PATH": "p", "HOME": "h", "LANG": "de", "TMPDIR": "t", "MINE": "m",
    }  # fmt: skip


async def test_commands_that_cannot_be_run_say_why(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    assert "NUL" in await bad(context, "run_command", command="echo \0")
    assert "at most 100000 characters" in await bad(context, "run_command", command="x" * 100_001)
    assert "`timeout_s`: must be over 0" in await bad(context, "run_command", command="true", timeout_s=0)
    assert "outside the working folders" in await bad(context, "run_command", command="true", cwd="/")


async def test_many_at_once_do_not_mix(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    results: dict[int, str] = {}

    async def one(i: int) -> None:
        results[i] = await good(context, "run_command", command=f"sleep 0.05; echo {i}")

    async with anyio.create_task_group() as group:
        for i in range(8):
            group.start_soon(one, i)
    assert results == {i: f"{i}\n[exit code 0]" for i in range(8)}


async def test_signals_have_their_usual_meaning(tmp_path: Path) -> None:
    text = await good(context_in(tmp_path), "run_command", command="yes | head -n 1; grep -i sigign /proc/self/status")
    ignored = int(text.splitlines()[1].split()[1], 16)
    assert text.startswith("y\n")
    assert not ignored & (1 << (signal.SIGPIPE - 1))


async def test_nothing_of_the_daemon_is_inherited(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        text = await good(context_in(tmp_path), "run_command", command="ls /proc/$$/fd; true")
    assert [int(fd) for fd in text.split("\n")[:-1] if int(fd) < 200] == [0, 1, 2]
