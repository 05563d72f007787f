"""Simulated time, the prompt cache, and when the provider refuses."""

from __future__ import annotations

import random

import anyio
import pytest

from protocol.messages import ImagePart, Message, TextPart, ToolCall
from scripts.evaluation import simtime
from scripts.evaluation.model import Piece, PromptCache, Provider, common_prefix, message_tokens
from sidecar.providers.errors import ProviderError


def test_time_jumps_and_keeps_its_order() -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        seen.append((name, anyio.current_time()))

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(sleeper, "day", 86_400.0)
            group.start_soon(sleeper, "hour", 3_600.0)
        return anyio.current_time()

    assert simtime.run(main) == pytest.approx(86_400.0)
    assert [name for name, _ in seen] == ["hour", "day"]
    assert [at for _, at in seen] == pytest.approx([3_600.0, 86_400.0])


def test_waiting_for_nothing_is_an_error() -> None:
    async def main() -> None:
        await anyio.Event().wait()

    with pytest.raises(simtime.Deadlock):
        simtime.run(main)


def pieces(*texts: str) -> list[Piece]:
    return [Piece(text.encode(), len(text)) for text in texts]


def test_a_request_hits_for_the_longest_prefix_of_an_earlier_one() -> None:
    cache = PromptCache(ttl_s=300)
    assert cache.request(pieces("system", "one", "two"), 0) == 0
    assert cache.request(pieces("system", "one", "two", "three"), 1) == 12
    assert cache.request(pieces("system", "one", "twelve"), 2) == 11, "half a message counts by its bytes"
    assert cache.request(pieces("system", "one", "two", "three", "four"), 3) == 17
    assert cache.request(pieces("other"), 4) == 0


def test_what_nobody_used_for_long_is_gone() -> None:
    cache = PromptCache(ttl_s=300)
    cache.request(pieces("system", "one"), 0)
    assert cache.request(pieces("system", "two"), 200) == 6
    assert cache.request(pieces("system", "one"), 301) == 6, "the prefix was used again, the rest was not"
    assert cache.request(pieces("system", "one"), 700) == 0


def test_an_instruction_is_not_kept() -> None:
    cache = PromptCache(ttl_s=300)
    assert cache.request(pieces("system", "one", "summarise"), 0, uncached=1) == 0
    assert cache.request(pieces("system", "one", "summarise", "more"), 1) == 9


class Plain:
    """The same cache without a tree: every prefix of every request, and when it was used last."""

    def __init__(self, ttl_s: float) -> None:
        self._used: dict[tuple[bytes, ...], float] = {}
        self._ttl_s = ttl_s

    def request(self, sent: list[Piece], now: float, *, uncached: int = 0) -> int:
        live = {prefix for prefix, at in self._used.items() if now - at <= self._ttl_s}
        data = tuple(piece.data for piece in sent)
        count = next((n for n in range(len(data)) if data[: n + 1] not in live), len(data))
        hit = sum(piece.tokens for piece in sent[:count])
        if count < len(data):
            others = [prefix[-1] for prefix in live if len(prefix) == count + 1 and prefix[:-1] == data[:count]]
            hit += max((common_prefix(other, data[count]) for other in others), default=0)
        for n in range(max(count, len(data) - uncached)):
            self._used[data[: n + 1]] = now
        return hit


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_agrees_with_a_list_of_all_prefixes(seed: int) -> None:
    """A list that grows, is rewritten and is summarised, with pauses shorter and longer than the cache's life."""
    rng = random.Random(seed)
    cache, plain, now = PromptCache(ttl_s=100), Plain(ttl_s=100), 0.0
    growing = pieces("system")
    for _ in range(80):
        now += rng.choice((1, 5, 40, 120))
        what = rng.randrange(6)
        if what == 0:
            growing = growing[: rng.randint(1, len(growing))] + pieces(f"again{rng.randrange(3)}")
        elif what == 1:
            sent = [*growing[: rng.randint(1, len(growing))], *pieces("instruction")]
            assert cache.request(sent, now, uncached=1) == plain.request(sent, now, uncached=1)
            continue
        else:
            growing += pieces(*(rng.choice(("a", "bb", "ab", "abc")) for _ in range(rng.randint(0, 3))))
        assert cache.request(growing, now) == plain.request(growing, now)


def test_common_prefixes() -> None:
    assert common_prefix(b"", b"abc") == 0
    assert common_prefix(b"abc", b"abd") == 2
    assert common_prefix(b"abc", b"abc") == 3
    assert common_prefix(b"x" * 1000 + b"a", b"x" * 1000 + b"b") == 1000


def message(text: str, **more: object) -> Message:
    return Message(id="m", role="user", content=(TextPart(text),), time=1, **more)  # type: ignore[arg-type]


def test_the_provider_counts_its_own_tokens_and_refuses_what_does_not_fit() -> None:
    provider = Provider(window=300, factor=2.0, ttl_s=300)
    piece = provider.piece(message("x" * 400))
    assert piece.tokens == 2 * message_tokens(message("x" * 400)) == 208
    answer = provider.ask([piece], output=50, now=0)
    assert (answer.prompt, answer.cached, answer.output) == (208, 0, 50)
    assert provider.ask([piece], output=50, now=1).cached == 208
    with pytest.raises(ProviderError) as refused:
        provider.ask([piece], output=93, now=2)
    assert (refused.value.kind, refused.value.window) == ("overflow", 300)


def test_ids_and_times_are_not_sent_but_calls_and_images_are() -> None:
    provider = Provider(window=10_000, factor=1.0, ttl_s=300)
    plain = provider.piece(message("hello"))
    assert provider.piece(Message(id="other", role="user", content=(TextPart("hello"),), time=9)).data == plain.data
    call = message("hello", tool_calls=(ToolCall("c", "grep", "{}"),))
    image = Message(id="m", role="user", content=(TextPart("hello"), ImagePart("image/png", blob="0" * 64)), time=1)
    assert len({plain.data, provider.piece(call).data, provider.piece(image).data}) == 3
