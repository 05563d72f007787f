"""Node programs that nobody here wrote, where `scripts/test` has installed them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

SAY = "run ./scripts/test, which installs the Node packages of tests/third_party where npm is there"


def node_packages() -> Path:
    """The folder that holds `node_modules`; skips the test where there is none."""
    folder = os.environ.get("SIDECAR_TEST_NODE")
    if not folder or not Path(folder, "node_modules").is_dir():
        pytest.skip(f"no Node packages: {SAY}")
    return Path(folder)


def node() -> str:
    """A Node that runs what the tests need: the installed one, else that of the machine. Skips without any."""
    folder = os.environ.get("SIDECAR_TEST_NODE")
    installed = Path(folder or "", "node_modules", "node", "bin", "node")
    found = str(installed) if folder and installed.exists() else shutil.which("node")
    if found is None:
        pytest.skip(f"no Node: {SAY}")
    return found
