"""What the scripts' environments are made with."""

from __future__ import annotations

from pathlib import Path

from scripts.environment import environment


def test_a_home_that_cannot_be_written_costs_pips_cache_and_nothing_else(tmp_path: Path) -> None:
    gone = {"HOME": str(tmp_path / "gone"), "PATH": "/bin"}
    assert environment(gone) == {**gone, "PIP_NO_CACHE_DIR": "1"}
    named = {**gone, "PIP_CACHE_DIR": str(tmp_path)}
    assert environment(named) == named
    usual = {"HOME": str(tmp_path), "PATH": "/bin"}
    assert environment({**usual, "PYTHONPATH": "/x", "PIP_USER": "1"}) == usual
