"""The one error of this package, and what its kinds mean.

    ProviderError
      kind = "auth"            401, 403: never retried
             "rate_limited"    429: retried
             "unavailable"     408, 409, 5xx, 529, connection, cut or stalled stream, unreadable answer: retried
             "rejected"        400, 404, 413, 422: never retried
             "overflow"        the request was too large for the model: compaction is the answer
             "refused"         a content filter: the turn ends as refused

`message` is for people: no keys, no headers; the provider's own words are shortened and cleaned.
What an answer's status and body mean is read in `failures`; what the transport raises becomes a `ProviderError` here:

    httpx.HTTPError, StreamError      a connection that fails, is cut, stalls or speaks no HTTP   unavailable
      ConnectTimeout, PoolTimeout     no connection in time                                       unavailable
      ReadTimeout, WriteTimeout       nothing moved for `idle_timeout_s`                          unavailable
      UnsupportedProtocol             the address is no http(s) address                           rejected
      LocalProtocolError              a request that cannot be sent (a bad header)                rejected
      TooManyRedirects                an address that leads elsewhere                             rejected
    httpx.InvalidURL, CookieConflict                                                              rejected
    OSError, ssl.SSLError, anyio's resource errors (they leak through on some failures)           unavailable
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio

if TYPE_CHECKING:
    from sidecar.providers.port import TokenUsage

ErrorKind = Literal["auth", "rate_limited", "unavailable", "rejected", "overflow", "refused"]


class ProviderError(Exception):
    """A request that failed.

    `status` is the HTTP status if there was one; `retry_after_s` what the provider asked for; `window` the maximum
    that an overflow named; `names_image` whether a rejection blames an image; `too_large` a plain 413 without words;
    `usage` what an answer that failed on its way had told of its cost: it is paid for all the same.
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
        self.usage: TokenUsage | None = None

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


LEAKED_ERRORS = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""What the transport raises beside its own errors when a connection dies at a bad moment."""


def from_transport(name: str, error: Exception) -> ProviderError:
    """The conversion of everything that httpx raises; `name` is the provider's. No word of `error` is repeated."""
    import httpx

    match error:
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return ProviderError("rejected", f"{name}: base_url is not an http or https address")
        case httpx.LocalProtocolError() | httpx.CookieConflict():
            return ProviderError("rejected", f"{name}: the request cannot be sent; check the configured headers")
        case httpx.TooManyRedirects():
            return ProviderError("rejected", f"{name}: the address leads elsewhere; check base_url")
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return ProviderError("unavailable", f"{name}: no connection in time")
        case httpx.ReadTimeout() | httpx.WriteTimeout():
            return ProviderError("unavailable", f"{name}: the connection stalled")
        case httpx.ProxyError():
            return ProviderError("unavailable", f"{name}: the proxy does not let the request through")
        case httpx.ConnectError():
            return ProviderError("unavailable", f"{name}: cannot connect")
        case httpx.DecodingError():
            return ProviderError("unavailable", f"{name}: the answer is compressed and damaged")
        case httpx.RemoteProtocolError():
            return ProviderError("unavailable", f"{name}: the connection was cut or spoke no HTTP")
        case _:
            return ProviderError("unavailable", f"{name}: the connection broke")
