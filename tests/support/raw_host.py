"""A host that speaks raw bytes to a real daemon: for what a well-behaved client never sends or never does.

Independent of the code under test: standard library only. All waits end with an `AssertionError` that says what failed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 15.0
"""How long anything may take before a test gives up; no test passes by waiting."""

Frame = Any


class Wire:
    """One connection: a thread reads frames; requests and replies are matched by id."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], None], framing: str = "lines") -> None:
        self._read = read
        self._write = write
        self.framing = framing
        self.frames: list[Frame] = []
        self.ended = False
        self._reading = threading.Event()
        self._reading.set()
        self._changed = threading.Condition()
        self._numbers = 0
        threading.Thread(target=self._pump, daemon=True).start()

    # -- reading

    def stall(self) -> None:
        """Stops reading (after at most one more piece)."""
        self._reading.clear()

    def go_on(self) -> None:
        self._reading.set()

    def _pump(self) -> None:
        buffer = b""
        while True:
            self._reading.wait()
            try:
                data = self._read(65536)
            except OSError:
                data = b""
            if not data:
                break
            buffer = self._split(buffer + data)
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _split(self, buffer: bytes) -> bytes:
        found = []
        while True:
            head, separator, rest = buffer.partition(b"\r\n\r\n")
            if self.framing == "headers" and not buffer.startswith(b"{"):
                length = int(head.rpartition(b"Content-Length: ")[2]) if separator else 0
                if not separator or len(rest) < length:
                    break
                found.append(rest[:length])
                buffer = rest[length:]
            else:
                line, separator, rest = buffer.partition(b"\n")
                if not separator:
                    break
                found.append(line)
                buffer = rest
        with self._changed:
            self.frames += [json.loads(frame) for frame in found]
            self._changed.notify_all()
        return buffer

    def wait(self, condition: Callable[[list[Frame]], Any], what: str, timeout: float = PATIENCE_S) -> Any:
        """The first true value of `condition(frames)`."""
        end = time.monotonic() + timeout
        with self._changed:
            while not (value := condition(self.frames)):
                assert not self.ended, f"the connection ended before {what}; last: {str(self.frames[-3:])[:500]}"
                assert time.monotonic() < end, f"{what} did not come; last: {str(self.frames[-3:])[:500]}"
                self._changed.wait(0.2)
            return value

    def wait_end(self, timeout: float = PATIENCE_S) -> None:
        end = time.monotonic() + timeout
        with self._changed:
            while not self.ended:
                assert time.monotonic() < end, "the connection did not end"
                self._changed.wait(0.2)

    # -- writing

    def send_raw(self, data: bytes) -> None:
        self._write(data)

    def send(self, frame: Frame) -> None:
        self.send_raw(self.encode(json.dumps(frame).encode()))

    def encode(self, payload: bytes) -> bytes:
        if self.framing == "headers":
            return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
        return payload + b"\n"

    def start(self, method: str, params: Any = None, call_id: Any = None) -> Any:
        self._numbers += 1
        call_id = self._numbers if call_id is None else call_id
        frame = {"jsonrpc": "2.0", "id": call_id, "method": method}
        self.send(frame if params is None else {**frame, "params": params})
        return call_id

    def reply(self, call_id: Any, timeout: float = PATIENCE_S) -> Frame:
        """The whole reply with this id, batches looked into."""
        return self.wait(lambda frames: find_reply(frames, call_id), f"the reply to {call_id}", timeout)

    def call(self, method: str, params: Any = None, timeout: float = PATIENCE_S) -> Any:
        """The result, or the error object."""
        frame = self.reply(self.start(method, params), timeout)
        return frame["error"] if "error" in frame else frame["result"]

    def exchange(self, data: bytes, replies: int = 1) -> list[Frame]:
        """Sends raw bytes and a ping; what was answered to the bytes, in order."""
        before = len(self.frames)
        self.send_raw(data)
        ping = f"ping-{time.monotonic_ns()}"
        self.start("system.ping", call_id=ping)

        def answered(frames: list[Frame]) -> list[Frame] | None:
            got = [f for f in frames[before:] if isinstance(f, list) or "method" not in f]
            rest = [f for f in got if isinstance(f, list) or f.get("id") != ping]
            return [rest] if len(rest) >= replies and len(rest) < len(got) else None

        result: list[Frame] = self.wait(answered, f"{replies} replies and a ping")[0]
        return result

    def notified(self, method: str) -> list[Any]:
        return [f["params"] for f in list(self.frames) if isinstance(f, dict) and f.get("method") == method]

    def wait_notified(self, method: str, count: int = 1) -> Any:
        """Params of the `count`th such notification."""
        return self.wait(lambda _: self.notified(method)[count - 1 : count], method)[0]


def find_reply(frames: Sequence[Frame], call_id: Any) -> Frame | None:
    for frame in frames:
        for one in frame if isinstance(frame, list) else [frame]:
            if "method" not in one and one.get("id") == call_id and type(one.get("id")) is type(call_id):
                return one
    return None


class RawHost(Wire):
    """A daemon as a child over stdio, with the fake application unless `module` says otherwise."""

    def __init__(
        self,
        *arguments: str,
        application: Mapping[str, Any] | None = None,
        module: str = "tests.support.rpc_application",
        framing: str = "lines",
        env: Mapping[str, str] | None = None,
        stderr: Any = None,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="raw-host-")
        self.stderr_file = Path(self.folder.name, "stderr")
        with self.stderr_file.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "serve", *(arguments or ("--stdio",))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file if stderr is None else stderr,
                cwd=ROOT,
                env=daemon_environment(self.folder.name, application, env),
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        stdin, stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        super().__init__(lambda n: os.read(stdout, n), lambda data: write_all(stdin, data), framing)

    @property
    def stderr(self) -> str:
        return self.stderr_file.read_text(errors="replace")

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def exit_code(self, timeout: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("the daemon is still running") from None

    def wait_stderr(self, text: str) -> str:
        """The first line on stderr that holds `text`."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for line in self.stderr.split("\n")[:-1]:
                if text in line:
                    return line
            assert self.process.poll() is None, f"the daemon ended: {self.stderr[-500:]}"
            time.sleep(0.02)
        raise AssertionError(f"no {text!r} on stderr: {self.stderr[-500:]}")

    def rss_mib(self) -> float:
        """Resident memory; Linux only."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.go_on()
        self.wait_end()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except OSError:
                pass
        self.folder.cleanup()


class SocketHost(Wire):
    """A client of a daemon that listens: at a path, or at (host, port)."""

    def __init__(self, address: str | tuple[str, int], framing: str = "lines") -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.connect(address)
        super().__init__(self.socket.recv, self.socket.sendall, framing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.wait_end()
        self.socket.close()


def daemon_environment(
    home: str, application: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Nothing of the developer's that could configure the daemon."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START")}
    fake = {"FAKE_APPLICATION": json.dumps(application or {})}
    return kept | fake | {"HOME": home, "SIDECAR_HOME": home, "PYTHONPATH": str(ROOT)} | dict(env or {})


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
