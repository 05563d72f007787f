"""Fixtures of the tests that share one daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.one_daemon import DIALECTS, OneDaemon, one_daemon


@pytest.fixture(scope="module")
def daemon() -> Iterator[OneDaemon]:
    """One for all tests of a module: each talks to a model of its own."""
    with one_daemon() as running:
        yield running


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The test runs once in each dialect."""
    return str(request.param)
