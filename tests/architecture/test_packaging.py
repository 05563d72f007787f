"""What is shipped: the wheel has everything, the image is built from what is there and runs as nobody special."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import anyio
import pytest

from tests.architecture.source import PACKAGES, ROOT
from tests.support.running import serving_sidecar


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with continued lines joined as Docker does."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", "").split("\n") if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in lines)]


def test_the_image_is_built_from_what_is_there_and_does_not_run_as_root() -> None:
    found = instructions()
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), f"COPY {source}"
    copied = " ".join(rest for word, rest in found if word == "COPY")
    assert set(PACKAGES) <= set(copied.split())
    words = [word for word, _ in found]
    assert dict(found)["USER"] == "sidecar"
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert all("/" not in rest.split()[0] for word, rest in found if word == "FROM"), "no registry host"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {f"!{p}" for p in (*PACKAGES, "pyproject.toml", "README.md")} <= set(ignored)


async def test_the_health_check_asks_the_daemon() -> None:
    check = json.loads(next(rest for word, rest in instructions() if word == "HEALTHCHECK").split("CMD ", 1)[1])
    async with serving_sidecar() as (place, socket, _):
        program = check[2].replace("/run/sidecar/health", str(socket))
        assert program != check[2]
        done = await anyio.run_process([sys.executable, "-c", program], check=False, env=place.env)
        assert done.returncode == 0, done.stderr.decode()
    gone = await anyio.run_process([sys.executable, "-c", check[2]], check=False)
    assert gone.returncode != 0


def test_the_command_line_of_the_image_is_understood() -> None:
    from sidecar.rpc.arguments import parse_serve

    command = json.loads(dict(instructions())["CMD"])
    assert command[0] == "serve"
    assert parse_serve(command[1:]).allow_remote


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy without reaching for a package index; skips where setuptools is not installed."""
    pytest.importorskip("setuptools", minversion="70.1")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    copied = subprocess.run(["git", "ls-files", "-z", "--", *PACKAGES, "pyproject.toml", "README.md"], cwd=ROOT,
                            capture_output=True, text=True, check=False)  # fmt: skip
    if copied.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, copied.stdout.split("\0")):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            target.write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl"))


def test_the_wheel_has_every_file_that_the_program_reads(wheel: Path) -> None:
    import zipfile

    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = subprocess.run(["git", "ls-files", "-z", "--", *PACKAGES], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split("\0")  # fmt: skip
    missing = [n for n in shipped if n and n not in names and (ROOT / n).exists()]
    assert not missing, "add to [tool.setuptools.package-data]: " + ", ".join(missing)
    assert not [n for n in names if n.startswith(("tests", "scripts"))]


def test_what_is_imported_is_declared() -> None:
    from tests.architecture.source import modules

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^A-Za-z0-9-]", d)[0].lower() for d in project["dependencies"]}
    names = {"yaml": "pyyaml", "acp": "agent-client-protocol", "mcp_types": "mcp", "referencing": "jsonschema"}
    wrong = set()
    for module in modules():
        for name, _ in module.imports():
            head = name.split(".")[0]
            if head in sys.stdlib_module_names or head in PACKAGES:
                continue
            if names.get(head, head) not in declared:
                wrong.add(f"{module.path} imports {head}")
    assert not wrong, "\n".join(sorted(wrong))
