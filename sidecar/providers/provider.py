"""A provider behind HTTP: one endpoint, one dialect. What differs between the dialects is a row of `DIALECTS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from protocol.version import VERSION
from sidecar.providers.anthropic import MessagesEncoder
from sidecar.providers.anthropic_stream import MessagesDecoder
from sidecar.providers.catalog import MAX_LIST_BYTES, ListedModel, read_models
from sidecar.providers.failures import Judge
from sidecar.providers.http import Endpoint, HttpPool, exchange, fetch_json
from sidecar.providers.openai import ChatEncoder
from sidecar.providers.openai_stream import ChatDecoder
from sidecar.providers.port import BlobReader, EncodedRequest, Encoder, RetryPolicy, StreamEvent
from sidecar.providers.quirks import MessagesQuirks, Quirks
from sidecar.providers.rows import check_headers, secrets_in
from sidecar.providers.stream import StreamDecoder
from sidecar.settings import ProviderSettings

HttpDialect = Literal["openai", "anthropic"]

ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True)
class Dialect:
    """`path` and `models` follow the base URL, less what it ends in already."""

    path: str
    models: str
    decoder: Callable[[Judge], StreamDecoder]


DIALECTS: Mapping[HttpDialect, Dialect] = {
    "openai": Dialect("/chat/completions", "/models", ChatDecoder),
    "anthropic": Dialect("/v1/messages", "/v1/models?limit=1000", MessagesDecoder),
}


class HttpProvider:
    """See `port.Provider`. Shared by all sessions with the same settings; holds no connection of its own.

    `max_output` gives a model's own output limit, for the dialect that has to name one in every request.
    """

    def __init__(
        self,
        name: str,
        dialect: HttpDialect,
        base_url: str,
        api_key: str | None,
        settings: ProviderSettings,
        quirks: Quirks,
        pool: HttpPool,
        max_output: Callable[[str], int | None],
    ) -> None:
        self._name = name
        self._dialect = DIALECTS[dialect]
        self._quirks = quirks
        self._pool = pool
        self._max_output = max_output
        self._retry = RetryPolicy(settings.max_retries, settings.retry_base_s)
        headers = _headers(name, dialect, api_key, settings.headers, quirks)
        judge = Judge(name, [*_secrets(api_key, headers), *secrets_in(base_url)])
        url = join_url(base_url, self._dialect.path)
        timeouts = (settings.connect_timeout_s, settings.idle_timeout_s)
        self._endpoint = Endpoint(name, url, headers, judge, *timeouts)
        self._models_url = join_url(base_url, self._dialect.models)

    @property
    def name(self) -> str:
        return self._name

    @property
    def retry(self) -> RetryPolicy:
        return self._retry

    def encoder(self, model: str, blobs: BlobReader) -> Encoder:
        reference = f"{self._name}/{model}"
        if isinstance(self._quirks, MessagesQuirks):
            return MessagesEncoder(reference, model, self._quirks, blobs, self._max_output(reference))
        return ChatEncoder(reference, model, self._quirks, blobs)

    def stream(self, model: str, request: EncodedRequest) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        return exchange(self._pool, self._endpoint, request, self._dialect.decoder(self._endpoint.judge))

    async def list_models(self) -> tuple[ListedModel, ...]:
        """What the provider says it has. Raises `ProviderError`."""
        body = await fetch_json(self._pool, self._endpoint, self._models_url, MAX_LIST_BYTES)
        return read_models(body)


def join_url(base_url: str, path: str) -> str:
    """The base URL with the path behind it; a query of either is kept.

    What both have is not doubled: a base that ends in `/v1` takes `/v1/messages`, and one that ends in the whole
    request path takes it and the list's path too.
    """
    parts = urlsplit(base_url)
    path, _, query = path.partition("?")
    base = parts.path.rstrip("/")
    for ending in (d.path for d in DIALECTS.values()):
        if base.endswith(ending):
            base = base.removesuffix(ending) + ("/v1" if ending.startswith("/v1") else "")
    if base.endswith("/v1") and path.startswith("/v1/"):
        path = path.removeprefix("/v1")
    query = "&".join(q for q in (parts.query, query) if q)
    return urlunsplit((parts.scheme, parts.netloc, base + path, query, ""))


def _headers(
    name: str, dialect: HttpDialect, api_key: str | None, configured: Mapping[str, str], quirks: Quirks
) -> tuple[tuple[str, str], ...]:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
        "user-agent": f"llm-sidecar/{VERSION}",
    }
    if dialect == "anthropic":
        headers["anthropic-version"] = ANTHROPIC_VERSION
    if api_key:
        if quirks.auth == "bearer":
            headers["authorization"] = f"Bearer {api_key}"
        else:
            headers[quirks.auth] = api_key
    check_headers(name, configured)
    headers |= {key.lower(): value for key, value in configured.items()}
    return tuple(headers.items())


_PUBLIC_HEADERS = frozenset({"content-type", "accept", "accept-encoding", "user-agent", "anthropic-version"})


def _secrets(api_key: str | None, headers: tuple[tuple[str, str], ...]) -> list[str]:
    """Whatever must not come back in a provider's words: the key, and the values of all other headers."""
    found = [api_key] if api_key else []
    for key, value in headers:
        if key not in _PUBLIC_HEADERS:
            found += [value, *value.split()]
    return [s for s in found if s.lower() not in ("bearer", "basic")]
