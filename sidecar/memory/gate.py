"""Whether a fact may be written without asking. Pure.

Seven conditions, all of them. Memory outlives the session and speaks in later ones, so everything but the narrowest
kind of new fact is the user's to decide; no approval mode stands in for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from protocol.memory import FactScope, FactType
from sidecar.memory.secrets import Finding

MAX_AUTOMATIC_CHARS: Final = 6_000
AUTOMATIC_TYPES: Final[tuple[FactType, ...]] = ("project", "reference")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is known of a write before it happens.

    `owns_project`: the session's workspace root is that of the project the fact would go to. `type` and `scope` are
    as the model gave them. `findings` are over all of the fact's text, `equal` the ids of facts, project and global,
    that share its name, title or description.
    """

    main_agent: bool
    owns_project: bool
    type: FactType | None
    scope: FactScope | None
    operation: Literal["create", "update", "forget"]
    body_chars: int
    findings: tuple[Finding, ...]
    equal: tuple[str, ...]
    automatic: bool = True


@dataclass(frozen=True, slots=True)
class Granted:
    """It may be created once, as proposed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person has to decide; every reason that applies, in the order of the conditions."""

    reasons: tuple[str, ...]


def judge(proposal: Proposal) -> Granted | Ask:
    """`automatic` is the setting `memory.auto_write`."""
    p = proposal
    reasons: list[str] = []
    if not p.automatic:
        reasons.append("automatic writing is switched off")
    if not (p.main_agent and p.owns_project):
        reasons.append("only the main agent of a session in this project writes by itself")
    if p.type not in AUTOMATIC_TYPES:
        reasons.append("the type is not project or reference")
    if p.scope not in (None, "project"):
        reasons.append("it would hold in every project")
    if p.operation != "create":
        reasons.append("it would change a fact that is there")
    if p.body_chars > MAX_AUTOMATIC_CHARS:
        reasons.append(f"the text is longer than {MAX_AUTOMATIC_CHARS} characters")
    if p.findings:
        reasons.append(f"it seems to hold sensitive text: {', '.join(f.replace('_', ' ') for f in p.findings)}")
    if p.equal:
        reasons.append("there is a fact of an equal name, title or description")
    return Ask(tuple(reasons)) if reasons else Granted()
