"""Seven conditions for writing unasked: all of them, or a question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sidecar.memory.gate import MAX_AUTOMATIC_CHARS, Ask, Granted, Proposal, judge

CLEAN = Proposal(
    main_agent=True, owns_project=True, type="project", scope=None, operation="create",
    body_chars=MAX_AUTOMATIC_CHARS, findings=(), equal=(),
)  # fmt: skip


@pytest.mark.parametrize("change", [{}, {"type": "reference"}, {"scope": "project"}, {"body_chars": 1}])
def test_all_met(change: dict[str, Any]) -> None:
    assert judge(replace(CLEAN, **change)) == Granted()


@pytest.mark.parametrize(
    "change",
    [
        {"main_agent": False},
        {"owns_project": False},
        {"type": "user"},
        {"type": "feedback"},
        {"type": None},
        {"scope": "global"},
        {"operation": "update"},
        {"operation": "forget"},
        {"body_chars": MAX_AUTOMATIC_CHARS + 1},
        {"findings": ("email",)},
        {"equal": ("fact_1",)},
        {"automatic": False},
    ],
)
def test_each_alone_leads_to_a_question_with_its_reason(change: dict[str, Any]) -> None:
    verdict = judge(replace(CLEAN, **change))
    assert isinstance(verdict, Ask)
    assert len(verdict.reasons) == 1


def test_every_reason_is_told() -> None:
    verdict = judge(replace(CLEAN, type="user", scope="global", findings=("email", "private_key")))
    assert isinstance(verdict, Ask)
    assert verdict.reasons == (
        "the type is not project or reference",
        "it would hold in every project",
        "it seems to hold sensitive text: email, private key",
    )
