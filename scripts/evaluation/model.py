"""The provider of the simulation: how it counts, what it caches, how fast it is, and when it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.messages import ImagePart, Message, ToolSpec
from sidecar.providers.errors import ProviderError
from sidecar.tokens import rough

IMAGE_TOKENS = 1_500
"""Of every image, whatever its bytes."""

PREFILL_PER_S, OUTPUT_PER_S, FIRST_BYTE_S = 15_000, 70, 0.6
"""Tokens a second that are read without a cache and written; seconds before the first one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one message is on the wire: its bytes, and its tokens as this provider counts them."""

    data: bytes
    tokens: int


class _Node:
    __slots__ = ("children", "used_at")

    def __init__(self, used_at: float) -> None:
        self.children: dict[bytes, _Node] = {}
        self.used_at = used_at


class PromptCache:
    """A request hits for the longest byte prefix that it shares with an earlier one, for `ttl_s` after its last use.

    A tree of messages: a path from the root is a request. Where a request leaves the tree in the middle of a message,
    the common bytes of that message count too. A list that was sent before and only grew since is walked from where it
    ended: its nodes learn of their use when somebody else comes by.
    """

    def __init__(self, ttl_s: float) -> None:
        self._root = _Node(0.0)
        self._ttl_s = ttl_s
        self._sent: Sequence[Piece] = ()
        self._path: list[_Node] = []
        self._hit = 0
        self._sent_at = 0.0

    def request(self, pieces: Sequence[Piece], now: float, *, uncached: int = 0) -> int:
        """Tokens that hit. All but the last `uncached` pieces are remembered."""
        if pieces is self._sent and now - self._sent_at <= self._ttl_s:
            path, hit = self._path, self._hit
        else:
            for node in self._path:
                node.used_at = max(node.used_at, self._sent_at)
            path, hit = [], 0
        hit = self._walk(pieces, path, hit, now)
        self._remember(pieces[len(path) : len(pieces) - uncached], path, now)
        if not uncached:
            self._sent, self._path, self._sent_at = pieces, path, now
            self._hit = sum([piece.tokens for piece in pieces])
        return hit

    def _walk(self, pieces: Sequence[Piece], path: list[_Node], hit: int, now: float) -> int:
        """Follows the tree from the end of `path`, which grows, as far as it goes."""
        node, oldest = path[-1] if path else self._root, now - self._ttl_s
        for piece in pieces[len(path) :]:
            child = node.children.get(piece.data)
            if child is None or child.used_at < oldest:
                return hit + self._partly(node, piece, oldest)
            child.used_at = now
            hit += piece.tokens
            node = child
            path.append(node)
        return hit

    def _remember(self, pieces: Sequence[Piece], path: list[_Node], now: float) -> None:
        node = path[-1] if path else self._root
        for piece in pieces:
            child = node.children[piece.data] = _Node(now)
            node = child
            path.append(node)

    def _partly(self, node: _Node, piece: Piece, oldest: float) -> int:
        live = (data for data, child in node.children.items() if child.used_at >= oldest)
        common = max((common_prefix(data, piece.data) for data in live), default=0)
        return piece.tokens * common // len(piece.data)


def common_prefix(a: bytes, b: bytes) -> int:
    """How many bytes two texts share from their start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request cost, in the provider's tokens, and how long its answer takes."""

    prompt: int
    cached: int
    output: int
    seconds: float


class Provider:
    """Counts `factor` tokens for one of the estimator's, and refuses what does not fit into its window."""

    def __init__(self, window: int, factor: float, ttl_s: float) -> None:
        self.window = window
        self._factor = factor
        self._cache = PromptCache(ttl_s)
        self._pieces: dict[int, tuple[Message, Piece]] = {}

    def piece(self, message: Message) -> Piece:
        """The bytes of a message without what stays with us (id, time, origin); made once per message object."""
        known = self._pieces.get(id(message))
        if known is None:
            tokens = max(1, round(message_tokens(message) * self._factor))
            known = self._pieces[id(message)] = (message, Piece(_wire(message), tokens))
        return known[1]

    def prefix(self, system: str, tools: tuple[ToolSpec, ...]) -> Piece:
        data = "\x00".join([system, *(f"{t.name}\x01{t.description}\x01{t.parameters}" for t in tools)]).encode()
        return Piece(data, round((rough.text_tokens(system) + tools_tokens(tools)) * self._factor))

    def text_tokens(self, text: str) -> int:
        return round(rough.text_tokens(text) * self._factor)

    def ask(self, pieces: Sequence[Piece], output: int, now: float, *, uncached: int = 0) -> Answer:
        """Raises an overflow that names the window when prompt and output do not fit into it."""
        prompt = sum([piece.tokens for piece in pieces])
        if prompt + output > self.window:
            raise ProviderError("overflow", f"maximum context length is {self.window}", status=400, window=self.window)
        cached = self._cache.request(pieces, now, uncached=uncached)
        seconds = FIRST_BYTE_S + (prompt - cached) / PREFILL_PER_S + output / OUTPUT_PER_S
        return Answer(prompt, cached, output, seconds)


def _wire(message: Message) -> bytes:
    parts = [message.role, message.tool_call_id or ""]
    for part in message.content:
        parts.append(f"<{part.media_type} {part.blob}>" if isinstance(part, ImagePart) else part.text)
    parts += [f"{c.id} {c.name} {c.arguments}" for c in message.tool_calls or ()]
    return "\x00".join(parts).encode()


def message_tokens(message: Message) -> int:
    """Estimated tokens of a message, as the daemon counts without a vocabulary."""
    tokens = rough.MESSAGE_OVERHEAD
    for part in message.content:
        tokens += IMAGE_TOKENS if isinstance(part, ImagePart) else rough.text_tokens(part.text)
    for call in message.tool_calls or ():
        tokens += rough.CALL_OVERHEAD + rough.text_tokens(call.name) + rough.text_tokens(call.arguments)
    return tokens


def tools_tokens(tools: tuple[ToolSpec, ...]) -> int:
    return sum(rough.text_tokens(f"{t.name}{t.description}{t.parameters}") for t in tools)


class Estimator:
    """The port of measuring: rough counts, no vocabulary."""

    generation = 1

    def text_tokens(self, text: str) -> int:
        return rough.text_tokens(text)

    def message_tokens(self, message: Message) -> int:
        return message_tokens(message)

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        return tools_tokens(tools)

    async def warm(self, messages: object) -> None:
        """Nothing is left to count."""
