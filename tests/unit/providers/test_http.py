"""The transport over real sockets: reuse, time limits, cancelling, large and odd answers, proxies, keys."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from sidecar.providers.errors import ProviderError
from sidecar.providers.http import SETTLE_S
from sidecar.providers.port import Finished, TextChunk, TokenUsage
from tests.support.fake_llm import FakeLLM, Gate, Reply
from tests.support.providers import ask, registry_for, settings_of, summary_of
from tests.support.requests import user

pytestmark = pytest.mark.anyio

KEY = "sk-test-0123456789abcdefSECRET"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
WHOLE = EVENT + STOP + USAGE + DONE


@dataclass
class Seen:
    """What a raw server saw."""

    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    gone: anyio.Event = field(default_factory=anyio.Event)


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[tuple[str, Seen]]:
    """A server that reads whole requests and lets `answer` write; it says whether the connection goes on."""
    seen = Seen()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:"))
                seen.heads.append(head)
                seen.bodies.append(await reader.readexactly(length))
                if not await answer(reader, writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            seen.gone.set()
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", seen
    finally:
        server.close()


def written(*parts: bytes, headers: str = "content-type: text/event-stream", status: str = "200 OK") -> Answer:
    """Writes a chunked answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for part in parts:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        return True

    return answer


def raw(*parts: bytes) -> Answer:
    """Writes these bytes and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return False

    return answer


@asynccontextmanager
async def asking(answer: Answer, **settings: object) -> AsyncIterator[tuple[Callable[..., Awaitable[dict]], Seen]]:  # type: ignore[type-arg]
    async with serving(answer) as (url, seen):
        async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}) as registry:
            binding = registry.resolve("openai/m", settings_of(**settings))

            async def once(text: str = "hi") -> dict[str, object]:
                return summary_of(await ask(binding, [user(text)]))

            yield once, seen


async def test_connections_are_used_again() -> None:
    async with asking(written(WHOLE)) as (once, seen):
        for _ in range(5):
            assert (await once())["text"] == "hi"
        assert seen.connections == 1
        assert len(seen.bodies) == 5


async def test_a_connection_that_the_server_closed_meanwhile_is_not() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await written(WHOLE)(reader, writer)
        return False

    async with asking(answer) as (once, seen):
        await once()
        await seen.gone.wait()
        await anyio.sleep(0.01)
        await once()
        assert seen.connections == 2


async def test_many_at_once_have_a_connection_each() -> None:
    async with asking(written(WHOLE)) as (once, seen):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(once)
        assert len(seen.bodies) == 20


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
async def test_requests_of_any_size_arrive_whole(size: int) -> None:
    async with asking(written(WHOLE)) as (once, seen):
        await once("x" * size)
        body = json.loads(seen.bodies[0])
        assert body["messages"][-1]["content"] == "x" * size
        assert b"transfer-encoding" not in seen.heads[0].lower()


async def test_the_head_says_who_asks() -> None:
    async with asking(written(WHOLE), headers={"X-Title": "me"}) as (once, seen):
        await once()
        head = seen.heads[0].decode()
        assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
        for line in (f"authorization: Bearer {KEY}", "content-type: application/json", "x-title: me"):
            assert line.lower() in head.lower()


@pytest.mark.parametrize(
    "stream",
    [
        EVENT + STOP + USAGE, EVENT + STOP, EVENT + STOP.rstrip(b"\n"), WHOLE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf: hello\n\n" + WHOLE, EVENT + STOP + b"data: {broken\n\n", WHOLE + b"data: {broken\n\n",
        EVENT + STOP + b'data: {"error": {"message": "late"}}\n\n', EVENT + STOP + b"data: {bro",
    ],
)  # fmt: skip
async def test_these_are_whole(stream: bytes) -> None:
    async with asking(written(stream)) as (once, _):
        found = await once()
        assert (found["text"], found["reason"]) == ("hi", "stop")


@pytest.mark.parametrize(
    "answer",
    [
        written(EVENT), written(b""), written(EVENT + DONE), written(EVENT + b"data: {bro"),
        written(b"data: {bro\n\n" + WHOLE),
        written(b"<html>sign in</html>", headers="content-type: text/html"), written(b"", status="204 No Content"),
        raw(b"no http at all\r\n\r\n"), raw(b""), raw(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + EVENT),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n" + EVENT),
        raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000),
        written(b"x" * 40, headers="content-encoding: gzip"), written(b"{}", headers="content-type: application/json"),
    ],
)  # fmt: skip
async def test_these_are_failures_that_are_tried_again(answer: Answer) -> None:
    async with asking(answer) as (once, _):
        with pytest.raises(ProviderError) as caught:
            await once()
        assert caught.value.kind == "unavailable"


async def test_a_redirect_is_not_followed() -> None:
    async with asking(written(b"", status="302 Found", headers="location: http://127.0.0.1:1/")) as (once, _):
        with pytest.raises(ProviderError) as caught:
            await once()
        assert (caught.value.kind, caught.value.status) == ("rejected", 302)


async def test_an_answer_until_the_connection_ends() -> None:
    async with asking(raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", WHOLE)) as (once, _):
        assert (await once())["usage"] == TokenUsage(5, 0, 1)


async def test_an_interim_answer_is_passed_over() -> None:
    head = b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
    async with asking(raw(head, WHOLE)) as (once, _):
        assert (await once())["text"] == "hi"


JSON = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}'


@pytest.mark.parametrize("body", [JSON, b"\n  " + JSON, WHOLE])
async def test_answers_that_call_themselves_json(body: bytes) -> None:
    async with asking(written(body, headers="content-type: application/json; charset=utf-8")) as (once, _):
        assert (await once())["text"] == "hi"


async def test_a_compressed_stream_is_read() -> None:
    async with asking(written(gzip.compress(WHOLE), headers="content-encoding: gzip")) as (once, _):
        assert (await once())["text"] == "hi"


async def test_an_event_over_the_limit() -> None:
    big = [b"data: " + b"x" * (1 << 20)] * 33
    async with asking(written(*big)) as (once, _):
        with pytest.raises(ProviderError, match="32 MiB"):
            await once()


async def test_a_refusal_without_an_end_is_read_as_far_as_needed() -> None:
    head = b"HTTP/1.1 400 Bad\r\ncontent-length: 99999999\r\n\r\n"
    async with asking(raw(head, b"prompt is too long: 9000 tokens > 8000 maximum" + b" " * 70_000)) as (once, _):
        with pytest.raises(ProviderError) as caught:
            await once()
        assert (caught.value.kind, caught.value.window) == ("overflow", 8000)


async def test_a_server_that_refuses_before_it_has_read_everything() -> None:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await reader.read(1 << 24)
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}) as registry:
        binding = registry.resolve("openai/m", settings_of())
        with pytest.raises(ProviderError) as caught:
            await ask(binding, [user("x" * 1_000_000)])
        assert (caught.value.kind, caught.value.too_large) == ("rejected", True)
    server.close()


async def test_nobody_listens() -> None:
    async with serving(raw()) as (url, _):
        pass
    async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}) as registry:
        with pytest.raises(ProviderError, match="cannot connect") as caught:
            await ask(registry.resolve("openai/m", settings_of()), [user("hi")])
        assert caught.value.kind == "unavailable"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + EVENT])
async def test_silence_is_given_up(head: bytes) -> None:
    forever = Gate()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        await writer.drain()
        await forever.wait()
        return False

    async with asking(answer, idle_timeout_s=0.1) as (once, _):
        with pytest.raises(ProviderError, match="stalled"):
            await once()
        forever.open()


async def test_silence_after_the_finish_reason_spoils_nothing() -> None:
    forever = Gate()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT + STOP)
        await writer.drain()
        await forever.wait()
        return False

    async with asking(answer, idle_timeout_s=0.1) as (once, _):
        assert (await once())["text"] == "hi"
        forever.open()
    assert SETTLE_S < 10


async def test_heartbeats_alone_are_given_up_too() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with asking(answer, idle_timeout_s=0.05) as (once, seen):
        with pytest.raises(ProviderError, match="stalled"):
            await once()
        await seen.gone.wait()


@pytest.mark.parametrize("figures", [True, False])
async def test_heartbeats_behind_a_whole_answer_do_not_hold_it_up(
    figures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.providers.http.SETTLE_S", 0.3)
    monkeypatch.setattr("sidecar.providers.http.BETTER_S", 0.3)
    usage = b',"usage":{"prompt_tokens":5,"completion_tokens":1}' if figures else b""
    stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]%b}\n\n' % usage

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT + stop)
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with asking(answer, idle_timeout_s=0.05) as (once, seen):
        assert (await once())["text"] == "hi"
        await seen.gone.wait()


@pytest.mark.parametrize("when", ["before the first byte", "in the stream"])
async def test_leaving_closes_the_connection_at_once(when: str) -> None:
    gate = Gate()
    reply = Reply("x" * 50, gate=gate) if when == "before the first byte" else Reply("x" * 50, hold_after=(2, gate))
    with FakeLLM(lambda request, n: reply) as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve("openai/fake-model", settings_of(idle_timeout_s=3600))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, binding, [user("hi")])
                await llm.wait_for(1)
                await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
            await llm.wait_for_disconnect(1)
        gate.open()


async def test_an_event_is_told_as_soon_as_its_bytes_are_there() -> None:
    gate = Gate()
    with FakeLLM(lambda request, n: Reply("abcd", chunks=2, hold_after=(2, gate))) as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve("openai/fake-model", settings_of())
            encoder = binding.provider.encoder("m", lambda digest: None)
            request = encoder.request(max_output_tokens=1, suffix=user("hi"))
            async with binding.provider.stream("m", request) as events:
                assert await anext(events) == TextChunk("ab")
                gate.open()
                assert await anext(events) == TextChunk("cd")
                assert isinstance(await anext(events), Finished)
                with pytest.raises(StopAsyncIteration):
                    await anext(events)


async def test_the_environments_proxy_is_for_the_outside_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeLLM() as proxy, FakeLLM() as local:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with registry_for({**local.environment(), "MODEL_API_KEY": KEY}) as registry:
            settings = settings_of()
            await ask(registry.resolve("openai/m", settings), [user("hi")])
            assert (local.count, proxy.count) == (1, 0)
            outside = registry.resolve("openai/m", settings_of(base_url="http://model.example/v1"))
            for _ in range(2):
                assert summary_of(await ask(outside, [user("hi")]))["text"] == "ok"
            assert (local.count, proxy.count) == (1, 2)
            assert proxy.requests[0].path == "http://model.example/v1/chat/completions"


async def socks5(target: int, asked: list[tuple[str, int]], stream: SocketStream) -> None:
    """One connection of a SOCKS5 proxy without authentication; whatever is asked for, it leads to `target`."""
    async with stream:
        await stream.receive(16)
        await stream.send(b"\x05\x00")
        request = await stream.receive(300)
        name = request[5 : 5 + request[4]]
        asked.append((name.decode(), int.from_bytes(request[5 + len(name) : 7 + len(name)])))
        await stream.send(b"\x05\x00\x00\x01" + bytes(6))
        async with await anyio.connect_tcp("127.0.0.1", target) as onward, anyio.create_task_group() as group:

            async def pump(source: SocketStream, sink: SocketStream) -> None:
                async for chunk in source:
                    await sink.send(chunk)
                group.cancel_scope.cancel()

            group.start_soon(pump, stream, onward)
            await pump(onward, stream)


async def test_a_socks_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    with FakeLLM(lambda r, n: Reply("by a long way")) as llm:
        target = urlsplit(llm.origin).port
        assert target is not None
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, partial(socks5, target, asked))
            port = listener.extra(SocketAttribute.local_port)
            monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{port}")
            async with registry_for({"OPENAI_API_KEY": KEY}) as registry:
                outside = registry.resolve("openai/m", settings_of(base_url="http://model.example/v1"))
                assert summary_of(await ask(outside, [user("hi")]))["text"] == "by a long way"
            group.cancel_scope.cancel()
    assert asked == [("model.example", 80)]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:9", "ALL_PROXY"), ("HTTPS_PROXY", "ftp://127.0.0.1:9", "HTTPS_PROXY"),
        ("SSL_CERT_FILE", "/nowhere/at/all.pem", "SSL_CERT_FILE"),
    ],
)  # fmt: skip
async def test_an_environment_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    async with registry_for({"OPENAI_API_KEY": KEY}) as registry:
        outside = registry.resolve("openai/m", settings_of(base_url="https://model.invalid/v1"))
        with pytest.raises(ProviderError, match=words) as caught:
            await ask(outside, [user("hi")])
        assert caught.value.kind == "rejected"


async def test_what_an_address_carries_does_not_come_back() -> None:
    error = {"message": "No: p%40ssw0rd-of-it, p@ssw0rd-of-it, query-key-77 or 2024-06-01"}
    with FakeLLM(lambda request, n: Reply(status=401, error=error)) as llm:
        host = llm.openai_url.removeprefix("http://")
        url = f"http://me:p%40ssw0rd-of-it@{host}?key=query-key-77&api-version=2024-06-01"
        async with registry_for({}) as registry:
            with pytest.raises(ProviderError) as caught:
                await ask(registry.resolve("openai/m", settings_of(base_url=url)), [user("hi")])
            assert caught.value.message == "openai answered 401: No: ***, ***, *** or 2024-06-01"


async def test_a_key_that_the_provider_echoes_does_not_come_back() -> None:
    error = {"message": f"Incorrect API key provided: {KEY}", "code": KEY}
    with FakeLLM(lambda request, n: Reply(status=401, error=error)) as llm:
        async with registry_for({"OPENAI_BASE_URL": llm.openai_url, "OPENAI_API_KEY": KEY}) as registry:
            binding = registry.resolve("openai/m", settings_of())
            with pytest.raises(ProviderError) as caught:
                await ask(binding, [user("hi")])
            seen: BaseException | None = caught.value
            while seen is not None:
                assert KEY not in f"{seen!r} {seen} {vars(seen)}"
                seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
            assert KEY not in repr(binding)
