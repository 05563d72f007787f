"""The summariser of the simulation: it reads what it is shown, as text, and keeps what its fidelity lets it keep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.messages import Message
from scripts.evaluation import facts
from scripts.evaluation.facts import Belief, Parser, Reading, read
from scripts.evaluation.tasks import filler

PROSE_TOKENS = (300, 900)
"""Of a summary beside the facts in it: at least, and at most (a hundredth of what it was shown)."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a summariser does to what it reads.

    `keeps` is the chance that something said by people or tools is carried over; what only an earlier summary says is
    lost a quarter as often, since it is short and already in form. `invents` is the chance that a kept value comes out
    wrong. Where a correction is lost, the old value is told in its place half of the time. `prose` multiplies what it
    says besides.
    """

    name: str
    keeps: float = 1.0
    invents: float = 0.0
    prose: float = 1.0

    @property
    def carries(self) -> float:
        return 1.0 - (1.0 - self.keeps) / 4


PERFECT = Fidelity("perfect")
CAREFUL = Fidelity("keeps 0.8", keeps=0.8)
CARELESS = Fidelity("keeps 0.5", keeps=0.5)
INVENTS = Fidelity("invents 0.1", keeps=0.95, invents=0.1)
LONG_WINDED = Fidelity("6 x too long", prose=6.0)

FIDELITIES = (PERFECT, CAREFUL, CARELESS, INVENTS, LONG_WINDED)


class Summarizer:
    """Deterministic: what is lost depends on the seed, the fact and how many summaries there were."""

    def __init__(self, fidelity: Fidelity, seed: int, parse: Parser) -> None:
        self._fidelity = fidelity
        self._seed = seed
        self._parse = parse
        self._made = 0

    def summarize(self, shown: Sequence[Message], shown_tokens: int) -> str:
        """The text of the summary of these messages. It knows nothing but what they say."""
        self._made += 1
        reading = read(shown, self._parse)
        lines = [line for key, belief in reading.beliefs.items() if (line := self._line(key, belief))]
        lines += self._jobs(reading)
        least, most = PROSE_TOKENS
        prose = int(self._fidelity.prose * min(most, max(least, shown_tokens // 100)))
        return "\n".join([filler(self._rng("prose"), prose), *lines])

    def _line(self, key: str, belief: Belief) -> str | None:
        rng = self._rng(key)
        if rng.random() >= (self._fidelity.keeps if belief.first_hand else self._fidelity.carries):
            if belief.void is not None and rng.random() < 0.5:
                return f"- {facts.stated(key, belief.void)}"
            return None
        if rng.random() < self._fidelity.invents:
            wrong = "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=7))
            return f"- {facts.stated(key, wrong)}"
        return f"- {facts.stated(key, belief.value, belief.void)}"

    def _jobs(self, reading: Reading) -> list[str]:
        lines = []
        for job, first_hand in reading.done.items():
            if self._kept(job, first_hand):
                lines.append(f"- {facts.done(job)}")
        for job in reading.open_jobs:
            if self._kept(job, reading.asked[job]):
                lines.append(f"- still to do: {facts.asked(job)}")
        return lines

    def _kept(self, key: str, first_hand: bool) -> bool:
        keeps = self._fidelity.keeps if first_hand else self._fidelity.carries
        return self._rng(key).random() < keeps

    def _rng(self, key: str) -> random.Random:
        return random.Random(f"{self._seed} {self._made} {key}")
