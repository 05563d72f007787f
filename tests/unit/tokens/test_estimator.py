"""Counts are true to o200k_base, cached, bounded on any input, and replaced when the vocabulary is loaded."""

from __future__ import annotations

import base64
import inspect
import random
import threading

import anyio
import pytest
import tiktoken

from protocol.messages import ImagePart, Message, ReasoningBlock, TextPart, ToolCall, ToolSpec
from sidecar.tokens import counting, rough
from sidecar.tokens.estimator import INLINE_CHARS, BpeEstimator, TextCounter
from sidecar.tokens.vocabulary import SPLIT, Vocabulary, find

VOCABULARY = Vocabulary(lambda: find(None))

ENGLISH = (
    "When the river rose for the second time that spring, the miller's daughter counted the sacks again; forty-one, "
    "and two of them wet. She didn't tell her father. Instead, she wrote the number into the ledger, crossed it out, "
    "and wrote 39.\n\n"
)
CHINESE = (
    "上下文压缩发生在会话的令牌数接近窗口上限的时候。系统会保留用户的原话，把助手的回复和工具的输出写成摘要，"
    "然后提醒模型继续未完成的工作。第十二次压缩之后，之前的端口号应当仍然是8081。\n"
)
JAPANESE = (
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で"
    "ニャーニャー泣いていた事だけは記憶している。コンテキストの圧縮は、トークン数が上限に近づいたときに始まる。\n"
)
CORPORA = {
    "english": ENGLISH * 200,
    "code": inspect.getsource(inspect) * 2,
    "chinese": CHINESE * 500,
    "japanese": JAPANESE * 500,
    "base64": base64.b64encode(random.Random(7).randbytes(90_000)).decode(),
}


@pytest.fixture(scope="module")
def official() -> tiktoken.Encoding:
    """tiktoken's own encoder over the whole text at once."""
    text = find(None)
    assert text is not None
    ranks = {base64.b64decode(w): int(r) for w, r in (line.split() for line in text.splitlines())}
    return tiktoken.Encoding("true", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={})


@pytest.fixture
def estimator() -> BpeEstimator:
    assert VOCABULARY.load()
    return BpeEstimator(TextCounter(VOCABULARY))


def message(text: str, **more: object) -> Message:
    return Message(id="m", role="user", content=(TextPart(text),), time=0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CORPORA)
async def test_counts_are_within_five_percent_sampled_or_warmed(
    name: str, official: tiktoken.Encoding, estimator: BpeEstimator
) -> None:
    text = CORPORA[name]
    true = len(official.encode_ordinary(text))
    assert len(text) > INLINE_CHARS, "the text was to be sampled first"
    assert estimator.text_tokens(text) == pytest.approx(true, rel=0.05)
    await estimator.warm([message(text)])
    assert estimator.text_tokens(text) == pytest.approx(true, rel=0.002)
    short = text[:3_000]
    assert estimator.text_tokens(short) == pytest.approx(len(official.encode_ordinary(short)), rel=0.01)


class Watched:
    """An encoder that remembers what it was given and in which thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.fail: BaseException | None = None

    def __call__(self, text: str) -> list[int]:
        self.calls.append((len(text.encode()), threading.get_ident()))
        if self.fail is not None:
            raise self.fail
        return [0] * (len(text) // 2)

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.calls)


def watched() -> tuple[Watched, BpeEstimator]:
    vocabulary, encode = Vocabulary(lambda: None), Watched()
    vocabulary.encode = encode
    return encode, BpeEstimator(TextCounter(vocabulary))


@pytest.mark.parametrize("text", [" " * 1_000_000, "a" * 1_000_000, "中" * 400_000, "😀" * 250_000])
async def test_a_long_text_is_sampled_at_once_and_counted_in_a_thread(text: str) -> None:
    encode, estimator = watched()
    first = estimator.message_tokens(message(text))
    assert encode.bytes <= counting.SAMPLES * counting.SAMPLE_CHARS * 4
    again = estimator.message_tokens(message(text))
    assert again == first
    assert {thread for _, thread in encode.calls} == {threading.get_ident()}

    encode.calls.clear()
    await estimator.warm([message(text)])
    assert encode.bytes == len(text.encode())
    assert max(size for size, _ in encode.calls) <= counting.PIECE_BYTES
    assert threading.get_ident() not in {thread for _, thread in encode.calls}

    encode.calls.clear()
    assert estimator.message_tokens(message(text)) == first, "an even text is sampled exactly"
    await estimator.warm([message(text)])
    assert not encode.calls


async def test_many_small_messages_are_counted_in_a_thread_and_few_are_left_to_the_plain_calls() -> None:
    encode, estimator = watched()
    await estimator.warm([message(f"{i} " + "word " * 10) for i in range(2_000)])
    assert len(encode.calls) == 2_000
    assert threading.get_ident() not in {thread for _, thread in encode.calls}
    encode.calls.clear()
    await estimator.warm([message("a new one")])
    assert not encode.calls


async def test_warming_can_be_cancelled() -> None:
    vocabulary, release = Vocabulary(lambda: None), threading.Event()

    def slow(text: str) -> list[int]:
        release.wait(30)
        return []

    vocabulary.encode = slow
    estimator = BpeEstimator(TextCounter(vocabulary))
    async with anyio.create_task_group() as group:
        group.start_soon(estimator.warm, [message("x" * 100_000)])
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    release.set()


class Panic(BaseException):
    """Like tiktoken's: no Exception."""


def test_a_panic_degrades_to_the_rough_count() -> None:
    encode, estimator = watched()
    encode.fail = Panic()
    text = "word " * 4_000
    assert estimator.text_tokens(text) == rough.text_tokens(text)
    encode.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        estimator.text_tokens("something else")


def test_a_million_spaces_and_lone_surrogates_are_counted(estimator: BpeEstimator) -> None:
    assert VOCABULARY.encode is not None
    assert 7_000 < counting.count(VOCABULARY.encode, " " * 1_000_000) < 9_000
    assert estimator.text_tokens("broken \ud83d text") > 0
    assert estimator.text_tokens("") == 0


def test_counts_made_before_the_vocabulary_are_replaced() -> None:
    vocabulary = Vocabulary(lambda: find(None))
    estimator = BpeEstimator(TextCounter(vocabulary))
    text = "internationalization of 三つ"
    before = estimator.text_tokens(text)
    assert (before, estimator.generation) == (rough.text_tokens(text), 0)
    assert vocabulary.load(), "the first count was to start the load"
    assert estimator.generation == 1
    assert estimator.text_tokens(text) == 5


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("中文ab", 3), ("é" * 10, 10)])
def test_the_rough_count_is_a_quarter_per_ascii_and_one_per_other(text: str, tokens: int) -> None:
    assert rough.text_tokens(text) == tokens


def test_a_message_counts_its_parts_calls_and_signed_reasoning(estimator: BpeEstimator) -> None:
    plain = estimator.message_tokens(message("hello world"))
    assert plain == 2 + rough.MESSAGE_OVERHEAD
    call = ToolCall(id="c", name="read_file", arguments='{"path": "a.py"}')
    with_call = estimator.message_tokens(message("hello world", tool_calls=(call,)))
    assert with_call == plain + rough.CALL_OVERHEAD + sum(map(estimator.text_tokens, (call.name, call.arguments)))
    thought = "hello world again"
    unsigned = message("hello world", reasoning=thought, reasoning_blocks=(ReasoningBlock(17),))
    signed = message("hello world", reasoning=thought, reasoning_blocks=(ReasoningBlock(17, signature="s"),))
    assert estimator.message_tokens(unsigned) == plain
    assert estimator.message_tokens(signed) == plain + 3
    assert estimator.message_tokens(Message(id="e", role="user", content=(), time=0)) == rough.MESSAGE_OVERHEAD


def test_an_edited_message_with_the_same_id_is_counted_anew(estimator: BpeEstimator) -> None:
    assert estimator.message_tokens(message("one two three")) != estimator.message_tokens(message("one"))


def test_images_count_by_size_from_data_or_blob() -> None:
    png = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4) + b"IHDR" + (1000).to_bytes(4) + (750).to_bytes(4)
    reads: list[str] = []

    def head(blob: str) -> bytes | None:
        reads.append(blob)
        return png if blob == "known" else None

    assert VOCABULARY.load()
    counter = TextCounter(VOCABULARY)
    estimator = BpeEstimator(counter, head)

    def tokens(of: BpeEstimator, part: ImagePart) -> int:
        return of.message_tokens(Message(id="i", role="user", content=(part,), time=0)) - rough.MESSAGE_OVERHEAD

    data = base64.b64encode(png).decode()
    assert tokens(estimator, ImagePart("image/png", data=data)) == 1_000
    assert tokens(estimator, ImagePart("image/png", data="%%%")) == 2_000
    for _ in range(3):
        assert tokens(estimator, ImagePart("image/png", blob="known")) == 1_000
    assert tokens(estimator, ImagePart("image/png", blob="lost")) == 2_000
    assert reads == ["known", "lost"]
    assert tokens(BpeEstimator(counter), ImagePart("image/png")) == 2_000


def test_tools_count_as_json(estimator: BpeEstimator) -> None:
    assert estimator.tools_tokens(()) == 0
    tool = ToolSpec(name="add", description="Adds.", parameters={"type": "object"}, timeout_s=5)
    text = '{"name":"add","description":"Adds.","parameters":{"type":"object"}}'
    assert estimator.tools_tokens((tool,)) == estimator.text_tokens(text)


def test_the_cache_is_bounded_and_keeps_what_is_used() -> None:
    cache = counting.CountCache(100)
    for i in range(1_000):
        cache.put(i, i)
        assert cache.get(0) == 0 or i == 0
        assert len(cache) <= 100
    assert cache.get(1) is None
    assert cache.get(999) == 999
    cache.clear()
    assert cache.get(999) is None
