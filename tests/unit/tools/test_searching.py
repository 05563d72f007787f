"""`glob` and `grep`, and what they stand on: patterns, ignore files, the walk."""

from __future__ import annotations

import codecs
import os
import re
import subprocess
from pathlib import Path

import anyio
import pytest

from sidecar.tools import globs, ignore, literals
from sidecar.tools.confine import Confinement
from sidecar.tools.search import SECONDS
from sidecar.tools.search_worker import HARD_SECONDS
from sidecar.tools.walk import Walk
from tests.support.tools import bad, call, context_in, good


def fill(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py", ".hidden.py"], ["a.pyc", "d/a.py", ""]),
        ("**/*.py", ["a.py", "d/a.py", "d/e/a.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a"]),
        ("**", ["a", "a/b"], []),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "/x"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("[^a]x", ["bx"], ["ax"]),
        ("[]]x", ["]x"], ["x"]),
        ("[a", ["[a"], ["a"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b}/{c,d}*", ["a/c", "b/dx"], ["a/e"]),
        ("{a,{b,c}}", ["a", "b", "c"], ["{b"]),
        ("{a}", ["{a}"], ["a"]),
        ("a*b*c", ["abc", "axbxc", "abbcc"], ["acb", "ab/c"]),
        ("*a*b", ["ab", "aab", "bab"], ["ba", "abx"]),
        (r"\*", ["*"], ["a"]),
        ("./a", ["a"], []),
        ("x.y", ["x.y"], ["xay"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = globs.matcher(pattern)
    assert [p for p in yes if not matches.fullmatch(p)] == []
    assert [p for p in no if matches.fullmatch(p)] == []


def test_a_pattern_takes_no_time_to_fail() -> None:
    assert globs.matcher("*a" * 200 + "b").fullmatch("a" * 5000) is None
    assert globs.matcher("/".join(["**", "a"] * 8) + "/b").fullmatch("a/" * 30 + "c") is None
    with pytest.raises(globs.BadGlob):
        globs.matcher("/".join(["**", "x"] * 9))
    with pytest.raises(globs.BadGlob):
        globs.matcher("{a,b}" * 20)


def test_the_fixed_directories_of_a_pattern() -> None:
    assert globs.literal_prefix("src/app/*.py") == ("src/app", "*.py")
    assert globs.literal_prefix("*.py") == ("", "*.py")
    assert globs.literal_prefix("/a/b/**/c") == ("/a/b", "**/c")
    assert globs.literal_prefix("/*") == ("/", "*")
    assert globs.literal_prefix("a/b") == ("a", "b")


@pytest.mark.parametrize(
    ("rules", "ignored", "kept"),
    [
        ("*.log", ["a.log", "d/b.log"], ["a.txt"]),
        ("/top", ["top"], ["d/top"]),
        ("d/x", ["d/x"], ["e/d/x"]),
        ("build/", ["build/"], ["build"]),
        ("*.log\n!keep.log", ["a.log"], ["keep.log"]),
        ("# comment\n\n\\#file", ["#file"], ["comment"]),
        ("trail  ", ["trail"], []),
        ("a/**", ["a/b", "a/b/c"], ["a"]),
        ("**/deep", ["deep", "a/deep"], []),
    ],
)
def test_ignore_rules(rules: str, ignored: list[str], kept: list[str]) -> None:
    parsed = ignore.parse(rules)
    assert parsed is not None
    for path in ignored + kept:
        assert ignore.is_ignored([parsed], path.rstrip("/"), path.endswith("/")) == (path in ignored), path


def test_the_walk_is_the_same_as_gits(tmp_path: Path) -> None:
    """Git itself says which files are ignored."""
    names = (
        "a_DOT_log important_DOT_log only-top sub__only-top build__x sub__build__y sub__a_DOT_tmp a_DOT_tmp"
        " docs__draft-1 docs__a__b__draft-2 sub__local local sub__anchored sub__deep__anchored _DOT_hidden"
        " sub__important_DOT_log sub__b_DOT_log plain"
    )
    rules = "*.log\n!important.log\n/only-top\nbuild/\ndocs/**/draft-*\n*.tmp\n"
    fill(
        tmp_path,
        _DOT_gitignore=rules,
        sub___DOT_gitignore="!*.tmp\nlocal\n/anchored\n",
        **dict.fromkeys(names.split(), "x"),
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "--others", "--exclude-standard"], capture_output=True, text=True
    ).stdout.split()
    folder = os.path.realpath(tmp_path)
    walked = [e.path for e in Walk(Confinement.of(folder), folder) if e.kind == "file"]
    assert sorted(walked) == sorted(listed)
    inner = [e.path for e in Walk(Confinement.of(folder), f"{folder}/sub") if e.kind == "file"]
    assert sorted(inner) == sorted(p.removeprefix("sub/") for p in listed if p.startswith("sub/"))


async def test_glob_lists_files_in_order(tmp_path: Path) -> None:
    fill(tmp_path, b__x_DOT_py="", a_DOT_py="", b__c__y_DOT_py="", b__z_DOT_txt="", _DOT_git__config_DOT_py="")
    context = context_in(tmp_path)
    assert await good(context, "glob", pattern="**/*.py") == "a.py\nb/c/y.py\nb/x.py"
    assert await good(context, "glob", pattern="*.py") == "a.py"
    assert await good(context, "glob", pattern="b/*.{py,txt}") == "b/x.py\nb/z.txt"
    assert await good(context, "glob", pattern="*.py", path="b") == "b/x.py"
    assert await good(context, "glob", pattern=f"{context.cwd}/b/**/*.py") == "b/c/y.py\nb/x.py"
    assert await good(context, "glob", pattern="**/") == "b/\nb/c/"
    assert await good(context, "glob", pattern="*.rs") == "No file matches `*.rs` in `.`."
    assert "There is no `nowhere`" in await bad(context, "glob", pattern="*", path="nowhere")
    assert "more than 8" in await bad(context, "glob", pattern="**/x/" * 9)


async def test_ignored_directories_are_searched_when_named(tmp_path: Path) -> None:
    fill(tmp_path, _DOT_gitignore="node_modules/\n", node_modules__a_DOT_js="needle", b_DOT_js="needle")
    context = context_in(tmp_path)
    assert await good(context, "glob", pattern="**/*.js") == "b.js"
    assert await good(context, "glob", pattern="node_modules/*.js") == "node_modules/a.js"
    assert await good(context, "grep", pattern="needle") == "b.js:1:needle"
    assert await good(context, "grep", pattern="needle", path="node_modules") == "node_modules/a.js:1:needle"


async def test_results_are_bounded(tmp_path: Path) -> None:
    for i in range(1005):
        (tmp_path / f"{i:04}.txt").write_text("hit\n")
    (tmp_path / "wide").write_text("\n".join("w" * 1000 + "match" + "w" * 1000 for _ in range(200)))
    context = context_in(tmp_path)
    lines = (await good(context, "glob", pattern="*.txt")).splitlines()
    assert len(lines) == 1001
    assert "the first 1,000 are shown" in lines[-1]
    lines = (await good(context, "grep", pattern="hit", limit=7)).splitlines()
    assert lines[:7] == [f"{i:04}.txt:1:hit" for i in range(7)]
    assert lines[7] == "[the first 7 are shown; raise limit, or narrow the search, to see others]"
    text = await good(context, "grep", pattern="match", path="wide", limit=1000)
    assert len(text) < 41_000
    assert "which is all that fits" in text
    assert re.fullmatch(r"wide:1:…w{190,200}matchw{190,200}…", text.splitlines()[0])


async def test_exactly_the_limit_is_not_called_more(tmp_path: Path) -> None:
    fill(tmp_path, a="x\nx\n")
    assert await good(context_in(tmp_path), "grep", pattern="x", limit=2) == "a:1:x\na:2:x"


async def test_grep_options(tmp_path: Path) -> None:
    fill(
        tmp_path,
        a_DOT_py="Error\nerror\n",
        src__b_DOT_py="error 2\n",
        src__c_DOT_min_DOT_py="error 3\n",
        d_DOT_txt="error 4\n",
    )
    context = context_in(tmp_path)
    assert await good(context, "grep", pattern="^error$") == "a.py:2:error"
    assert await good(context, "grep", pattern="^ERROR$", ignore_case=True) == "a.py:1:Error\na.py:2:error"
    assert await good(context, "grep", pattern="(?i)^ERROR$") == "a.py:1:Error\na.py:2:error"
    assert await good(context, "grep", pattern=r"error \d", glob="*.py") == "src/b.py:1:error 2\nsrc/c.min.py:1:error 3"
    assert (
        await good(context, "grep", pattern=r"error \d", glob="src/*.py")
        == "src/b.py:1:error 2\nsrc/c.min.py:1:error 3"
    )
    assert await good(context, "grep", pattern=r"error \d", glob="!*.min.py") == "d.txt:1:error 4\nsrc/b.py:1:error 2"
    assert await good(context, "grep", pattern="error", path="d.txt") == "d.txt:1:error 4"
    assert await good(context, "grep", pattern="nothing") == "No line matches in `.` (4 files looked at)."
    assert "not a valid regular expression" in await bad(context, "grep", pattern="(")
    assert "cannot be used" in await bad(context, "grep", pattern="x", glob="**/a/" * 9)


async def test_grep_reads_what_is_text(tmp_path: Path) -> None:
    (tmp_path / "16le").write_bytes(codecs.BOM_UTF16_LE + "große Nadel\r\n".encode("utf-16-le"))
    (tmp_path / "8bom").write_bytes(codecs.BOM_UTF8 + b"Nadel\n")
    (tmp_path / "bin").write_bytes(b"Nadel\0\n")
    (tmp_path / "latin").write_bytes(b"\xe9 Nadel\n")
    os.mkfifo(tmp_path / "pipe")
    text = await good(context_in(tmp_path), "grep", pattern="Nadel")
    assert text == "16le:1:große Nadel\n8bom:1:Nadel\nlatin:1:\ufffd Nadel"
    assert "is a binary file" in await bad(context_in(tmp_path), "grep", pattern="Nadel", path="bin")


async def test_a_large_binary_file_takes_no_time(tmp_path: Path) -> None:
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(64 << 30)
    (tmp_path / "text").write_text("needle\n")
    with anyio.fail_after(SECONDS / 2):
        assert await good(context_in(tmp_path), "grep", pattern="needle") == "text:1:needle"


async def test_a_pattern_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """Cancelled long before it would end itself; the process must be gone then."""
    fill(tmp_path, a="a" * 40 + "b\n")
    with anyio.fail_after(HARD_SECONDS / 2), anyio.move_on_after(1) as scope:
        await call(context_in(tmp_path), "grep", pattern="(a|a)*$")
    assert scope.cancelled_caught
    left = subprocess.run(["pgrep", "-f", "search_worker"], capture_output=True, text=True).stdout.split()
    assert not [pid for pid in left if f"{os.getpid()}" == parent(pid)]


def parent(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("def ", ["def "]),
        (r"\bfoo\w+bar", ["foo"]),
        ("ab*cde", ["cde"]),
        ("TODO|FIXME", ["TODO", "FIXME"]),
        ("(get|set)_value", ["_value"]),
        ("(?:abc)+x?", ["abc"]),
        ("(?:abc)*", None),
        ("[a-z]+", None),
        ("a|", None),
        ("(?i:abc)", None),
        (r"x(?=abc)", ["x"]),
        ("", None),
    ],
)
def test_texts_that_a_match_must_hold(pattern: str, texts: list[str] | None) -> None:
    assert literals.required(pattern) == texts
