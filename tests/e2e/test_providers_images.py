"""Images at the provider border: poison that is taken out, large ones beside the log, lost ones as words."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from protocol import events as e
from protocol.chat import ToolCallResult
from protocol.messages import ImagePart, Part, TextPart
from sidecar.client.host import HostCall, host_tool
from tests.support import strict_anthropic, strict_openai
from tests.support.fake_llm import FakeLLM, Gate, Reply, Request, call, failure, sequence
from tests.support.one_daemon import OneDaemon, Talk
from tests.support.running import a_place, running_sidecar
from tests.support.wire import assert_append_only, of_type

pytestmark = pytest.mark.anyio


def png(seed: int, size: int = 0) -> bytes:
    """A PNG of 64 x 48 pixels; `size` bytes of ballast that no compression takes away."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    ballast = b"".join(hashlib.sha256(b"%d %d" % (seed, i)).digest() for i in range(size // 32))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 0, 0, 0, 0))
        + chunk(b"teXt", b"seed\0%d" % seed + ballast)
        + chunk(b"IEND", b"")
    )


def image(seed: int, size: int = 0) -> ImagePart:
    return ImagePart("image/png", data=base64.b64encode(png(seed, size)).decode())


def images_in(request: Request) -> list[str]:
    """The base64 of every image of a request, in order."""
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("type") == "image_url":
                found.append(value["image_url"]["url"].partition("base64,")[2])
            elif value.get("type") == "image":
                found.append(value["source"]["data"])
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(request.json)
    return found


def check(request: Request) -> None:
    (strict_anthropic if request.is_anthropic else strict_openai).check(request.body)


def bodies(requests: list[Request]) -> list[bytes]:
    return [strict_anthropic.without_marks(r.body) for r in requests]


def quarantines(talk: Talk) -> list[dict[str, Any]]:
    return [r for r in of_type(talk.records, "context.rewrite") if r["action"] == "quarantine"]


def refuses(*bad: int, status: int = 400, message: str = "Could not process image", **more: Any) -> Any:
    """A model that refuses requests with any of these images."""
    data = [base64.b64encode(png(seed)).decode() for seed in bad]

    def script(request: dict[str, Any], n: int) -> Reply:
        text = json.dumps(request)
        return failure(status, message, **more) if any(d in text for d in data) else Reply(f"fine {n}")

    return script


NAMED = [
    "Could not process image",
    "messages.4.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "Invalid image_url: the image is corrupted",
    "You uploaded an unsupported image. Please make sure your image is valid.",
]


@pytest.mark.parametrize("message", NAMED)
async def test_a_400_that_names_an_image(daemon: OneDaemon, dialect: str, message: str) -> None:
    """The newest image goes, older ones stay, the step is tried once more, and the session lives on."""
    async with daemon.talk(dialect, refuses(2, message=message, type="invalid_request_error")) as talk:
        assert (await talk.run([TextPart("look"), image(1)])).stop_reason == "end_turn"
        result = await talk.run([TextPart("and at this"), image(2)])
        assert (result.stop_reason, result.error) == ("end_turn", None)
        assert len(talk.requests) == 3
        refused, again = talk.requests[1:]
        assert len(images_in(refused)) == 2
        assert images_in(again) == images_in(refused)[:1]
        check(again)
        (rewrite,) = quarantines(talk)
        (event,) = talk.of_type(e.ContextRewritten)
        assert event.action == "quarantine"
        assert event.line == rewrite["seq"]
        assert (event.pre_tokens, event.post_tokens) == (rewrite["pre_tokens"], rewrite["post_tokens"])
        assert event.post_tokens < event.pre_tokens
        assert not talk.of_type(e.RetryScheduled)
        digest = hashlib.sha256(png(2)).hexdigest()
        assert any("and at this" in t and digest[:8] in t for _, t in again.texts)
        await talk.run("next")
        check(talk.requests[-1])
        assert_append_only(bodies(talk.requests[2:]))
        assert len(quarantines(talk)) == 1


async def test_all_images_go_when_the_newest_was_not_it(daemon: OneDaemon, dialect: str) -> None:
    """An old image that was taken before becomes poison (a provider that changed its mind)."""
    allowed = {"yes": True}

    def script(request: dict[str, Any], n: int) -> Reply:
        old = base64.b64encode(png(1)).decode() in json.dumps(request)
        return failure(400, "Could not process image") if old and not allowed["yes"] else Reply("fine")

    async with daemon.talk(dialect, script) as talk:
        await talk.run([TextPart("look"), image(1)])
        allowed["yes"] = False
        result = await talk.run([TextPart("and at this"), image(2)])
        assert result.stop_reason == "end_turn"
        assert [len(images_in(r)) for r in talk.requests] == [1, 2, 1, 0]
        assert len(quarantines(talk)) == 2
        for request in talk.requests:
            check(request)
        assert (await talk.run("next")).stop_reason == "end_turn"


async def test_what_is_no_image_is_not_tried_for_ever(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, lambda r, n: failure(400, "image is bad")) as talk:
        result = await talk.run([TextPart("look"), image(1)])
        assert result.error is not None
        assert (result.error.reason, result.error.provider_status) == ("provider_rejected", 400)
        assert len(talk.requests) <= 3
        daemon.crowd.scripts[talk.model] = lambda r, n: Reply("ok")
        assert (await talk.run("next")).text == "ok"


async def test_a_400_without_words_when_only_images_are_new(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, refuses(2, message="Bad request")) as talk:
        await talk.run("hello")
        result = await talk.run([image(2)])
        assert result.stop_reason == "end_turn"
        assert [len(images_in(r)) for r in talk.requests] == [0, 1, 0]
        assert len(quarantines(talk)) == 1


async def test_a_400_without_words_beside_text_is_a_refusal_once(daemon: OneDaemon, dialect: str) -> None:
    """It may be the text: the turn fails. But the next turn does not fail for the same image again."""
    async with daemon.talk(dialect, refuses(2, message="Bad request")) as talk:
        await talk.run([TextPart("hello"), image(1)])
        result = await talk.run([TextPart("look"), image(2)])
        assert result.error is not None
        assert result.error.reason == "provider_rejected"
        assert len(talk.requests) == 2
        assert not quarantines(talk)
        result = await talk.run("hello?")
        assert result.stop_reason == "end_turn"
        assert len(images_in(talk.requests[-1])) == 1
        assert len(quarantines(talk)) == 1


async def test_a_400_without_an_image_stays_one(daemon: OneDaemon, dialect: str) -> None:
    """Old images are not taken out for it."""

    def script(request: dict[str, Any], n: int) -> Reply:
        return failure(400, "Bad request") if n in (1, 2) else Reply("fine")

    async with daemon.talk(dialect, script) as talk:
        await talk.run([TextPart("look"), image(1)])
        for text in ("one", "two"):
            result = await talk.run(text)
            assert result.error is not None
            assert result.error.reason == "provider_rejected"
        assert len(talk.requests) == 3
        assert not quarantines(talk)
        assert (await talk.run("three")).text == "fine"
        assert len(images_in(talk.requests[-1])) == 1


@pytest.mark.parametrize("message", ["Request Entity Too Large", "image too large", ""])
async def test_a_413_of_a_small_request(daemon: OneDaemon, dialect: str, message: str) -> None:
    async with daemon.talk(dialect, refuses(2, status=413, message=message)) as talk:
        await talk.run("hello")
        result = await talk.run([TextPart("look"), image(2)])
        assert result.stop_reason == "end_turn"
        assert [len(images_in(r)) for r in talk.requests] == [0, 1, 0]
        assert not talk.of_type(e.CompactionStarted)
        assert len(quarantines(talk)) == 1
        assert (await talk.info()).window_source != "learned"


@pytest.mark.parametrize("status", [404, 422])
async def test_a_refused_image_never_ends_a_session(daemon: OneDaemon, dialect: str, status: int) -> None:
    async with daemon.talk(dialect, refuses(2, status=status, message="No endpoints support image input")) as talk:
        result = await talk.run([TextPart("look"), image(2)])
        assert len(talk.requests) == 1 or result.stop_reason == "end_turn"
        assert (await talk.run("hello?")).stop_reason == "end_turn"


async def test_poison_in_a_tools_result(daemon: OneDaemon, dialect: str) -> None:
    @host_tool("shoot", "Takes a picture.", {})
    async def shoot(call: HostCall) -> ToolCallResult:
        return ToolCallResult((TextPart("here"), image(2)))

    bad = base64.b64encode(png(2)).decode()

    def script(request: dict[str, Any], n: int) -> Reply:
        if bad in json.dumps(request):
            return failure(400, "Could not process image")
        return Reply("", tool_calls=[call("shoot", {})]) if n == 0 else Reply("seen")

    async with daemon.talk(dialect, script, tools=[shoot]) as talk:
        assert (await talk.run("go")).text == "seen"
        assert [len(images_in(r)) for r in talk.requests] == [0, 1, 0]
        for request in talk.requests:
            check(request)
        assert (await talk.run("next")).text == "seen"


async def test_several_images_at_once(daemon: OneDaemon, dialect: str) -> None:
    """All that are new go at once; the pointers say which."""
    async with daemon.talk(dialect, refuses(3)) as talk:
        await talk.run([TextPart("first"), image(1)])
        assert (await talk.run([image(2), TextPart("two and three"), image(3)])).stop_reason == "end_turn"
        assert [len(images_in(r)) for r in talk.requests] == [1, 3, 1]
        last = talk.requests[-1].texts[-1][1]
        for seed in (2, 3):
            assert hashlib.sha256(png(seed)).hexdigest()[:8] in last


async def test_a_quarantine_survives_a_restart(dialect: str) -> None:
    with FakeLLM(refuses(2)) as llm, a_place(llm) as place:
        model = f"{dialect}/fake-model"
        async with running_sidecar(llm=llm, home=place.home, model=model) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(place.work))
            await sidecar.client.chat.run(session.session_id, [TextPart("look"), image(2)])
            await sidecar.kill()
        async with running_sidecar(llm=llm, home=place.home, model=model) as sidecar:
            await sidecar.client.sessions.resume(session.session_id)
            assert (await sidecar.client.chat.run(session.session_id, "next")).stop_reason == "end_turn"
        assert_append_only([strict_anthropic.without_marks(b) for b in llm.bodies[1:]])


# ---------------------------------------------------------------- beside the log


async def test_large_images_are_blobs(daemon: OneDaemon, dialect: str) -> None:
    content: list[Part] = [TextPart("small and large"), image(1), image(2, 20_000)]
    async with daemon.talk(dialect, sequence(Reply("seen"))) as talk:
        await talk.run(content)
        assert images_in(talk.requests[0]) == [image(1).data, image(2, 20_000).data]
        folder = daemon.place.home / "sessions" / talk.session_id / "blobs"
        raw = png(2, 20_000)
        assert [p.name for p in folder.iterdir()] == [hashlib.sha256(raw).hexdigest()]
        assert next(folder.iterdir()).read_bytes() == raw
        wire = daemon.place.wire(talk.session_id).read_bytes()
        assert image(2, 20_000).data.encode()[:100] not in wire  # type: ignore[union-attr]
        assert image(1).data.encode() in wire  # type: ignore[union-attr]
        page = await talk.client.sessions.messages(talk.session_id)
        parts = [p for m in page.messages for p in m.content if isinstance(p, ImagePart)]
        assert [p.blob for p in parts] == [None, hashlib.sha256(raw).hexdigest()]


async def test_a_lost_blob_becomes_words(dialect: str) -> None:
    with FakeLLM(sequence(Reply("seen"))) as llm, a_place(llm) as place:
        model = f"{dialect}/fake-model"
        async with running_sidecar(llm=llm, home=place.home, model=model) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(place.work))
            await sidecar.client.chat.run(session.session_id, [TextPart("keep"), image(1, 20_000)])
            await sidecar.client.chat.run(session.session_id, [TextPart("lose"), image(2, 20_000)])
        lost = hashlib.sha256(png(2, 20_000)).hexdigest()
        (place.home / "sessions" / session.session_id / "blobs" / lost).unlink()
        async with running_sidecar(llm=llm, home=place.home, model=model) as sidecar:
            await sidecar.client.sessions.resume(session.session_id)
            assert (await sidecar.client.chat.run(session.session_id, "next")).stop_reason == "end_turn"
            last = llm.requests[-1]
            check(last)
            assert images_in(last) == [image(1, 20_000).data]
            assert any(lost[:8] in text for _, text in last.texts)
            assert (await sidecar.client.chat.run(session.session_id, "more")).stop_reason == "end_turn"
            assert_append_only([strict_anthropic.without_marks(b) for b in llm.bodies[-2:]])


async def test_an_image_of_several_megabytes_holds_up_nobody(daemon: OneDaemon, dialect: str) -> None:
    large = image(5, 6 << 20)
    async with daemon.talk(dialect, sequence(Reply("seen"))) as talk:
        assert (await talk.run([TextPart("look"), large])).text == "seen"
        assert images_in(talk.requests[0]) == [large.data]


async def test_inputs_keep_their_order_whatever_they_weigh(daemon: OneDaemon) -> None:
    """A text that is sent right behind a large image does not overtake it."""
    gate = Gate()
    async with daemon.talk("openai", sequence(Reply("held", gate=gate), Reply("ok", prompt_tokens=900))) as talk:
        first = await talk.client.chat.send(talk.session_id, "go")
        large: list[Part] = [TextPart("with the image"), image(7, 4 << 20)]
        ended: list[str] = []
        with talk.client.events(talk.session_id) as stream:
            async with anyio.create_task_group() as tasks:
                for content in (large, "behind it"):
                    tasks.start_soon(talk.client.chat.send, talk.session_id, content)
                    await anyio.lowlevel.checkpoint()
            gate.open()
            async for told in stream:
                if isinstance(told.event, e.TurnEnded) and told.turn_id != first.turn_id:
                    ended.append(told.turn_id or "")
                    if len(ended) == 2:
                        break
        users = [t for r, t in talk.requests[-1].texts if r == "user"]
        assert users[-2:] == ["with the image", "behind it"]
