"""Any conversation that can be, well formed or not, is accepted by a strict reader of each dialect, and grows by
appending."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import ImagePart, Message, Part, ReasoningBlock, TextPart, ToolCall
from tests.support import strict_anthropic, strict_openai
from tests.support.requests import PNG, PREFIX, Dialect, Held, encoder, user
from tests.support.strict_anthropic import without_marks

TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n\t", "x", "«ü» 🙂 \u2028", "\x00\x1b\x07", "\ud83d", "\\u0000"]), st.text(max_size=12)
)
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(TextPart),
    st.sampled_from(
        [ImagePart("image/png", data=PNG), ImagePart("image/svg+xml", data=PNG), ImagePart("image/png", blob="0" * 64)]
    ),
)
ARGUMENTS = st.sampled_from(["", "{}", '{"a": [1, {"b": null}]}', "[1]", '{"x": ', "\ud800", '{"n": 1e999}', " {} "])
NAMES = st.sampled_from(["look", "write", "functions.look", "", "näme", "x" * 80])
BLOCKS = st.lists(
    st.one_of(
        st.integers(0, 4).map(lambda n: ReasoningBlock(n, "sig")),
        st.just(ReasoningBlock(2)),
        st.just(ReasoningBlock(redacted="opaque")),
    ),
    max_size=3,
).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Users, systems, assistants and results in any order; results of open calls, of closed ones, of none."""
    out: list[Message] = []
    calls: list[str] = []
    for i in range(draw(st.integers(1, 12))):
        content = tuple(draw(st.lists(PARTS, max_size=3)))
        kind = draw(st.sampled_from(["user", "assistant", "tool", "tool", "system"]))
        more: dict[str, Any] = {}
        if kind == "assistant":
            ids = [f"call.{i}:{j}" for j in range(draw(st.integers(0, 3)))]
            made = tuple(ToolCall(c, draw(NAMES), draw(ARGUMENTS)) for c in ids)
            calls += ids
            more = {
                "tool_calls": made or None, "reasoning": draw(TEXTS), "reasoning_blocks": draw(BLOCKS),
                "model": draw(st.sampled_from(["p/m", "p/other", None])), "partial": draw(st.booleans()),
            }  # fmt: skip
        elif kind == "tool":
            call_id = draw(st.sampled_from(calls)) if calls and draw(st.integers(0, 5)) else "unknown"
            more = {"tool_call_id": call_id, "name": "look", "is_error": draw(st.booleans())}
        out.append(Message(id=f"m{i}", role=kind, content=content, time=1, **more))  # type: ignore[arg-type]
    return out


CHECKS = {"openai": strict_openai.check, "anthropic": strict_anthropic.check}
QUIRKS: dict[Dialect, dict[str, Any]] = {"openai": {"strict_names": True, "call_ids": "max_40"}, "anthropic": {}}
DIALECTS: list[Dialect] = ["openai", "anthropic"]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(messages=conversations(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_strict_reader_accepts_it(dialect: Dialect, messages: list[Message], data: st.DataObject) -> None:
    made = encoder(dialect, **QUIRKS[dialect])
    messages.append(user("and now?"))
    for n in [*sorted(data.draw(st.sets(st.integers(0, len(messages)), max_size=3))), len(messages)]:
        made.sync(PREFIX, [Held(m) for m in messages[:n]], 0)
    CHECKS[dialect](made.request(max_output_tokens=100).body)
    CHECKS[dialect](made.request(max_output_tokens=100, suffix=user("summarise")).body)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(messages=conversations())
@settings(max_examples=100, deadline=None)
def test_it_grows_by_appending(dialect: Dialect, messages: list[Message]) -> None:
    made, at_once = encoder(dialect), encoder(dialect)
    open_calls: set[str] = set()
    before = b""
    for n, message in enumerate(messages, 1):
        made.sync(PREFIX, [Held(m) for m in messages[:n]], 0)
        if message.role == "tool":
            open_calls.discard(message.tool_call_id or "")
        else:
            open_calls = {c.id for c in message.tool_calls or ()}
        following = messages[n].role if n < len(messages) else "user"
        if not open_calls and following != "tool":
            request = made.request(max_output_tokens=100)
            body = without_marks(request.body)
            assert body.startswith(before)
            before = body.removesuffix(b"]}")
    at_once.sync(PREFIX, [Held(m) for m in messages], 7)
    assert made.request(max_output_tokens=100) == at_once.request(max_output_tokens=100)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(messages=conversations(), keep=st.data())
@settings(max_examples=60, deadline=None)
def test_a_rewrite_gives_the_bytes_of_a_fresh_encoder(
    dialect: Dialect, messages: list[Message], keep: st.DataObject
) -> None:
    made, fresh = encoder(dialect), encoder(dialect)
    made.sync(PREFIX, [Held(m) for m in messages], 0)
    rest = [m for m in messages if keep.draw(st.booleans())] + [user("new")]
    made.sync(PREFIX, [Held(m) for m in rest], 1)
    fresh.sync(PREFIX, [Held(m) for m in rest], 1)
    assert made.request(max_output_tokens=100) == fresh.request(max_output_tokens=100)


def test_the_readers_refuse_what_is_wrong() -> None:
    good = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
    assert strict_openai.check(good)
    for wrong in (
        good.replace(b'"x"', b'""'), good.replace(b'"user"', b'"tool"'), good.replace(b'"model"', b'"top_k":1,"model"'),
        good.replace(b"x", b"\xff"), good.replace(b'"x"', b"NaN"), good.replace(b'"m"', b'"m","model":"n"'),
        good.replace(b'{"role":"user","content":"x"}', b'{"role":"assistant","content":"x"}'),
        good.replace(b'"content":"x"', b'"content":"\\ud800"'),
    ):  # fmt: skip
        with pytest.raises(strict_openai.Refused):
            strict_openai.check(wrong)
    block = b'{"type":"text","text":"x"}'
    good = b'{"model":"m","max_tokens":1,"stream":true,"messages":[{"role":"user","content":[' + block + b"]}]}"
    assert strict_anthropic.check(good)
    for wrong in (
        good.replace(b'"x"', b'" "'), good.replace(b'"user"', b'"assistant"'), good.replace(block, b""),
        good.replace(b'"max_tokens":1,', b""), good.replace(block, b'{"type":"tool_result","tool_use_id":"a"}'),
        good.replace(b'"text":"x"', b'"text":"x","cache_control":{"type":"forever"}'),
    ):  # fmt: skip
        with pytest.raises(strict_anthropic.Refused):
            strict_anthropic.check(wrong)
