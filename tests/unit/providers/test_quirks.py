"""Declared differences: which endpoint has which, and what the setting may say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sidecar.errors import Fault
from sidecar.providers import quirks
from sidecar.providers.quirks import ChatQuirks, MessagesQuirks, chat_quirks, is_loopback, messages_quirks


def differs(found: ChatQuirks) -> dict[str, Any]:
    standard = msgspec.structs.asdict(ChatQuirks())
    return {k: v for k, v in msgspec.structs.asdict(found).items() if v != standard[k]}


@pytest.mark.parametrize(
    ("name", "url", "wanted"),
    [
        ("x", "http://127.0.0.1:4000/v1", {}),
        ("openai", "http://127.0.0.1:4000/v1", {}),
        ("openai", "https://api.openai.com/v1",
         {"max_tokens_field": "max_completion_tokens", "strict_names": True, "call_ids": "max_40"}),
        ("any", "https://eu.api.openai.com/v1",
         {"max_tokens_field": "max_completion_tokens", "strict_names": True, "call_ids": "max_40"}),
        ("any", "https://notapi.openai.com.example/v1", {}),
        ("any", "https://api.deepseek.com", {"reasoning_replay": "tool_calls", "string_content": True}),
        ("deepseek", "https://proxy.example/v1", {"reasoning_replay": "tool_calls", "string_content": True}),
        ("kimi", "https://proxy.example", {"reasoning_replay": "all"}),
        ("x", "http://localhost:11434/v1", {"repair_arguments": True}),
        ("vllm", "http://10.0.0.3:8000/v1", {"repair_arguments": True}),
        ("x", "http://[bad", {}),
    ],
)  # fmt: skip
def test_chosen_by_address_and_name(name: str, url: str, wanted: dict[str, Any]) -> None:
    assert differs(chat_quirks(name, url, {})) == wanted


def test_the_setting_wins() -> None:
    found = chat_quirks("deepseek", "https://api.deepseek.com", {"reasoning_replay": "none", "stream_options": False})
    assert differs(found) == {"string_content": True, "stream_options": False}
    assert messages_quirks("x", "http://h", {"cache_control": False}) == MessagesQuirks(cache_control=False)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"unknown": 1}, "providers.p.quirks.unknown"),
        ({"stream_options": "no"}, "providers.p.quirks.stream_options"),
        ({"max_tokens_field": "tokens"}, "providers.p.quirks.max_tokens_field"),
        ({"extra_body": {"messages": []}}, "providers.p.quirks.extra_body.messages"),
        ({"extra_body": 5}, "providers.p.quirks.extra_body"),
    ],
)
def test_what_is_unknown_or_wrong_is_named(overrides: dict[str, Any], key: str) -> None:
    with pytest.raises(Fault) as caught:
        chat_quirks("p", "http://h", overrides)
    assert (caught.value.reason, caught.value.data["key"]) == ("config_invalid", key)
    assert key in caught.value.message or caught.value.data["key"].startswith("providers.p.quirks.extra_body")


def test_a_quirk_of_one_dialect_is_unknown_to_the_other() -> None:
    with pytest.raises(Fault):
        messages_quirks("p", "http://h", {"stream_options": False})


def test_every_row_is_valid() -> None:
    for row in (*quirks._CHAT.values(), *quirks._CHAT_NAMES.values()):
        msgspec.convert(row, ChatQuirks, strict=True)
    for row in quirks._MESSAGES.values():
        msgspec.convert(row, MessagesQuirks, strict=True)


@pytest.mark.parametrize(
    ("host", "is_one"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("a.localhost", True),
     ("10.0.0.1", False), ("localhost.example", False), ("example.com", False), ("", False)],
)  # fmt: skip
def test_loopback(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one
