"""Nothing that the transport raises is unmapped, and none of its words get through."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import anyio
import httpx
import pytest

from sidecar.providers.errors import ProviderError, from_transport
from sidecar.providers.http import TRANSPORT_ERRORS


def leaves(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from leaves(sub)


HTTPX = sorted(
    {k for root in (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, httpx.CookieConflict) for k in leaves(root)},
    key=lambda k: k.__name__,
)
REJECTED = {"UnsupportedProtocol", "LocalProtocolError", "TooManyRedirects", "InvalidURL", "CookieConflict"}


@pytest.mark.parametrize("kind", HTTPX, ids=lambda k: k.__name__)
def test_every_error_of_httpx_has_its_kind(kind: type[Exception]) -> None:
    raised = kind.__new__(kind)
    raised.args = ("secret words of the library",)
    assert isinstance(raised, TRANSPORT_ERRORS)
    found = from_transport("here", raised)
    assert found.kind == ("rejected" if kind.__name__ in REJECTED else "unavailable")
    assert "secret" not in str(found)
    assert found.status is None


@pytest.mark.parametrize(
    "raised",
    [OSError(9, "x"), ssl.SSLError("x"), ConnectionResetError(), anyio.EndOfStream(), anyio.BrokenResourceError()],
)
def test_so_have_those_that_leak_through(raised: Exception) -> None:
    assert isinstance(raised, TRANSPORT_ERRORS)
    assert from_transport("here", raised).kind == "unavailable"


def test_the_reason_word_of_every_kind_is_in_the_table() -> None:
    from protocol.errors import CODES

    for kind in ("auth", "rate_limited", "unavailable", "rejected", "overflow", "refused"):
        assert ProviderError(kind, "m").reason in CODES  # type: ignore[arg-type]
