"""The third party's judge of clients: `llmock`, in an environment of its own, as a real process.

It is installed once per machine, under the temporary folder, and never into the project's own environment (it brings a
plugin for the test runner that nobody asked for). Where it cannot be had, `LlmockMissing` says why.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

VERSION = "0.2.2"
HOME = Path(tempfile.gettempdir(), f"llmock-{VERSION}-py{sys.version_info[0]}{sys.version_info[1]}")


class LlmockMissing(Exception):
    """It cannot be installed here."""


def installed() -> Path:
    """Its executable. Takes some seconds the first time."""
    found = HOME / "bin" / "llmock"
    if not (HOME / "complete").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True, capture_output=True, timeout=120)
            pip = [str(HOME / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", f"llmock=={VERSION}"]
            subprocess.run(pip, check=True, capture_output=True, timeout=240)
        except (OSError, subprocess.SubprocessError) as error:
            raise LlmockMissing(f"llmock {VERSION} cannot be installed: {type(error).__name__}") from None
        (HOME / "complete").touch()
    return found


class Llmock:
    """A running judge. `openai_url` and `anthropic_url` are what clients are pointed at."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self._client = httpx.Client(base_url=self.origin, trust_env=False, timeout=10)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OPENAI_BASE_URL": f"{self.origin}/v1",
            "OPENAI_API_KEY": "sk-for-the-judge",
            "ANTHROPIC_BASE_URL": f"{self.origin}/anthropic",
            "ANTHROPIC_API_KEY": "sk-for-the-judge",
        }

    def queue(self, *behaviours: dict[str, Any]) -> None:
        """What the next requests meet, each `{"type": ..., ...}`."""
        self._client.post("/_llmock/scenario", json={"behaviors": list(behaviours)}).raise_for_status()

    def settle(self) -> None:
        """Returns when no request is open on its side."""
        self._client.get("/_llmock/requests").raise_for_status()

    def verdict(self) -> dict[str, Any]:
        """What it thinks of the client so far; its memory is empty afterwards."""
        found: dict[str, Any] = self._client.get("/_llmock/verdict").json()
        self._client.post("/_llmock/reset").raise_for_status()
        return found

    def close(self) -> None:
        self._client.close()


@contextmanager
def running(*options: str) -> Iterator[Llmock]:
    """The judge on a free port. Raises `LlmockMissing`."""
    command = installed()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [str(command), "serve", "--host", "127.0.0.1", "--port", str(port), *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    judge = Llmock(port)
    try:
        _wait_until_it_listens(process, port)
        yield judge
    finally:
        judge.close()
        process.terminate()
        process.wait(10)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise LlmockMissing("llmock does not start here")
