"""Messages requests, field by field."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest

from protocol.messages import ReasoningBlock, ToolSpec
from sidecar.providers.anthropic import CACHE_MARK
from sidecar.providers.blocks import EMPTY_MESSAGE, MISSING_RESULT, NO_OUTPUT
from sidecar.providers.port import Prefix
from tests.support.requests import (
    PNG,
    PREFIX,
    Held,
    assistant,
    calling,
    encode,
    encoder,
    image,
    result,
    sent,
    system,
    user,
)
from tests.support.strict_anthropic import marks, without_marks

MARK = {"cache_control": {"type": "ephemeral"}}


def plain(messages: Any, **more: Any) -> Any:
    return sent("anthropic", messages, cache_control=False, **more)


def test_the_head() -> None:
    body = orjson.loads(encode("anthropic", [user("hi")]).body)
    assert list(body) == ["model", "stream", "max_tokens", "tools", "system", "messages"]
    assert body["system"] == [{"type": "text", "text": PREFIX.system, **MARK}]
    assert [t["name"] for t in body["tools"]] == ["look", "write"]
    assert [t.get("cache_control") for t in body["tools"]] == [None, MARK["cache_control"]]
    assert body["tools"][1]["input_schema"] == dict(PREFIX.tools[0].parameters)


def test_what_is_empty_is_left_out_and_a_limit_is_always_there() -> None:
    body = orjson.loads(encode("anthropic", [user("hi")], Prefix(""), limit=None, default_max_tokens=77).body)
    assert body == {
        "model": "m", "stream": True, "max_tokens": 77,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]}],
    }  # fmt: skip


def test_a_schema_without_a_type_gets_one() -> None:
    tool = ToolSpec(name="t", parameters={"properties": {}})
    body = orjson.loads(encode("anthropic", [user("q")], Prefix("", (tool,))).body)
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": {}}


def test_user_content() -> None:
    assert plain([user("a", " ", "b"), user(" \n"), user(image())]) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": EMPTY_MESSAGE}]},
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
    ]  # fmt: skip
    assert plain([system("note")])[0]["content"][0]["text"] == "<system-reminder>\nnote\n</system-reminder>"


def test_images_that_the_dialect_does_not_take() -> None:
    found = plain([user(image("image/svg+xml"), image(blob="00" * 32), image("image/jpg"))])[0]["content"]
    assert found[0]["text"] == "[image left out: inline, image/svg+xml]"
    assert found[1]["text"] == "[image lost: 000000000000, image/png]"
    assert found[2]["source"]["media_type"] == "image/jpeg"


def test_results_share_one_message_and_users_have_their_own() -> None:
    found = plain(
        [
            user("one"), user("two"), assistant("", calling("c"), calling("d"), calling("e")),
            result("c", "ok"), result("d", "bad", is_error=True), result("e", "see", image()), user("three"),
        ]
    )  # fmt: skip
    assert [m["role"] for m in found] == ["user", "user", "assistant", "user", "user"]
    assert found[3]["content"] == [
        {"type": "tool_result", "tool_use_id": "c", "content": "ok"},
        {"type": "tool_result", "tool_use_id": "d", "is_error": True, "content": "bad"},
        {"type": "tool_result", "tool_use_id": "e", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
    ]  # fmt: skip


def test_results_are_never_empty_and_every_call_has_one() -> None:
    found = plain([user("q"), assistant("", calling("c"), calling("d")), result("c", " "), user("next")])
    assert found[2]["content"][0]["content"] == NO_OUTPUT
    assert found[2]["content"][1] == {
        "type": "tool_result", "tool_use_id": "d", "is_error": True, "content": MISSING_RESULT,
    }  # fmt: skip
    assert len(found) == 4


def test_a_late_result_is_text_of_the_user() -> None:
    found = plain([assistant("", calling("c")), result("x", "late"), result("c", "r"), assistant("a")])
    assert [m["role"] for m in found] == ["user", "assistant", "user", "user", "assistant"]
    assert found[3]["content"][0]["text"].endswith("late")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"b": 1.0, "a": 12345678901234567890123}', b'{"b": 1.0, "a": 12345678901234567890123}'),
        ("", b"{}"), ("[1]", b'{"malformed_arguments":"[1]"}'), ('{"x": ', b'{"malformed_arguments":"{\\"x\\": "}'),
    ],
)  # fmt: skip
def test_arguments_are_the_models_own_text_where_they_are_an_object(text: str, wanted: bytes) -> None:
    body = encode("anthropic", [user("q"), assistant("", calling("c", text)), result("c", "r")]).body
    assert b'"input":' + wanted + b"}" in body


def test_names_and_ids_that_the_dialect_refuses() -> None:
    found = plain([user("q"), assistant("", calling("functions.look:0", name="a b")), result("functions.look:0", "r")])
    use, answer = found[1]["content"][0], found[2]["content"][0]
    assert use["name"] == "a_b"
    assert use["id"].startswith("toolu_")
    assert answer["tool_use_id"] == use["id"]


def test_reasoning_goes_back_signed_and_to_its_own_model() -> None:
    blocks = (
        ReasoningBlock(5, "sig1"),
        ReasoningBlock(redacted="opaque"),
        ReasoningBlock(3),
        ReasoningBlock(0, "sig2"),
    )
    thought = {"reasoning": "firstXXX", "blocks": blocks}
    found = plain(
        [
            user("q"), assistant("a", **thought), user("q"), assistant("b", model="p/other", **thought), user("q"),
            assistant("c", partial=True, **thought), user("q"),
        ]
    )  # fmt: skip
    assert found[1]["content"] == [
        {"type": "thinking", "thinking": "first", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "thinking", "thinking": "", "signature": "sig2"},
        {"type": "text", "text": "a"},
    ]
    assert [b["type"] for b in found[3]["content"] + found[5]["content"]] == ["text", "text"]


def test_reasoning_between_texts_goes_back_to_its_place() -> None:
    blocks = (
        ReasoningBlock(1, "s1"), ReasoningBlock(1, "s2", at=2), ReasoningBlock(redacted="o", at=5),
        ReasoningBlock(1, "s3", at=9),
    )  # fmt: skip
    found = plain([user("q"), assistant("ab \n cdef", reasoning="xyz", blocks=blocks), user("q")])
    assert [b.get("text") or b.get("thinking") or b["data"] for b in found[1]["content"]] == [
        "x", "ab", "y", "o", " \n cdef", "z",
    ]  # fmt: skip


def test_the_first_message_is_the_users() -> None:
    found = plain([assistant("hello"), user("hi")])
    assert [m["role"] for m in found] == ["user", "assistant", "user"]


def test_text_that_json_cannot_carry_never_breaks_a_request() -> None:
    talk = [user("half \ud83d\x07"), assistant("\udfff", calling("c", '{"x": "\ud800"}')), result("c", "\ud800")]
    found = plain(talk)
    assert found[0]["content"][0]["text"] == "half \ufffd\x07"
    assert found[1]["content"][1]["input"] == {"x": "\ufffd"}


def marked(body: bytes) -> list[int]:
    """Indices of the messages that carry a mark."""
    return [i for i, m in enumerate(orjson.loads(body)["messages"]) if marks(m)]


def test_marks_stand_on_the_last_two_user_messages_and_move() -> None:
    talk = [user("a"), assistant("b"), user("c"), assistant("", calling("d")), result("d", "e")]
    made = encoder("anthropic")
    seen = []
    for n in (1, 3, 5):
        made.sync(PREFIX, [Held(m) for m in talk[:n]], 0)
        seen.append(made.request(max_output_tokens=9).body)
    assert [marked(b) for b in seen] == [[0], [0, 2], [2, 4]]
    assert all(marks(orjson.loads(b)) <= 4 for b in seen)
    last = orjson.loads(seen[-1])["messages"][4]["content"][-1]
    assert (last["type"], last["cache_control"]) == ("tool_result", MARK["cache_control"])
    for earlier, later in pairwise(seen):
        assert without_marks(later).startswith(without_marks(earlier).removesuffix(b"]}"))


def test_a_summary_request_keeps_the_last_steps_marks_and_has_none_on_its_suffix() -> None:
    talk = [user("a"), assistant("b"), user("c")]
    made = encoder("anthropic")
    made.sync(PREFIX, [Held(m) for m in talk], 0)
    step = made.request(max_output_tokens=9).body
    more = [*talk, assistant("", calling("d")), result("d", "e"), assistant("f")]
    made.sync(PREFIX, [Held(m) for m in more], 0)
    summary = made.request(max_output_tokens=9, suffix=user("summarise")).body
    assert marked(summary) == marked(step) == [0, 2]
    assert summary.startswith(step.removesuffix(b"]}"))
    made.sync(PREFIX, [Held(m) for m in [*more, user("g")]], 0)
    following = made.request(max_output_tokens=9).body
    assert marked(following) == [4, 6]
    tail = b'{"role":"user","content":[{"type":"text","text":"summarise"}]}]}'
    assert without_marks(following).startswith(without_marks(summary).removesuffix(b"," + tail))


def test_no_marks_where_a_quirk_says_so() -> None:
    assert CACHE_MARK not in encode("anthropic", [user("a")], cache_control=False).body
