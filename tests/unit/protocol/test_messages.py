"""The wire forms, as golden JSON, both ways."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from protocol.events import ChatEvent
from protocol.messages import Message, TurnResult
from protocol.methods import BY_NAME

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "protocol"
CASES = sorted(GOLDEN.glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_golden(path: Path) -> None:
    """Decoding and encoding again gives the same JSON: no field is lost, renamed or added."""
    case = json.loads(path.read_text("utf-8"))
    kind = {"message": Message, "turn_result": TurnResult, "event": ChatEvent}.get(case["as"])
    if kind is None:
        method = BY_NAME[case["as"].split(" ")[0]]
        kind = method.params if case["as"].endswith("params") else method.result
    for value in case["values"]:
        typed = msgspec.convert(value, kind, strict=True)
        assert json.loads(msgspec.json.encode(typed)) == value


def test_there_are_cases() -> None:
    assert len(CASES) >= 8
