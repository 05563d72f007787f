"""Raw token counts of texts, messages and tools: cached, bounded on any input, off the event loop where it is much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar, checkpoint

from protocol.messages import ImagePart, Message, TextPart, ToolSpec
from sidecar.tokens import counting, images, rough
from sidecar.tokens.port import BlobHead
from sidecar.tokens.vocabulary import Encode, Vocabulary

INLINE_CHARS = 32_768
"""Text that is counted at once on the caller's thread: 2 to 6 ms of tiktoken. More waits for a thread."""

CACHED_TEXTS = 65_536
"""Counts that are kept, of all sessions together: about 8 MB."""

CACHED_SAMPLES = 1_024

_BATCH = 512
"""Messages looked through between two chances for others to run."""

_limiter: RunVar[CapacityLimiter] = RunVar("tokens.limiter")


class TextCounter:
    """Counts of texts, shared by all sessions of a process. Rough until the vocabulary is loaded, exact after.

    A count is kept under the hash of its text, so that an edited message is another key, a text that two sessions
    share is counted once, and the cache keeps no text alive.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._generation = vocabulary.generation
        self._counts = counting.CountCache(CACHED_TEXTS)
        self._samples = counting.CountCache(CACHED_SAMPLES)

    def tokens(self, text: str) -> int:
        """Never more than a few milliseconds: a text over `INLINE_CHARS` that was not warmed is sampled."""
        if not text:
            return 0
        encode = self._encode()
        if encode is None:
            return self._kept(self._counts, hash(text), lambda: rough.text_tokens(text))
        known = self._counts.get(hash(text))
        if known is not None:
            return known
        if len(text) > INLINE_CHARS:
            return self._kept(self._samples, hash(text), lambda: counting.sample(encode, text))
        return self._kept(self._counts, hash(text), lambda: counting.count(encode, text))

    def image(self, key: str, read: BlobHead) -> int:
        """Tokens of an image; `read(key)` gives its first bytes and is called once while the answer is kept."""
        return self._kept(self._counts, hash(("image", key)), lambda: images.image_tokens(read(key) or b""))

    async def warm(self, groups: Iterable[Iterable[str]]) -> None:
        """Counts the texts of all groups (one group a message) exactly, in a thread if they are much."""
        encode = self._encode()
        if encode is None:
            return
        missing: dict[int, str] = {}
        chars = 0
        for n, group in enumerate(groups):
            if n % _BATCH == _BATCH - 1:
                await checkpoint()
            for text in group:
                if self._counts.get(hash(text)) is None and hash(text) not in missing:
                    missing[hash(text)] = text
                    chars += len(text)
        if chars <= INLINE_CHARS:
            return  # the plain calls are quick enough
        counts = await to_thread.run_sync(
            lambda: [counting.count(encode, text) for text in missing.values()],
            abandon_on_cancel=True,
            limiter=_one_thread(),
        )
        for key, tokens in zip(missing, counts, strict=True):
            self._counts.put(key, tokens)

    def _encode(self) -> Encode | None:
        """The encoder if it is loaded; asks for it, and forgets what was counted without it."""
        vocabulary = self.vocabulary
        if self._generation != vocabulary.generation:
            self._generation = vocabulary.generation
            self._counts.clear()
        if vocabulary.encode is None:
            vocabulary.start()
        return vocabulary.encode

    @staticmethod
    def _kept(cache: counting.CountCache, key: int, make: Callable[[], int]) -> int:
        known = cache.get(key)
        if known is None:
            known = make()
            cache.put(key, known)
        return known


def _one_thread() -> CapacityLimiter:
    """Counting takes one core at most, however many sessions ask."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(1)
        _limiter.set(limiter)
        return limiter


class BpeEstimator:
    """The `Estimator` over a `TextCounter`; one per session where images are to be read from its blobs."""

    def __init__(self, counter: TextCounter, blob_head: BlobHead | None = None) -> None:
        self._counter = counter
        self._blob_head = blob_head
        self._vocabulary = counter.vocabulary

    @property
    def generation(self) -> int:
        return self._vocabulary.generation

    def text_tokens(self, text: str) -> int:
        return self._counter.tokens(text)

    def message_tokens(self, message: Message) -> int:
        total = rough.MESSAGE_OVERHEAD
        for part in message.content:
            total += self._counter.tokens(part.text) if isinstance(part, TextPart) else self._image(part)
        if message.reasoning is not None and _replayed(message):
            total += self._counter.tokens(message.reasoning)
        for call in message.tool_calls or ():
            total += rough.CALL_OVERHEAD + self._counter.tokens(call.name) + self._counter.tokens(call.arguments)
        return total

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        return sum(self._counter.tokens(_tool_json(tool)) for tool in tools)

    async def warm(self, messages: Iterable[Message]) -> None:
        await self._counter.warm(map(_texts, messages))

    def _image(self, part: ImagePart) -> int:
        if part.data is not None:
            return self._counter.image(part.data, images.head_of_base64)
        if part.blob is not None and self._blob_head is not None:
            return self._counter.image(part.blob, self._blob_head)
        return rough.UNKNOWN_IMAGE


def _replayed(message: Message) -> bool:
    """Signed reasoning goes back to its model; unsigned mostly does not (a model's factor learns where it does)."""
    return any(block.signature is not None for block in message.reasoning_blocks or ())


def _texts(message: Message) -> Iterator[str]:
    for part in message.content:
        if isinstance(part, TextPart):
            yield part.text
    if message.reasoning is not None and _replayed(message):
        yield message.reasoning
    for call in message.tool_calls or ():
        yield call.name
        yield call.arguments


def _tool_json(tool: ToolSpec) -> str:
    shown = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return msgspec.json.encode(shown).decode()
