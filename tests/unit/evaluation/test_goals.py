"""What is missed is said: goals, and the checks that the standard makes of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from scripts import eval_compaction
from scripts.evaluation import contest, studies
from scripts.evaluation.arms import ARMS
from scripts.evaluation.contest import Cell, Key, run_all
from scripts.evaluation.goals import checks_of
from scripts.evaluation.page import page
from scripts.evaluation.readings import Outcome
from scripts.evaluation.studies import Point
from scripts.evaluation.summaries import PERFECT
from scripts.evaluation.tables import amount, table
from scripts.evaluation.tasks import TASKS

GOOD = Outcome(
    task="light", arm="default", seed=1, died=False,
    recall=1.0, recovered=1.0, wrong=0.0, constraints=1.0, corrections=1.0, stale=0.0,
    revived=0.0, unheeded=0.0, forgotten=0.0,
    steps=100, prompt_tokens=1_000_000, cached_tokens=900_000, output_tokens=2_000,
    paid=25, landed=24, discarded=1, failed=0, excerpts=0, rewrites=0, stalled=2, stalled_s=9.0,
    growth=1_500.0, after_landing=15_000.0, trigger=90_000.0, summary_tokens=1_500.0,
)  # fmt: skip

BAD: dict[str, dict[str, Any]] = {
    "none": {"died": True, "recall": 0.0, "recovered": 0.0, "landed": 0},
    "naive": {"recall": 0.1, "recovered": 0.1, "landed": 0},
    "fold_only": {"recall": 0.5, "landed": 0},
    "handoff": {"stalled": 24, "prompt_tokens": 1_005_000},
    "span": {"recall": 0.6, "prompt_tokens": 900_000},
    "ladder": {"recall": 0.6},
}


def cells(changes: dict[tuple[str, str], dict[str, Any]] | None = None) -> dict[Key, Cell]:
    """Everything as it should be, but for some cells."""
    changes = changes or {}
    made = {}
    for task in TASKS:
        for arm in ARMS:
            outcome = replace(GOOD, task=task, arm=arm, **{**BAD.get(arm, {}), **changes.get((task, arm), {})})
            made[task, arm, PERFECT.name] = Cell((outcome, replace(outcome, seed=2)))
    return made


def missed(changes: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    return [c.name for c in checks_of(cells(changes)) if not c.met]


def everywhere(arm: str, **fields: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(task, arm): fields for task in TASKS}


def test_all_is_met_where_all_is_as_it_should_be() -> None:
    assert missed({}) == []
    assert {c.kind for c in checks_of(cells())} == {"goal", "standard"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({("chatty", "default"): {"recall": 0.999}}, "recall in context 1.00 everywhere"),
        ({("huge", "default"): {"died": True}}, "no deaths"),
        ({("light", "default"): {"cached_tokens": 599_000}}, "cache hit at least 0.60: light"),
        ({("heavy", "default"): {"cached_tokens": 849_000}}, "cache hit at least 0.85: heavy"),
        (everywhere("handoff", prompt_tokens=989_000), "no arm of equal recall needs 1 % fewer tokens over all tasks"),
        ({("light", "none"): {"died": False}}, "none dies everywhere"),
        (everywhere("naive", recall=0.9), "naive is clearly worse"),
        ({("images", "fold_only"): {"recall": 0.98}}, "fold_only is clearly worse"),
        ({("long", "default"): {"landed": 19}}, "long is long"),
        (everywhere("default", stalled=20), "most landings of default are in the background"),
        (everywhere("default", discarded=0), "turns taken back make results stale"),
        ({("heavy", "handoff"): {"stalled": 3}}, "handoff waits for each of its landings"),
    ],
)
def test_what_is_missed_is_named(changes: dict[tuple[str, str], dict[str, Any]], named: str) -> None:
    assert named in missed(changes)


def test_cheaper_arms_that_forget_are_no_rivals() -> None:
    assert missed(everywhere("span", prompt_tokens=500_000)) == []
    assert missed(everywhere("span", prompt_tokens=500_000, recall=0.999)) != []


def test_a_part_of_the_contest_is_held_to_its_part() -> None:
    part = {key: cell for key, cell in cells().items() if key[0] == "light" and key[1] in ("default", "naive")}
    names = [c.name for c in checks_of(part)]
    assert "cache hit at least 0.60: light" in names
    assert "naive is clearly worse" in names
    assert not [n for n in names if "heavy" in n or "tokens" in n or "none" in n]


def test_rows_have_the_documented_fields() -> None:
    rows = contest.rows_of(cells())
    assert len(rows) == len(TASKS) * len(ARMS)
    assert list(rows[0]) == [
        "task", "arm", "recall", "recall_recovery", "cache_hit", "prompt_tokens", "paid", "discarded", "stalled",
        "deaths",
    ]  # fmt: skip
    assert rows[0] == {
        "task": "light", "arm": "none", "recall": 0.0, "recall_recovery": 0.0, "cache_hit": 0.9,
        "prompt_tokens": 1_000_000, "paid": 25.0, "discarded": 1.0, "stalled": 2.0, "deaths": 2,
    }  # fmt: skip


def test_several_processes_give_the_same_cells_in_the_same_order() -> None:
    jobs = contest.contest(("light",), ("naive", "default"), 2)
    alone, together = run_all(jobs, 1), run_all(jobs, 2)
    assert list(alone) == list(together)
    assert alone == together


def test_the_front_is_what_nothing_beats() -> None:
    def point(name: str, recall: float, tokens: float, waited_s: float, deaths: int = 0) -> Point:
        return Point(name, recall, tokens, tokens, waited_s, deaths)

    best, worse, other, dead = (
        point("best", 0.9, 1.0, 1.0),
        point("worse", 0.8, 1.0, 1.0),
        point("other", 0.8, 0.7, 1.0),
        point("dead", 0.5, 0.7, 1.0, deaths=1),
    )
    assert studies.beats(best, worse)
    assert not studies.beats(worse, best)
    assert not studies.beats(best, other)
    assert studies.beats(other, dead)
    assert not studies.beats(best, best)


def test_the_page_shows_the_same_points_whatever_else_was_tried() -> None:
    def point(n: int, name: str) -> Point:
        return Point(name, recall=n / 100, tokens=1.0, cost=1.0, waited_s=0.0, deaths=0)

    short, whole = ([arm.name for arm in studies.sweep_arms(whole=whole)] for whole in (False, True))
    usual = studies.of_page([point(n, name) for n, name in enumerate(short)])
    assert studies.of_page([point(n, name) for n, name in enumerate(whole)]) == usual
    assert [p.name for p in usual if p.on_front] == short[-1:]


def test_the_page_tells_all_of_it() -> None:
    made = cells({("light", "default"): {"recall": 0.5}})
    arms = {arm.name for arm in (*studies.FIDELITY_ARMS, studies.COST_ARM)}
    for job in studies.study_jobs(1):
        made.setdefault((job.task, job.arm.name, job.fidelity.name), Cell((GOOD,)))
    points = [Point(arm.name, 0.8, 1.0, 1.0, 2.0, 0, True) for arm in studies.sweep_arms(whole=True)]
    text = page(made, checks_of(made), points, 2)
    assert "**4 of 5 goals met.**" in text
    assert "| recall in context 1.00 everywhere | **no** | lowest 0.500, in light |" in text
    assert all(arm in text for arm in arms)
    assert text.count("\n| light |") >= len(ARMS)
    assert "nan" not in text


def test_tables_and_figures() -> None:
    assert table(["a", "b"], [["x", "1.0"], ["y", ""]]) == "| a | b |\n| --- | ---: |\n| x | 1.0 |\n| y |  |"
    assert [amount(x) for x in (7, 999, 5_830, 51_234, 1_250_000, 492_000_000)] == [
        "7", "999", "5.83k", "51.2k", "1.25M", "492M",
    ]  # fmt: skip


# ---------------------------------------------------------------- the command


def test_the_command_prints_rows_and_ends_with_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = eval_compaction.RESULTS.read_bytes()
    arguments = ["--json", "--task", "light", "--arm", "default,naive", "--seeds", "1", "--jobs", "1"]
    assert eval_compaction.main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["task"], row["arm"], row["deaths"]) for row in rows] == [
        ("light", "naive", 0),
        ("light", "default", 0),
    ]
    assert eval_compaction.RESULTS.read_bytes() == before, "a part of it is not the whole page"


@pytest.mark.parametrize("wrong", [["--task", "nonsense"], ["--arm", "nonsense"], ["--seeds", "0"]])
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        eval_compaction.main(wrong)
    assert ended.value.code == 2
    assert capsys.readouterr().err
