"""Checks of the tree that no linter has: `python scripts/checks.py generated|top-level`. Exit 1 says what is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {"pyproject.toml", "README.md", "Dockerfile", "protocol", "record_store", "sidecar", "tests", "scripts"}
GENERATED = ("schema.json", "REFERENCE.md")


def top_level() -> list[str]:
    """What stands at the top level and is neither allowed, nor a dot file, nor ignored by git."""
    names = {p.name for p in ROOT.iterdir()}
    listed = _git("ls-files", "-coz", "--exclude-standard")
    if listed is not None:
        names = {line.split("/", 1)[0] for line in listed.split("\0") if line and (ROOT / line).exists()}
    else:
        names -= {"build", "dist"} | {n for n in names if n.endswith(".egg-info")}
    return [f"{name} does not belong at the top level" for name in sorted(names - ALLOWED) if not name.startswith(".")]


def generated() -> list[str]:
    """Which generated pages are not what `python -m protocol` writes now."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "protocol")
        shutil.copytree(ROOT / "protocol", copy, ignore=shutil.ignore_patterns("__pycache__", *GENERATED))
        env = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(
            [sys.executable, "-m", "protocol"], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return [f"python -m protocol fails: {done.stderr[-1000:]}"]
        stale = [name for name in GENERATED if _bytes(copy / name) != _bytes(ROOT / "protocol" / name)]
        return [f"protocol/{name} is not current" for name in stale]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _git(*arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


CHECKS = {"top-level": top_level, "generated": generated}

if __name__ == "__main__":
    problems = CHECKS[sys.argv[1]]()
    print("\n".join(problems))
    sys.exit(bool(problems))
