"""When to try again, and how long to wait. Pure: the random number and the time are handed in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from sidecar.providers.errors import ProviderError
from sidecar.providers.port import RetryPolicy

MAX_RETRY_AFTER_S = 300.0
"""A provider that asks for a longer wait than this is not waited for: the turn fails and says so."""

_JITTER = 0.5


def next_delay(error: ProviderError, retries_done: int, policy: RetryPolicy, random: float) -> float | None:
    """Seconds to wait before the next attempt; None when there is to be none.

    `retries_done` counts from 0; `random` is in [0, 1). Without a word of the provider's the wait is
    `base_s * 2**retries_done`, spread by a quarter to both sides so that many sessions do not come back together,
    and at most `max_wait_s`. A wait that the provider asked for is kept to the full, with a little spread on top.
    """
    if not error.retryable or retries_done >= policy.max_retries:
        return None
    if error.retry_after_s is not None:
        if error.retry_after_s > MAX_RETRY_AFTER_S:
            return None
        return error.retry_after_s + random * min(policy.base_s, 0.1 * error.retry_after_s + 0.05)
    backoff = policy.base_s * 2.0 ** min(retries_done, 30)
    return float(min(policy.max_wait_s, backoff * (1 - _JITTER / 2 + _JITTER * random)))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the answer's headers ask to wait, from `now` (seconds since 1970); None if they ask nothing.

    Reads `retry-after-ms`, then `retry-after` as seconds (fractions too) or as an HTTP date. Header names are lower
    case. A date in the past is 0; what cannot be read asks nothing.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * scale
        except ValueError:
            seconds = _until(text, now)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _until(date: str, now: float) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError, TypeError):
        return math.nan
