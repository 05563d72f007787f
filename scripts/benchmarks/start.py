"""How long a host waits: from the start of the process to the first reply."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.benchmarks.daemon import environment, spawn
from scripts.benchmarks.rows import Row, interleaved, median, row

REPEATS = 15
PING = b'{"jsonrpc":"2.0","id":1,"method":"system.ping","params":{}}\n'
BARE = "import anyio, orjson\nasync def main(): pass\nanyio.run(main)"


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        first_reply(home), bare(home)  # compiles what is not compiled yet
        replies, bares = interleaved(REPEATS, lambda: first_reply(home), lambda: bare(home))
    value, baseline = median(replies), median(bares)
    return [
        row(
            "start to the first ping reply",
            value * 1e3,
            "ms",
            baseline * 1e3,
            goal="at most 1.5 x a bare process that imports anyio and orjson",
            ok=value <= 1.5 * baseline,
        )
    ]


def first_reply(home: Path) -> float:
    began = time.perf_counter()
    process = spawn(home)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(PING)
    held = b""
    while b'"id":1' not in held:
        chunk = process.stdout.read(65536)
        if not chunk:
            raise RuntimeError("the daemon ended before it answered")
        held += chunk
    took = time.perf_counter() - began
    process.kill()
    process.stdin.close()
    process.stdout.close()
    process.wait()
    return took


def bare(home: Path) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", BARE], env=environment(home), cwd=home, check=True)
    return time.perf_counter() - began
