"""What is made is private, whatever the process was started with."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from record_store import files

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no modes")


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o177, 0o277, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_what_is_made_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    files.make_directory(folder)
    files.write_atomic(folder / "atomic", b"x", "point")
    os.close(files.open_file(folder / "opened", os.O_RDWR | os.O_CREAT))
    assert [mode(folder.parent), mode(folder)] == [0o700, 0o700]
    assert [mode(folder / "atomic"), mode(folder / "opened")] == [0o600, 0o600]


@pytest.mark.usefixtures("umask")
def test_a_file_system_without_modes_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    files.make_directory(tmp_path / "a")
    os.close(files.open_file(tmp_path / "opened", os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "a").is_dir()
