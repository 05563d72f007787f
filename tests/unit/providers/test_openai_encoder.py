"""Chat completions requests, field by field."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from protocol.messages import TextPart, ToolSpec
from sidecar.providers.blocks import EMPTY_MESSAGE, LATE_RESULT, MISSING_RESULT, NO_OUTPUT
from sidecar.providers.port import Prefix
from tests.support.requests import PNG, PREFIX, assistant, calling, encode, image, result, sent, system, user

URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def tool_call(call_id: str, arguments: str = "{}", name: str = "look") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_head() -> None:
    body = orjson.loads(encode("openai", [user("hi")]).body)
    assert list(body) == ["model", "stream", "stream_options", "max_tokens", "tools", "messages"]
    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 1000)
    assert body["stream_options"] == {"include_usage": True}
    assert [t["function"]["name"] for t in body["tools"]] == ["look", "write"]
    assert list(body["tools"][1]["function"]["parameters"]["properties"]) == ["z", "a"]
    assert body["messages"][0] == {"role": "system", "content": PREFIX.system}


def test_what_is_empty_is_left_out() -> None:
    body = orjson.loads(encode("openai", [user("hi")], Prefix("  \n"), limit=None).body)
    assert body == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }  # fmt: skip


def test_user_content() -> None:
    assert sent("openai", [user("a", "", "b", image()), user("one"), user()]) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, URL]},
        {"role": "user", "content": "one"},
        {"role": "user", "content": EMPTY_MESSAGE},
    ]
    assert sent("openai", [user("a", "b")], string_content=True) == [{"role": "user", "content": "a\n\nb"}]
    assert sent("openai", [system("note")])[0]["role"] == "system"


def test_images_by_hash_and_lost_ones() -> None:
    held, lost = image(blob="5e" * 32), image(blob="00" * 32)
    found = sent("openai", [user(held, lost)])[0]["content"]
    assert found[0]["image_url"]["url"] == "data:image/png;base64,iVBORyBibG9i"
    assert found[1] == {"type": "text", "text": "[image lost: 000000000000, image/png]"}
    assert sent("openai", [user(image())], images=False) == [
        {"role": "user", "content": "[image left out: inline, image/png]"}
    ]


def test_assistant_messages() -> None:
    found = sent(
        "openai", [user("q"), assistant("text "), assistant("", calling("c", '{ "x" :  "\\u00e9" }')), result("c", "r")]
    )
    assert found[1] == {"role": "assistant", "content": "text "}
    assert found[2] == {"role": "assistant", "content": None, "tool_calls": [tool_call("c", '{ "x" :  "\\u00e9" }')]}
    assert found[3] == {"role": "tool", "tool_call_id": "c", "content": "r"}


@pytest.mark.parametrize("blank", [assistant(), assistant(" \n"), assistant(reasoning="only thought")])
def test_blank_assistant_messages_are_left_out(blank: Any) -> None:
    assert [m["role"] for m in sent("openai", [user("q"), blank, user("again")])] == ["user", "user"]


def test_argument_text_is_the_models_own_even_if_broken() -> None:
    talk = [user("q"), assistant("", calling("c", '{"x": '), calling("d", "")), result("c", "no"), result("d", "no")]
    assert [c["function"]["arguments"] for c in sent("openai", talk)[1]["tool_calls"]] == ['{"x": ', "{}"]
    repaired = sent("openai", talk, repair_arguments=True)[1]["tool_calls"]
    assert repaired[0]["function"]["arguments"] == '{"malformed_arguments":"{\\"x\\": "}'


def test_results() -> None:
    found = sent("openai", [user("q"), assistant("", calling("c"), calling("d")), result("c", "a", "b"), result("d")])
    assert [m["content"] for m in found[2:]] == ["a\nb", NO_OUTPUT]


def test_images_of_results_follow_all_results() -> None:
    talk = [
        user("q"),
        assistant("", calling("c"), calling("d")),
        result("c", "seen", image()),
        result("d", image()),
        assistant("ok"),
    ]
    found = sent("openai", talk)
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert found[2]["content"] == "seen\n[image shown in the next user message: inline, image/png]"
    assert [p["type"] for p in found[4]["content"]] == ["text", "image_url", "text", "image_url"]
    assert "(d)" in found[4]["content"][2]["text"]
    inline = sent("openai", talk, tool_images="inline")
    assert inline[2]["content"] == [{"type": "text", "text": "seen"}, URL]
    assert len(inline) == 5
    nowhere = sent("openai", talk, tool_images="none")
    assert nowhere[3]["content"] == "[image left out: inline, image/png]"
    assert len(nowhere) == 5


def test_pairing_is_kept_whatever_comes() -> None:
    found = sent(
        "openai", [result("lost", "x"), assistant("", calling("c"), calling("d")), result("d", "y"), user("z")]
    )
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "tool", "user"]
    assert found[0]["content"] == [{"type": "text", "text": f"{LATE_RESULT}\nx"}]
    assert (found[3]["tool_call_id"], found[3]["content"]) == ("c", MISSING_RESULT)
    late = sent("openai", [assistant("", calling("c")), result("other", "x"), result("c", "y")])
    assert [m["role"] for m in late] == ["assistant", "tool", "user"]


def test_reasoning_goes_back_only_where_a_quirk_asks_and_to_its_own_model() -> None:
    talk = [
        user("q"),
        assistant("", calling("c"), reasoning="because"),
        result("c", "r"),
        assistant("done", reasoning="therefore"),
        assistant("", calling("d")),
        result("d", "r"),
        assistant("", calling("e"), reasoning="foreign", model="p/other"),
        result("e", "r"),
        assistant("cut", reasoning="half", partial=True),
    ]

    def replayed(**quirks: Any) -> list[Any]:
        return [m.get("reasoning_content") for m in sent("openai", talk, **quirks) if m["role"] == "assistant"]

    assert replayed() == [None] * 5
    assert replayed(reasoning_replay="tool_calls") == ["because", None, "", "", None]
    assert replayed(reasoning_replay="all") == ["because", "therefore", None, None, None]


def test_names_and_ids_that_strict_providers_refuse() -> None:
    long = "x" * 41
    talk = [
        user("q"),
        assistant("", calling(long, name="functions.look up"), calling("ok")),
        result(long, "r"),
        result("ok", "r"),
    ]
    plain = sent("openai", talk)
    assert plain[1]["tool_calls"][0]["id"] == long
    assert plain[1]["tool_calls"][0]["function"]["name"] == "functions.look up"
    strict = sent("openai", talk, strict_names=True, call_ids="max_40")
    call = strict[1]["tool_calls"][0]
    assert call["function"]["name"] == "functions_look_up"
    assert call["id"].startswith("call_")
    assert strict[2]["tool_call_id"] == call["id"]
    assert strict[3]["tool_call_id"] == "ok"
    nine = sent("openai", talk, call_ids="alnum_9")
    assert len(nine[2]["tool_call_id"]) == 9
    assert nine[2]["tool_call_id"] != nine[3]["tool_call_id"]
    assert sent("openai", [user("q"), assistant("", calling("c", name="")), result("c", "r")])[1]["tool_calls"][0][
        "function"
    ]["name"]


def test_further_quirks_of_the_head() -> None:
    body = orjson.loads(
        encode(
            "openai", [user("q")], stream_options=False, max_tokens_field="max_completion_tokens",
            system_role="developer", parallel_tool_calls=False, extra_body={"reasoning_effort": "low"},
        ).body
    )  # fmt: skip
    assert "stream_options" not in body
    assert body["max_completion_tokens"] == 1000
    assert body["messages"][0]["role"] == "developer"
    assert body["parallel_tool_calls"] is False
    assert body["reasoning_effort"] == "low"


def test_calls_that_have_lost_their_signature() -> None:
    talk = [user("q"), assistant("", calling("c")), result("c", "r")]
    call = sent("openai", talk, unsigned_calls=True)[1]["tool_calls"][0]
    assert call["extra_content"] == {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert "extra_content" not in sent("openai", talk)[1]["tool_calls"][0]


def test_text_that_json_cannot_carry_never_breaks_a_request() -> None:
    message = user(TextPart("half \ud83d \x1b[31m \x07"))
    assert sent("openai", [message])[0]["content"] == "half \ufffd \x1b[31m \x07"
    tool = ToolSpec(name="t", description="\udfff", parameters={"n": 1 << 70})
    assert orjson.loads(encode("openai", [user("q")], Prefix("", (tool,))).body)


def test_the_suffix_goes_last() -> None:
    body = orjson.loads(encode("openai", [user("q"), assistant("a")], suffix=user("summarise")).body)
    assert body["messages"][-1] == {"role": "user", "content": "summarise"}
    assert orjson.loads(encode("openai", [], Prefix(""), suffix=user("only")).body)["messages"] == [
        {"role": "user", "content": "only"}
    ]
