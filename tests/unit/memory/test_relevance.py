"""How well recall does on a small set of facts and questions that was written before it was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sidecar.memory.catalogue import Catalogue
from tests.support.memory import fact
from tests.unit.memory.test_recall import recalled

FOLDER = Path(__file__).parents[2] / "golden" / "recall"


@dataclass(frozen=True)
class Figures:
    """Shares of the questions of a kind: `hit` has the wanted fact among what is told, `first` at its head; `extra`
    is facts told beside it, per question."""

    asked: int
    hit: float
    first: float
    extra: float


def load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return rows


@pytest.fixture(scope="module")
def told() -> list[tuple[dict[str, Any], list[str]]]:
    facts = [fact(row["key"], **{k: v for k, v in row.items() if k != "key"}) for row in load("facts.json")]
    assert len(facts) == 60
    catalogue = Catalogue()
    for one in facts:
        catalogue.put(one)
    questions = load("questions.json")
    assert len(questions) == 40
    return [(q, [hit.fact.id for hit in recalled(q["ask"], *facts).hits]) for q in questions]


def figures(told: list[tuple[dict[str, Any], list[str]]], *kinds: str) -> Figures:
    rows = [(q["want"], got) for q, got in told if q["want"] and (not kinds or q["kind"] in kinds)]
    return Figures(
        len(rows),
        sum(want[0] in got for want, got in rows) / len(rows),
        sum(got[:1] == want for want, got in rows) / len(rows),
        sum(len([g for g in got if g not in want]) for want, got in rows) / len(rows),
    )


def test_the_wanted_fact_is_told(told: list[tuple[dict[str, Any], list[str]]]) -> None:
    """Measured: hit 0.94, first 0.91, 0.09 others a question."""
    all_kinds = figures(told)
    assert all_kinds.asked == 34
    assert all_kinds.hit >= 0.91
    assert all_kinds.first >= 0.88
    assert all_kinds.extra <= 0.2


@pytest.mark.parametrize(("kind", "floor"), [("english", 0.9), ("chinese", 0.85), ("mixed", 1.0), ("identifier", 1.0)])
def test_no_kind_of_question_is_left_behind(
    told: list[tuple[dict[str, Any], list[str]]], kind: str, floor: float
) -> None:
    assert figures(told, kind).hit >= floor


def test_questions_about_something_else_are_told_nothing(told: list[tuple[dict[str, Any], list[str]]]) -> None:
    asked = [(q["ask"], got) for q, got in told if not q["want"]]
    assert len(asked) == 6
    assert [(ask, got) for ask, got in asked if got] == []
