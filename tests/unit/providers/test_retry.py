"""Which failures are tried again, and after how long."""

from __future__ import annotations

import pytest

from sidecar.providers.errors import ErrorKind, ProviderError
from sidecar.providers.port import RetryPolicy
from sidecar.providers.retry import MAX_RETRY_AFTER_S, next_delay, retry_after

POLICY = RetryPolicy(max_retries=5, base_s=0.5, max_wait_s=60)
NOW = 1_800_000_000.0


def failed(kind: ErrorKind = "unavailable", wait: float | None = None) -> ProviderError:
    return ProviderError(kind, "no", retry_after_s=wait)


@pytest.mark.parametrize("kind", ["auth", "rejected", "overflow", "refused"])
def test_these_are_never_tried_again(kind: ErrorKind) -> None:
    assert next_delay(failed(kind), 0, POLICY, 0.5) is None


@pytest.mark.parametrize("kind", ["rate_limited", "unavailable"])
def test_these_are_up_to_the_limit(kind: ErrorKind) -> None:
    waits = [next_delay(failed(kind), n, POLICY, 0.5) for n in range(6)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, None]


def test_the_spread_is_a_quarter_to_both_sides_and_every_wait_is_longer_than_the_one_before() -> None:
    assert next_delay(failed(), 0, POLICY, 0.0) == pytest.approx(0.375)
    assert next_delay(failed(), 0, POLICY, 0.999999) == pytest.approx(0.625, rel=1e-3)
    for n in range(4):
        longest, shortest = next_delay(failed(), n, POLICY, 0.999999), next_delay(failed(), n + 1, POLICY, 0.0)
        assert longest is not None
        assert shortest is not None
        assert shortest > 1.1 * longest


def test_a_wait_is_bounded_whatever_the_count() -> None:
    assert next_delay(failed(), 5000, RetryPolicy(10_000, 0.5, 60.0), 0.9) == 60.0


@pytest.mark.parametrize("wait", [0.0, 0.2, 7.0, MAX_RETRY_AFTER_S])
def test_what_the_provider_asked_for_is_kept_to_the_full(wait: float) -> None:
    for random in (0.0, 0.999):
        delay = next_delay(failed("rate_limited", wait), 0, POLICY, random)
        assert delay is not None
        assert wait <= delay <= wait + 0.5


def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    assert next_delay(failed("rate_limited", MAX_RETRY_AFTER_S + 1), 0, POLICY, 0.5) is None


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after": " 1.5 "}, 1.5), ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None), ({"retry-after": ""}, None), ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None), ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 99 Foo 2027 07:00:00 GMT"}, None),
    ],
)  # fmt: skip
def test_reading_the_header(headers: dict[str, str], wanted: float | None) -> None:
    assert retry_after(headers, NOW) == wanted
