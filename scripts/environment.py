"""Makes the Python environment of the scripts and prints its interpreter. Standard library only, Python 3.11 or newer.

    python environment.py run|dev [--venv FOLDER]

Environments lie in a cache folder outside the checkout, one per content of `pyproject.toml` and Python version, and are
shared by all checkouts: what is in them are the dependencies, and the project as it was when they were made. `run` has
the runtime dependencies, `dev` the `dev` extra too; where a `dev` one exists, `run` uses it. What pip prints goes to
stderr, and only when it fails.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = ("pyproject.toml", "README.md", "protocol", "record_store", "sidecar")
MARK = "complete"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["run", "dev"])
    parser.add_argument("--venv", type=Path)
    options = parser.parse_args()
    folder = options.venv.expanduser().absolute() if options.venv else choose(options.kind)
    with locked(folder):
        if not is_complete(folder, options.kind):
            make(folder, options.kind)
    print(interpreter(folder))
    return 0


# ---------------------------------------------------------------- where


def cache_folder() -> Path:
    """The first of the usual places that can be written: $SIDECAR_DEV_CACHE, the user's cache, the temporary folder."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    places = [
        os.environ.get("SIDECAR_DEV_CACHE"),
        os.environ.get("XDG_CACHE_HOME") and os.path.join(os.environ["XDG_CACHE_HOME"], "llm-sidecar"),
        os.environ.get("HOME") and os.path.join(os.environ["HOME"], ".cache", "llm-sidecar"),
        os.path.join(tempfile.gettempdir(), f"llm-sidecar-{user}"),
    ]
    for place in places:
        if not place or not os.path.isabs(place):
            continue
        path = Path(place)
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                return path
        except OSError:
            continue
    sys.exit("error: no folder for the environment can be written; name one: SIDECAR_DEV_CACHE=/some/folder")


def key() -> str:
    version = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + version.encode() + sys.base_prefix.encode())
    return digest.hexdigest()[:12]


def choose(kind: str) -> Path:
    cache = cache_folder()
    dev = cache / f"dev-{key()}"
    return dev if kind == "dev" or is_complete(dev, "dev") else cache / f"run-{key()}"


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_complete(folder: Path, kind: str) -> bool:
    """Whether it was made whole for this `pyproject.toml` and its interpreter still runs."""
    mark = folder / MARK
    if not mark.exists() or mark.read_text().split() not in ([key(), "dev"], [key(), kind]):
        return False
    return subprocess.run([interpreter(folder), "-c", "import anyio"], capture_output=True).returncode == 0


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One maker at a time; the others wait and find it made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        if os.name != "nt":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------- making


def make(folder: Path, kind: str) -> None:
    print(f"== making the environment {folder} (once; needs a package index)", file=sys.stderr, flush=True)
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        sys.exit(f"error: {folder} is not an environment, and not empty: name another folder")
    (folder / MARK).unlink(missing_ok=True)
    run([sys.executable, "-m", "venv", "--clear", str(folder)], "python -m venv failed")
    with tempfile.TemporaryDirectory(prefix="sidecar-source-") as source:
        # A copy: building in place would leave its files in the checkout.
        for name in PACKAGED:
            copy(ROOT / name, Path(source, name))
        target = f"{source}[dev]" if kind == "dev" else source
        run(
            [str(interpreter(folder)), "-m", "pip", "install", "--disable-pip-version-check", "-q", target],
            "the dependencies could not be installed; check the network and pip's configuration",
        )
    (folder / MARK).write_text(f"{key()} {kind}\n")


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copyfile(source, target)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """For the programs that make an environment: without the interpreter's own settings, which would leak into it, and
    without pip's cache where the home cannot be written: building a wheel fails there instead of going on."""
    env = {k: v for k, v in given.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER")}
    if not os.access(env.get("HOME") or os.path.expanduser("~"), os.W_OK) and "PIP_CACHE_DIR" not in env:
        env["PIP_NO_CACHE_DIR"] = "1"
    return env


def run(command: list[str], problem: str) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(os.environ)
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        sys.exit(f"error: {problem}")


if __name__ == "__main__":
    sys.exit(main())
