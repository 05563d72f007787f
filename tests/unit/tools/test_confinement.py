"""Every way out of the working folders that we could think of."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused
from tests.support.tools import bad, call, context_in, good, text_of


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("the secret")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "plain.txt").write_text("plain")
    return folder


def ways_out(work: Path, outside: Path) -> list[str]:
    (work / "link").symlink_to(outside / "secret.txt")
    (work / "folder").symlink_to(outside)
    (work / "up").symlink_to("..")
    (work / "chain").symlink_to("folder")
    (work / "sub").mkdir()
    return [
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        str(outside / "secret.txt"),
        "link",
        "folder/secret.txt",
        "chain/secret.txt",
        "up/outside/secret.txt",
        f"{work}/../outside/secret.txt",
        "/proc/self/cwd/../outside/secret.txt",
        "/etc/passwd",
        "~/secret.txt",
        "~root/secret.txt",
        f"{work}-neighbour/secret.txt",
    ]


async def test_no_path_leads_out(work: Path, outside: Path) -> None:
    Path(f"{work}-neighbour").mkdir()
    (Path(f"{work}-neighbour") / "secret.txt").write_text("the secret")
    context = context_in(work)
    for path in ways_out(work, outside):
        for name, arguments in (
            ("read_file", {}),
            ("write_file", {"content": "x"}),
            ("edit_file", {"old_text": "the", "new_text": "no"}),
            ("grep", {"pattern": "secret"}),
            ("list_dir", {}),
            ("glob", {"pattern": "*"}),
        ):
            outcome = await call(context, name, path=path, **arguments)
            assert outcome.is_error, (name, path)
            assert "the secret" not in text_of(outcome)
            assert "outside the working folders" in text_of(outcome)
    for pattern in ("../**", "../outside/*", f"{outside}/*", "sub/../../outside/*", "*/../*"):
        assert await bad(context, "glob", pattern=pattern)
    assert "outside the working folders" in await bad(context, "run_command", command="pwd", cwd="..")
    assert (outside / "secret.txt").read_text() == "the secret"
    assert sorted(p.name for p in outside.iterdir()) == ["secret.txt"]


async def test_links_that_stay_inside_are_followed(work: Path) -> None:
    (work / "real").mkdir()
    (work / "real" / "a.txt").write_text("one")
    (work / "link").symlink_to("real")
    (work / "file").symlink_to("link/a.txt")
    context = context_in(work)
    assert await good(context, "read_file", path="link/a.txt") == "one"
    await good(context, "write_file", path="file", content="two")
    assert (work / "file").is_symlink()
    assert (work / "real" / "a.txt").read_text() == "two"


async def test_further_roots_may_be_used(work: Path, outside: Path) -> None:
    context = context_in(work, roots=(outside,))
    assert await good(context, "read_file", path=str(outside / "secret.txt")) == "the secret"
    await good(context, "write_file", path="../outside/new.txt", content="x")
    assert (outside / "new.txt").read_text() == "x"


async def test_search_does_not_follow_links_out(work: Path, outside: Path) -> None:
    (work / "folder").symlink_to(outside)
    (work / "link.txt").symlink_to(outside / "secret.txt")
    context = context_in(work)
    assert "the secret" not in await good(context, "grep", pattern="secret")
    assert await good(context, "glob", pattern="**/*.txt") == "link.txt\nplain.txt"


@pytest.mark.parametrize("path", ["a\0b", "\0", "", "   ", "plain.txt\0.png"])
async def test_paths_that_are_none(work: Path, path: str) -> None:
    assert await bad(context_in(work), "read_file", path=path)


async def test_what_is_no_file_is_refused_with_the_reason(work: Path) -> None:
    os.mkfifo(work / "fifo")
    (work / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
        context = context_in(work, roots=(Path("/dev"),))
        for path, word in (
            ("fifo", "a fifo"),
            ("socket", "a socket"),
            ("folder", "a directory"),
            ("/dev/zero", "a device"),
        ):
            assert word in await bad(context, "read_file", path=path)
            assert word in await bad(context, "write_file", path=path, content="x")
            assert word in await bad(context, "edit_file", path=path, old_text="a", new_text="b")
            if word != "a directory":
                assert word in await bad(context, "grep", pattern="needle", path=path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
async def test_a_link_swapped_in_under_the_reader_never_leads_out(work: Path, outside: Path) -> None:
    """Another process swaps a directory for a link to the outside and back, as fast as it can."""
    (work / "dir").mkdir()
    (work / "dir" / "secret.txt").write_text("harmless")
    (work / "trap").symlink_to(outside)
    # RENAME_EXCHANGE of the two, for ever
    swap = (
        "import ctypes, sys; f = ctypes.CDLL(None).renameat2; a, b = map(str.encode, sys.argv[1:])\n"
        "while True: f(-100, a, -100, b, 2)"
    )
    swapper = subprocess.Popen([sys.executable, "-c", swap, str(work / "dir"), str(work / "trap")])
    try:
        context = context_in(work)
        seen = set()
        for _ in range(300):
            seen.add(text_of(await call(context, "read_file", path="dir/secret.txt")))
            await call(context, "write_file", path="dir/new.txt", content="written")
    finally:
        swapper.kill()
        swapper.wait()
    assert not any("the secret" in text for text in seen)
    assert [p.name for p in outside.iterdir()] == ["secret.txt"]


def test_opening_goes_by_what_was_resolved(work: Path, outside: Path) -> None:
    """Resolved, then swapped, then opened: the moment that a race would have to hit."""
    place = Confinement.of(work)
    (work / "dir").mkdir()
    (work / "dir" / "secret.txt").write_text("harmless")
    real = place.resolve("dir/secret.txt")
    (work / "dir").rename(work / "aside")
    (work / "dir").symlink_to(outside)
    with pytest.raises(Refused, match="symbolic link"), place.file(real):
        pass
    with pytest.raises(Refused, match="symbolic link"), place.directory(str(work / "dir"), create=True):
        pass
    file = place.resolve("plain.txt")
    (work / "plain.txt").unlink()
    (work / "plain.txt").symlink_to(outside / "secret.txt")
    with pytest.raises(Refused, match="symbolic link"), place.file(file):
        pass


def test_names_are_shown_relative_and_on_one_line(work: Path) -> None:
    place = Confinement.of(work, ["/other"])
    assert place.shown(str(work)) == "."
    assert place.shown(f"{work}/a/b") == "a/b"
    assert place.shown("/other/x") == "/other/x"
    assert place.shown(f"{work}/a\nb\udcff") == "a\\x0ab\\xff"


async def test_a_loop_of_links_is_an_error(work: Path) -> None:
    (work / "a").symlink_to("b")
    (work / "b").symlink_to("a")
    (work / "c").symlink_to("c")
    for path in ("a", "c"):
        assert "a loop of symbolic links" in await bad(context_in(work), "read_file", path=path)
        assert "a loop of symbolic links" in await bad(context_in(work), "write_file", path=path, content="x")
    assert "a loop of symbolic links" in await bad(context_in(work), "write_file", path="c/inner", content="x")
