"""Habits of the code that a linter does not know."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import ROOT, Module, modules

ELSEWHERE = re.compile(
    r"(?-i:\bSPEC\b|\bGUIDE\b)|\bsection \d|\bsec\. ?\d|§|\bissue #?\d|(?<![\w&/])#\d+\b|\bpart \d+ of \d+\b"
    r"|\bstep \d+ of the plan\b|\bsource \d\b",
    re.IGNORECASE,
)
"""Numbers of places in documents that a reader of the code does not have."""

READERS = {"sidecar.settings", "record_store.failpoints"}
"""Modules that may read the environment: the settings, and the failpoints that only tests arm."""

TEXT_FILES = ("*.md", "*.toml", "*.sh", "Dockerfile")


def test_the_environment_is_read_in_one_place() -> None:
    wrong = []
    for m in modules("sidecar", "record_store", "protocol"):
        if m.name in READERS:
            continue
        for node in ast.walk(m.tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
                wrong.append(f"{m.path}:{node.lineno}")
    assert not wrong, "settings.py reads the environment: " + ", ".join(wrong)


def test_comments_point_at_nothing_outside_the_code() -> None:
    wrong = [
        f"{m.path}:{line} {match.group(0)!r}"
        for m in modules("protocol", "record_store", "sidecar", "scripts", "tests")
        if not m.name.startswith("tests.architecture") and ELSEWHERE.search(m.text)
        for text, line in m.comments()
        if (match := ELSEWHERE.search(text)) is not None
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see SPEC 6", True),
        ("as section 14 says", True),
        ("issue 12", True),
        ("fixed in #12", True),
        ("a section of the configuration", False),
        ("the issues of a file", False),
        ("colour #fff", False),
        ("1,024 bytes", False),
    ],
)
def test_the_check_sees_what_it_should(text: str, found: bool) -> None:
    assert (ELSEWHERE.search(text) is not None) is found


def test_nothing_is_left_to_do() -> None:
    word = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XXX|HACK)\b(?! List)")
    wrong = [
        f"{m.path}:{line}" for m in modules() for text, line in m.comments() if word.search(text) and "`" not in text
    ]
    assert not wrong, ", ".join(wrong)


def test_every_module_says_what_it_is_for() -> None:
    wrong = [str(m.path) for m in modules() if m.text.strip() and ast.get_docstring(m.tree) is None]
    assert not wrong, ", ".join(wrong)


def test_no_registry_is_named() -> None:
    hosts = re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|docker\.io|ghcr\.io|quay\.io|debian\.org)\b"
    )
    files = [m.path for m in modules("protocol", "record_store", "sidecar", "scripts", "tests")]
    files += [p.relative_to(ROOT) for pattern in TEXT_FILES for p in ROOT.glob(pattern)]
    files += [p.relative_to(ROOT) for p in (ROOT / "scripts").iterdir() if p.is_file()]
    wrong = [
        str(f)
        for f in files
        if f.name != "test_style.py" and hosts.search((ROOT / f).read_text(encoding="utf-8", errors="replace"))
    ]
    assert not wrong, ", ".join(wrong)


def pure(module: Module) -> bool:
    first = (ast.get_docstring(module.tree) or "").split("\n\n")[0]
    return bool(re.search(r"\bpure\b", first, re.IGNORECASE)) and "Pure data" not in first


def test_modules_that_say_they_are_pure_do_nothing() -> None:
    """No I/O, no clock, no randomness: nothing of the sort is even imported."""
    acting = {
        "os", "io", "socket", "subprocess", "time", "random", "secrets", "asyncio", "anyio", "httpx", "threading",
        "tempfile", "shutil",
    }  # fmt: skip
    wrong = [
        f"{m.path}:{line} imports {name}"
        for m in modules()
        if pure(m)
        for name, line in m.imports()
        if name.split(".")[0] in acting and name not in ("os", "os.path")
    ]
    wrong += [f"{m.path}:{line} uses os.{name}" for m in modules() if pure(m) for name, line in uses_of_os(m)]
    assert not wrong, "\n".join(wrong)


def uses_of_os(module: Module) -> list[tuple[str, int]]:
    """What is used of `os` beside its names of paths."""
    return [
        (node.attr, node.lineno)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr not in ("path", "sep", "altsep", "curdir", "pardir", "fspath", "PathLike")
    ]
