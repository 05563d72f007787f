"""What the loop needs from a model provider. Ports and frozen values only.

The flow of one request: `Encoder.sync` (each message is serialised once) -> `Encoder.request` -> `Provider.stream`
-> events. An encoder belongs to one agent and one model; a provider is shared by all sessions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from protocol.messages import Message, ReasoningBlock, ToolCall, ToolSpec

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]

BlobReader = Callable[[str], "bytes | None"]
"""Raw bytes of a blob by its SHA-256 in hex; None if it is lost."""


class HasMessage(Protocol):
    @property
    def message(self) -> Message: ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the messages. `tools` are sorted by name; their schemas are sent as given."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefixHashes:
    """Short hex hashes of the bytes that are sent: of the system prompt, the tools, and both."""

    system: str
    tools: str
    prefix: str


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """One request, ready to send. `b"".join(chunks)` is the HTTP body.

    `message_count` counts the context's messages in it, without system prompt and suffix. `messages_bytes` and
    `messages_hash` (blake2b, 16 hex) are over the serialised context messages, cache marks left out: equal or longer
    from request to request until the context is rewritten.
    """

    chunks: tuple[bytes, ...]
    message_count: int
    messages_bytes: int
    messages_hash: str

    @property
    def size(self) -> int:
        return sum(len(c) for c in self.chunks)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


class Encoder(Protocol):
    """Serialises one agent's conversation for one model; every message once.

    It repairs nothing but form: a blank assistant message or an empty text part is left out, reasoning is replayed
    only where the dialect and the message's `model` (`provider/model`) say so, a lost blob becomes a text pointer, a
    call without a result gets one that says so, a result without its call becomes text of the user.
    """

    def sync(self, prefix: Prefix, entries: Sequence[HasMessage], rewrites: int) -> PrefixHashes:
        """Takes in what is new. While `rewrites` is the same, only entries past those already seen are looked at;
        when it differs, all are, and messages that are the same object keep their bytes. Costs O(new messages)."""
        ...

    def request(self, *, max_output_tokens: int | None, suffix: Message | None = None) -> EncodedRequest:
        """The request for what was taken in. `suffix` goes last and is marked for no caching; without it removed,
        the bytes of the messages are those of the next step's request."""
        ...


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request as the provider counts them. `prompt_tokens` includes the cached ones."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a whole stream.

    `tool_calls` have ids and arguments as the model gave them: ids may be empty or repeat, arguments may be no JSON.
    With `length` the calls are not to be run. `usage` is None if the provider told none.
    """

    reason: FinishReason
    tool_calls: tuple[ToolCall, ...]
    usage: TokenUsage | None
    reasoning_blocks: tuple[ReasoningBlock, ...] = ()


StreamEvent = TextChunk | ReasoningChunk | Finished


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_retries` after the first attempt; waits are `base_s * 2**n` with jitter, at most `max_wait_s`."""

    max_retries: int = 5
    base_s: float = 0.5
    max_wait_s: float = 60.0


class Provider(Protocol):
    """A place that models are asked at. Raises only `ProviderError` (see `errors`), and cancellation."""

    @property
    def name(self) -> str: ...

    @property
    def retry(self) -> RetryPolicy: ...

    def encoder(self, model: str, blobs: BlobReader) -> Encoder: ...

    def stream(self, model: str, request: EncodedRequest) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        """Sends the request. The iterator yields chunks and then exactly one `Finished`, or raises `ProviderError`:
        a stream that is cut before its finish reason never yields `Finished`. Leaving the context closes the
        response at once."""
        ...


WindowOrigin = Literal["config", "table", "provider", "fallback"]

FALLBACK_WINDOW = 32_768
"""Window of a model that nothing is known of."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model. Prices are per million tokens; None where unknown."""

    window: int = FALLBACK_WINDOW
    window_source: WindowOrigin = "fallback"
    max_output: int | None = None
    input_price: float | None = None
    cached_price: float | None = None
    output_price: float | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """A model that can be asked: `reference` is `provider/model`, `model` the provider's own name for it."""

    reference: str
    provider: Provider
    model: str
    info: ModelInfo
