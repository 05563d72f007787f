"""Headless Chromium over the WebDriver protocol, with nothing but the standard library.

    with chromium() as page:
        page.open(path.as_uri())
        page.screenshot(tmp_path / "page.png")

`missing()` names what is not installed; Debian's packages are `chromium` and `chromium-driver`.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def missing() -> str | None:
    """What is not installed, in words; None if all is there."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed: apt-get install chromium chromium-driver" if absent else None


class Page:
    """One window. Raises RuntimeError with the driver's words when a command fails."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, address: str) -> None:
        """Returns when the page is loaded."""
        _call("POST", f"{self._base}/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that the script returns; `arguments` are its `arguments`."""
        return _call("POST", f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """Scrolls to the first match and clicks its middle, as a person would."""
        found = _call("POST", f"{self._base}/element", {"using": "css selector", "value": selector})
        element = next(iter(found.values()))
        _call("POST", f"{self._base}/element/{element}/click", {})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return _call("POST", f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def view(self, width: int, height: int, *, dark: bool = False, scale: float = 1.0) -> None:
        """The size of the window in CSS pixels, and the colour scheme that the person prefers. Nothing moves."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        features = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        told = [{"name": name, "value": value} for name, value in features.items()]
        self.devtools("Emulation.setEmulatedMedia", features=told)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(_call("GET", f"{self._base}/screenshot")))

    def complaints(self) -> list[str]:
        """What the browser's console has said so far: errors of scripts, refused requests."""
        entries = _call("POST", f"{self._base}/se/log", {"type": "browser"})
        return [str(entry["message"]) for entry in entries]

    def close(self) -> None:
        _call("DELETE", self._base)


@contextmanager
def chromium() -> Iterator[Page]:
    """A fresh browser with a profile of its own; all of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        port = _free_port()
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}", "--log-level=OFF"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address)
            options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
            capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = _call("POST", f"{address}/session", {"capabilities": {"alwaysMatch": capabilities}})
            page = Page(address, made["sessionId"])
            try:
                yield page
            finally:
                page.close()
        finally:
            driver.terminate()
            driver.wait(10)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _wait(address: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            if _call("GET", f"{address}/status")["ready"]:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("chromedriver did not get ready within 20 s")
        time.sleep(0.05)


def _call(method: str, address: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as reply:
            return json.load(reply)["value"]
    except urllib.error.HTTPError as error:
        with error:
            told = json.load(error)["value"]
        raise RuntimeError(f"{told['error']}: {told['message']}") from None
