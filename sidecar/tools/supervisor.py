"""Runs one command for the daemon and ends everything that it started. A program of its own: standard library, POSIX.

Its stdin is one line of JSON (`Job`), and then its lifeline: when that closes, because the daemon cancelled or died,
the command is ended. Its stdout is one line of JSON (`Report`), then the first and the last bytes of the output.

The command gets a session and a process group of its own, no stdin, and stdout and stderr as one stream. When its
shell ends, at the timeout or at the end of the lifeline, the whole group and, on Linux, every descendant that left
the group is sent SIGTERM, and SIGKILL a moment later. Output is read to the end but only its head and tail are kept.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress

from sidecar.tools import kernel

TYPE_CHECKING = False  # the module that has it takes longer to load than all of this
if TYPE_CHECKING:
    from typing import NoReturn

    from sidecar.tools.job import Job, Report

GRACE_S = 0.25
"""Between SIGTERM and SIGKILL."""
KILL_S = 2.0
"""How long what was killed may take to be gone; only what hangs in the kernel takes longer."""
CHUNK = 65536
FLOOD_BYTES = 16 << 20
"""From here on output is read slowly: a command that floods waits for its pipe instead of using up a processor."""
FLOOD_PAUSE_S = 0.001


class Output:
    """The first and the last `keep` bytes of a stream."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        space = self._keep - len(self.head)
        if space > 0:
            self.head += data[:space]
            data = data[space:]
        self._tail += data
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-self._keep :])


def main() -> None:
    job = _read_job()
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    adopts = kernel.adopt_orphans()
    scratch = None if job["scratch"] is None else _make_scratch(job["scratch"])
    try:
        output = Output(job["keep"])
        _send(_run(job, scratch, output, wake_r, adopts), output)
    finally:
        if scratch is not None:
            _remove_scratch(scratch)


def _make_scratch(parent: str) -> str:
    path = os.path.join(parent, f"sidecar-{os.urandom(8).hex()}")
    os.mkdir(path, 0o700)
    return path


def _remove_scratch(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def _read_job() -> Job:
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = os.read(0, CHUNK)
        if not piece:
            os._exit(1)
        data += piece
    job: Job = json.loads(data)
    return job


def _send(report: Report, output: Output) -> None:
    tail = output.tail
    report["total"], report["head"], report["tail"] = output.total, len(output.head), len(tail)
    data = memoryview(json.dumps(report).encode() + b"\n" + bytes(output.head) + tail)
    with suppress(BrokenPipeError):
        while data:
            data = data[os.write(1, data) :]
    os.close(1)


def _run(job: Job, scratch: str | None, output: Output, wake: int, adopts: bool) -> Report:
    out_r, out_w = os.pipe()
    status_r, status_w = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _become(job, scratch, out_w, status_w, supervisor)
    os.close(out_w)
    os.close(status_w)
    failure = os.read(status_r, CHUNK).decode("utf-8", "replace")
    if failure:
        os.waitpid(child, 0)
        return {"failure": failure}
    os.set_blocking(out_r, False)
    deadline = time.monotonic() + job["timeout_s"]
    code = _watch(child, out_r, wake, output, deadline)
    timed_out = code is None and time.monotonic() >= deadline
    left, late_code = end_all(child, adopts)
    _drain(out_r, output)
    code = late_code if code is None else code
    return {"exit_code": -signal.SIGKILL if code is None else code, "timed_out": timed_out, "left": left}


def _become(job: Job, scratch: str | None, out_w: int, status_w: int, supervisor: int) -> NoReturn:
    """The child's way from fork to exec; whatever fails is told through `status_w`, which exec closes."""
    try:
        os.setsid()
        kernel.end_with_parent(signal.SIGKILL, supervisor)
        for number in (signal.SIGPIPE, signal.SIGCHLD, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
            signal.signal(number, signal.SIG_DFL)
        environment = dict(job["environment"])
        if scratch is not None:
            environment.update(TMPDIR=scratch, TMP=scratch, TEMP=scratch)
        os.fchdir(job["cwd_fd"])
        os.close(job["cwd_fd"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out_w, 1), (out_w, 2)):
            os.dup2(source, target)
        if job["writable"] is not None or not job["network"]:
            kernel.no_new_privileges()
            kernel.drop_strong_capabilities()
        if job["writable"] is not None:
            kernel.confine_writes([*job["writable"], *([scratch] if scratch else [])], job["devices"])
        if not job["network"]:
            kernel.cut_network()
        os.execve(job["argv"][0], job["argv"], environment)
    except BaseException as error:
        words = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        os.write(status_w, words.encode())
    os._exit(127)


def _watch(child: int, out: int, wake: int, output: Output, deadline: float) -> int | None:
    """Reads output until the child ends; its exit code. None: the deadline came, or the lifeline closed."""
    sources = [0, out, wake]
    while True:
        ready, _, _ = select.select(sources, [], [], max(0.0, deadline - time.monotonic()))
        if wake in ready:
            os.read(wake, CHUNK)
            code = _reap(child)
            if code is not None:
                return code
        if 0 in ready and not os.read(0, CHUNK):
            return None
        if out in ready and not _read(out, output):
            sources.remove(out)
        if time.monotonic() >= deadline:
            return None


def _read(out: int, output: Output) -> bool:
    """Takes one piece of output; False at its end."""
    try:
        data = os.read(out, CHUNK)
    except BlockingIOError:
        return True
    output.add(data)
    if output.total > FLOOD_BYTES:
        time.sleep(FLOOD_PAUSE_S)
    return bool(data)


def _drain(out: int, output: Output) -> None:
    """What is still in the pipe; everybody who could add to it is gone."""
    with suppress(BlockingIOError):
        for _ in range(64):
            data = os.read(out, CHUNK)
            if not data:
                break
            output.add(data)
    os.close(out)


def _reap(child: int) -> int | None:
    """Collects every child that ended; the exit code of `child` if it is among them."""
    found: int | None = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = os.waitstatus_to_exitcode(status)
    return found


def end_all(group: int, adopts: bool) -> tuple[bool, int | None]:
    """Ends the process group and every child of this process. Whether anything was alive, and the exit code of the
    group's leader if it ended only now."""
    code = _reap(group)
    if not _alive(group, adopts):
        return False, code
    for number, seconds in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + seconds
        _signal(group, adopts, number)
        while time.monotonic() < until:
            found = _reap(group)
            code = found if code is None else code
            if not _alive(group, adopts):
                return True, code
            if number == signal.SIGKILL:
                _signal(group, adopts, number)
            time.sleep(0.005)
    return True, code


def _signal(group: int, adopts: bool, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for pid in children() if adopts else ():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _alive(group: int, adopts: bool) -> bool:
    if adopts and children():
        return True
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def children() -> list[int]:
    """The pids of this process's own children, on Linux."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent_of(pid) == me]


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
