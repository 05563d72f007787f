"""Where the user's files are, also for a user that has no home: a bare container, an identity made for one service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sidecar.settings import config_file, home_directory


@pytest.mark.skipif(sys.platform == "win32", reason="there is no list of users")
def test_a_user_without_a_home_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert not config_file({}).exists()
    assert not home_directory({}).exists()
    assert home_directory({"SIDECAR_HOME": "/data"}) == Path("/data")
    assert home_directory({"SIDECAR_HOME": "~no-such-user-here/data"}).name == "data"
