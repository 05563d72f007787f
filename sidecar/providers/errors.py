"""The one error of this package, and what its kinds mean.

    ProviderError
      kind = "auth"            401, 403: never retried
             "rate_limited"    429: retried
             "unavailable"     408, 409, 5xx, 529, connection, cut or stalled stream, unreadable answer: retried
             "rejected"        400, 404, 413, 422: never retried
             "overflow"        the request was too large for the model: compaction is the answer
             "refused"         a content filter: the turn ends as refused

`message` is for people: no keys, no headers; the provider's own words are shortened and cleaned.
"""

from __future__ import annotations

from typing import Literal

ErrorKind = Literal["auth", "rate_limited", "unavailable", "rejected", "overflow", "refused"]


class ProviderError(Exception):
    """A request that failed.

    `status` is the HTTP status if there was one; `retry_after_s` what the provider asked for; `window` the maximum
    that an overflow named; `names_image` whether a rejection blames an image; `too_large` a plain 413 without words.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        window: int | None = None,
        names_image: bool = False,
        too_large: bool = False,
        code: str | None = None,
    ) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.window = window
        self.names_image = names_image
        self.too_large = too_large
        self.code = code

    @property
    def retryable(self) -> bool:
        return self.kind in ("rate_limited", "unavailable")

    @property
    def reason(self) -> str:
        """The reason word of `protocol.errors`."""
        return {
            "auth": "provider_auth",
            "rate_limited": "provider_rate_limited",
            "unavailable": "provider_unavailable",
            "rejected": "provider_rejected",
            "overflow": "context_overflow",
            "refused": "provider_rejected",
        }[self.kind]
