"""Bytes that only grow: what is serialised once, what is kept over a rewrite, what the hash is over."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from protocol.messages import Message
from sidecar.providers.openai import ChatCodec
from sidecar.providers.quirks import ChatQuirks
from sidecar.providers.transcript import SEAL_BYTES, Tape, Transcript, rebuilt
from tests.support.requests import (
    BLOBS,
    PREFIX,
    Dialect,
    Held,
    assistant,
    calling,
    encode,
    encoder,
    image,
    result,
    user,
)

DIALECTS: list[Dialect] = ["openai", "anthropic"]


class Counting(ChatCodec):
    """Counts how often a message is serialised."""

    def __init__(self) -> None:
        super().__init__("p/m", ChatQuirks(), BLOBS.get)
        self.made = 0

    def user(self, message: Message) -> bytes:
        self.made += 1
        return super().user(message)

    def assistant(self, message: Message) -> bytes | None:
        self.made += 1
        return super().assistant(message)

    def result(self, message: Message) -> bytes:
        self.made += 1
        return super().result(message)


def talk(n: int) -> list[Message]:
    out: list[Message] = []
    for i in range(n):
        out += [
            user(f"question {i}"),
            assistant(f"answer {i}", calling(f"c{i}"), calling(f"d{i}")),
            result(f"c{i}", "x" * i),
            result(f"d{i}", f"r{i}", *([image()] if i % 3 == 0 else [])),
            assistant("so"),
        ]
    return out


@pytest.mark.parametrize("dialect", DIALECTS)
def test_requests_are_append_only(dialect: Dialect) -> None:
    messages, made = talk(6), encoder(dialect, **({"cache_control": False} if dialect == "anthropic" else {}))
    before = b""
    for n in range(1, len(messages) + 1):
        whole = n % 5 not in (2, 3)  # every call has its result
        made.sync(PREFIX, [Held(m) for m in messages[:n]], 0)
        if whole:
            request = made.request(max_output_tokens=5)
            assert request.body.startswith(before)
            assert request.message_count == n
            before = request.body.removesuffix(b"]}")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_growing_step_by_step_gives_the_same_bytes_as_at_once(dialect: Dialect) -> None:
    messages = [user("x" * SEAL_BYTES), *talk(5), user("y" * SEAL_BYTES), *talk(2)]
    at_once = encode(dialect, messages)
    made = encoder(dialect)
    for n in range(len(messages) + 1):
        made.sync(PREFIX, [Held(m) for m in messages[:n]], 0)
    request = made.request(max_output_tokens=1000)
    assert request.body == at_once.body
    assert (request.messages_hash, request.messages_bytes) == (at_once.messages_hash, at_once.messages_bytes)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_size_and_hash_are_of_the_messages_without_marks(dialect: Dialect) -> None:
    request = encode(dialect, talk(2), suffix=user("suffix"))
    plain = encode(dialect, talk(2), **({"cache_control": False} if dialect == "anthropic" else {}))
    inside = plain.body.partition(b'"messages":[')[2].removesuffix(b"]}")
    if dialect == "openai":
        inside = inside.partition(b"},")[2]
    assert request.messages_bytes == len(inside)
    assert request.messages_hash == blake2b(inside, digest_size=8).hexdigest()


def test_every_message_is_serialised_once() -> None:
    codec, messages = Counting(), talk(8)
    made = Transcript(codec)
    for message in messages:
        made.append(message)
    for _ in range(3):
        made.tape.chunks((), b"", made.closing().data)
    assert codec.made == len(messages)


def test_over_a_rewrite_the_same_objects_keep_their_bytes() -> None:
    codec, messages = Counting(), talk(8)
    old = Transcript(codec)
    for message in messages:
        old.append(message)
    codec.made = 0
    kept = [messages[0], user("summary"), *messages[20:]]
    new = rebuilt(old, codec, [Held(m) for m in kept])
    assert codec.made == 1
    fresh = Transcript(ChatCodec("p/m", ChatQuirks(), BLOBS.get))
    for message in kept:
        fresh.append(message)
    assert b"".join(new.tape.chunks((), b"", b"")) == b"".join(fresh.tape.chunks((), b"", b""))
    assert new.tape.hash_with(b"") == fresh.tape.hash_with(b"")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rewrite_is_seen_by_its_number_and_a_shorter_context_too(dialect: Dialect) -> None:
    made, first, second = encoder(dialect), user("one"), user("two")
    made.sync(PREFIX, [Held(first)], 0)
    made.sync(PREFIX, [Held(second)], 0)
    assert b"one" in made.request(max_output_tokens=1).body, "no rewrite was announced"
    made.sync(PREFIX, [Held(second)], 1)
    assert b"one" not in made.request(max_output_tokens=1).body
    made.sync(PREFIX, [], 1)
    assert made.request(max_output_tokens=1).message_count == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hashes_follow_system_and_tools(dialect: Dialect) -> None:
    made = encoder(dialect)
    a = made.sync(PREFIX, [], 0)
    assert made.sync(PREFIX, [Held(user("x"))], 0) == a
    b = made.sync(type(PREFIX)("other", PREFIX.tools), [], 1)
    c = made.sync(type(PREFIX)(PREFIX.system, PREFIX.tools[:1]), [], 1)
    assert (a.tools == b.tools, a.system == b.system, a.prefix == b.prefix) == (True, False, False)
    assert (a.tools == c.tools, a.system == c.system, a.prefix == c.prefix) == (False, True, False)
    swapped = made.sync(type(PREFIX)(PREFIX.system, PREFIX.tools[::-1]), [], 1)
    assert swapped == a, "the order in which tools are given does not matter"
    assert all(len(h) == 16 for h in (a.system, a.tools, a.prefix))


def test_marks_are_put_in_at_any_offset() -> None:
    for seal in (1, 4, 100):
        tape = Tape(seal)
        for piece in (b"abc", b"defg", b"h"):
            tape.write(piece)
        for at in ((), (1,), (3,), (2, 7), (8,), (3, 9), (10,)):
            out = b"abcdefgh12"
            for offset in reversed(at):
                out = out[:offset] + b"|" + out[offset:]
            assert b"".join(tape.chunks(at, b"|", b"12")) == out
