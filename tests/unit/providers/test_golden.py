"""Request bodies byte for byte. `python -m tests.unit.providers.test_golden` writes them anew; read the difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages import Message, ReasoningBlock
from tests.support import strict_anthropic, strict_openai
from tests.support.requests import Dialect, assistant, calling, encode, image, result, user

FOLDER = Path(__file__).parents[2] / "golden" / "requests"

TALK: list[Message] = [
    user("Draw «ü» 🙂\u2028 and say\t\x07 why."),
    assistant(
        "Looking.",
        calling("call_1", '{ "x" :  "\\u00e9", "n": 1.0 }'),
        calling("call_2", '{"broken": ', name="write"),
        reasoning="First this.Then that.",
        blocks=(ReasoningBlock(11, "c2lnMQ=="), ReasoningBlock(redacted="b3BhcXVl"), ReasoningBlock(10, "c2lnMg==")),
    ),
    result("call_1", "seen", image()),
    result("call_2", "The arguments are no JSON object.", is_error=True),
    assistant("Done.", model="p/other", reasoning="of another model"),
    assistant("cut of", partial=True),
    user("two", "parts", image("image/webp"), image(blob="00" * 32)),
]
STRICT: dict[str, Any] = {"strict_names": True, "call_ids": "max_40"}
THINKING: dict[str, Any] = {"reasoning_replay": "tool_calls", "string_content": True, "images": False}
INLINE: dict[str, Any] = {"tool_images": "inline", "stream_options": False, "max_tokens_field": "max_completion_tokens"}

CASES: dict[str, tuple[Dialect, list[Message], Message | None, dict[str, Any]]] = {
    "openai-first": ("openai", TALK[:1], None, {}),
    "openai-long": ("openai", TALK, None, STRICT),
    "openai-summary": ("openai", TALK, user("Summarise."), {}),
    "openai-thinking": ("openai", TALK, None, THINKING),
    "openai-inline": ("openai", TALK, None, INLINE),
    "anthropic-first": ("anthropic", TALK[:1], None, {}),
    "anthropic-long": ("anthropic", TALK, None, {}),
    "anthropic-summary": ("anthropic", TALK, user("Summarise."), {}),
    "anthropic-unmarked": ("anthropic", TALK, None, {"cache_control": False}),
}


def body(case: str) -> bytes:
    dialect, messages, suffix, quirks = CASES[case]
    return encode(dialect, messages, suffix=suffix, **quirks).body


@pytest.mark.parametrize("case", CASES)
def test_the_bytes(case: str) -> None:
    assert body(case) == (FOLDER / f"{case}.json").read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_a_strict_reader_accepts_them(case: str) -> None:
    if case == "openai-thinking":
        return  # its fields are the quirk's
    (strict_openai.check if case.startswith("openai") else strict_anthropic.check)(body(case))


def test_no_golden_file_is_left_over() -> None:
    assert {p.stem for p in FOLDER.iterdir()} == set(CASES)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        (FOLDER / f"{name}.json").write_bytes(body(name))
