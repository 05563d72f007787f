"""Commands in the kernel's confinement, and out of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.settings import ToolSettings
from sidecar.tools import command, kernel, sandbox
from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused
from tests.support.tools import bad, call, context_in, good, text_of

STATUS = sandbox.status(os.environ)
needs_confinement = pytest.mark.skipif(STATUS.writes == "none", reason=STATUS.detail)
needs_landlock = pytest.mark.skipif(kernel.landlock_version() == 0, reason="no Landlock in this kernel")
needs_cut = pytest.mark.skipif(not kernel.can_cut_network(), reason="no seccomp filter for this machine")


@needs_confinement
async def test_writes_stay_in_the_roots(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "work/link").symlink_to(tmp_path / "victim")
    context = context_in(tmp_path / "work", roots=(tmp_path / "other",))
    commands = (
        f"echo x > {tmp_path}/new",
        "echo x > ../new",
        "echo x > ../victim",
        "echo x >> link",
        f": > {tmp_path}/victim",
        f"rm -f {tmp_path}/victim",
        f"mv {tmp_path}/victim here",
        f"ln {tmp_path}/victim hard && echo x > hard",
        f"mkdir {tmp_path}/dir",
        "mv /etc/hostname .",
        "sh -c 'cd .. && touch new'",
        f"truncate -s 0 {tmp_path}/victim",
    )
    for line in commands:
        await call(context, "run_command", command=line)
        assert (tmp_path / "victim").read_text() == "kept", line
        assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "victim", "work"], line
    assert await good(
        context, "run_command", command="echo a > in; echo b > ../other/in; mkdir -p d/e; mv in d/e; rm -r d"
    )
    assert (tmp_path / "other/in").read_text() == "b\n"
    text = await bad(context, "run_command", command="touch ../new")
    assert f"[sandbox: only {context.cwd}, {context.roots[0]} and $TMPDIR can be written to]" in text


@needs_confinement
async def test_a_private_temporary_directory_and_the_usual_devices(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    line = 'echo x > "$TMPDIR/x" && cat "$TMPDIR/x" && echo $TMPDIR && echo y > /dev/null && echo z > /dev/stderr'
    text = await good(context, "run_command", command=line)
    assert text.startswith("x\n")
    assert not os.path.exists(text.splitlines()[1]) or text.splitlines()[1] == "/tmp"
    python = "import tempfile, multiprocessing; tempfile.TemporaryFile(); multiprocessing.Lock(); print('ok')"
    assert await good(context, "run_command", command=f'{sys.executable} -c "{python}"') == "ok\n[exit code 0]"


@needs_confinement
async def test_reading_stays_free(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "shared").write_text("library")
    context = context_in(tmp_path / "work")
    assert "library" in await good(context, "run_command", command="cat ../shared")


@needs_landlock
async def test_processes_outside_are_out_of_reach(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    sleeper = subprocess.Popen(["sleep", "300"], env={"HIDDEN": "the secret"})
    try:
        text = text_of(await call(context, "run_command", command=f"cat /proc/{sleeper.pid}/environ; true"))
        assert "the secret" not in text
        if kernel.landlock_version() >= 6:
            await bad(context, "run_command", command=f"kill -9 {sleeper.pid}")
            assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@needs_landlock
async def test_no_device_nodes(tmp_path: Path) -> None:
    await bad(context_in(tmp_path), "run_command", command="mknod disk b 8 0")
    assert not (tmp_path / "disk").exists()


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="others make no device nodes anyway")
def test_no_device_nodes_even_with_all_capabilities(tmp_path: Path) -> None:
    code = (
        "import os, sys; from sidecar.tools import kernel\n"
        "kernel.no_new_privileges(); kernel.confine_writes([sys.argv[1]], [])\n"
        "open(sys.argv[1] + '/file', 'w').close(); os.mknod(sys.argv[1] + '/disk', 0o60600, os.makedev(8, 0))"
    )
    folder = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=folder)
    assert "PermissionError" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@needs_cut
@pytest.mark.parametrize("kind", ["landlock", "none"])
async def test_the_network_is_cut_by_choice(tmp_path: Path, kind: str) -> None:
    if kind == "landlock" and STATUS.writes != "landlock":
        pytest.skip(STATUS.detail)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected"
        assert "connected" in await good(context_in(tmp_path), "run_command", command=line)
        settings = ToolSettings(builtin="all", sandbox_network=False)
        text = await bad(context_in(tmp_path, settings=settings), "run_command", command=line)
        assert "connected" not in text
        assert "[sandbox: there is no network]" in text
    udp = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
    settings = ToolSettings(builtin="all", sandbox_network=False)
    assert "PermissionError" in await bad(
        context_in(tmp_path, settings=settings), "run_command", command=f'{sys.executable} -c "{udp}"'
    )
    local = "import socket; print(len(socket.socketpair()))"
    assert (
        await good(context_in(tmp_path, settings=settings), "run_command", command=f'{sys.executable} -c "{local}"')
        == "2\n[exit code 0]"
    )


async def test_off_means_off(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    settings = ToolSettings(builtin="all", sandbox="off", sandbox_network=False)
    await good(context_in(tmp_path / "work", settings=settings), "run_command", command="echo x > ../new")
    assert (tmp_path / "new").read_text() == "x\n"


def test_required_is_refused_where_there_is_nothing() -> None:
    if STATUS.writes == "none":
        with pytest.raises(Refused, match="= required"):
            sandbox.plan("required", True, ["/work"], os.environ)
    else:
        assert sandbox.plan("required", True, ["/work"], os.environ).folders == ("/work",)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux")
@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root to hide the kernel's offer"
)
def test_required_is_refused_on_a_machine_without(tmp_path: Path) -> None:
    """A process whose kernel refuses Landlock (a seccomp filter says so) and that finds no bubblewrap."""
    script = """
import ctypes, os, struct, sys
from sidecar.tools import kernel, sandbox
from sidecar.tools.refusal import Refused
steps = ((0x20, 0, 0, 0), (0x35, 0, 2, 444), (0x35, 1, 0, 447), (6, 0, 0, 0x00050026), (6, 0, 0, 0x7FFF0000))
code = b"".join(struct.pack("=HBBI", *step) for step in steps)
kernel.no_new_privileges()
kernel._prctl(22, ctypes.c_ulong(2), ctypes.byref(kernel._Program(len(code) // 8, code)))
env = {"PATH": "/nowhere"}
print(sandbox.status(env).writes, sandbox.plan("auto", True, ["/w"], env).folders)
try: sandbox.plan("required", True, ["/w"], env)
except Refused as refusal: print(refusal)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).resolve().parents[3]
    )
    first, second = done.stdout.splitlines()
    assert first == "none None"
    assert "Install bubblewrap" in second


def bubblewrap_works() -> bool:
    return sandbox._bubblewrap(os.environ.get("PATH", "")) is not None


@pytest.mark.skipif(not bubblewrap_works(), reason="no working bubblewrap")
async def test_bubblewrap_confines_too(tmp_path: Path) -> None:
    """The plan that an older kernel gets, run as it would be."""
    (tmp_path / "work").mkdir()
    work = os.path.realpath(tmp_path / "work")
    prefix = sandbox._bubblewrap_prefix([work], os.environ, True)
    line = f"echo in > in; echo x > {tmp_path}/new; echo x > /etc/new; pwd; echo t > $TMPDIR/t"
    done = subprocess.run(
        [*prefix, *command.shell(os.environ), line],
        cwd=work,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": "/tmp"},
    )
    assert done.stdout == f"{work}\n", done.stderr
    assert Path(work, "in").read_text() == "in\n"
    assert not (tmp_path / "new").exists()
    assert not os.path.exists("/etc/new")
    assert Confinement.of(work).root_of(work) == work


def test_status_is_one_line_for_people() -> None:
    assert STATUS.detail
    assert "\n" not in STATUS.detail
