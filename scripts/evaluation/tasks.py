"""The tasks: what happens in a session, whoever compacts it. Scripts are made from a name and a seed, and nothing else.

    light     32k window    one agent at work: steps of some 1,900 tokens, the window is filled about five times
    heavy    128k window    the same with larger results, some calls at once, steering
    long     128k window    more than twenty fillings
    chatty    64k window    the user says most of it: long messages, corrections, turns taken back, pauses over the
                            life of the cache
    images    64k window    screenshots from the user and from tools, pauses as well
    huge       1M window    steps of 1,500 tokens: what a window costs that nobody needs
    pauses   128k window    not in the table: `heavy` with pauses over the life of the cache and results that snip cuts
    bulky     32k window    not in the table: `light` with results of a tenth of the window and more

Facts are planted in the user's words, the assistant's and in tool results (anywhere inside them).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Final

from scripts.evaluation import facts
from scripts.evaluation.facts import Fact, Place

TASKS: Final = ("light", "heavy", "long", "chatty", "images", "huge")

CACHE_TTL_S: Final = 300


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and what comes of it. `tool` is its name; an error is an error result."""

    tool: str
    result: str
    image: bool = False
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: its text and its calls (none ends the turn), and how long the tools take."""

    text: str
    calls: tuple[Call, ...] = ()
    tools_s: float = 0.0
    steer: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """`pause_s` passes before the user writes. `taken_back`: undone a moment after its end."""

    text: str
    steps: tuple[Step, ...]
    pause_s: float
    images: int = 0
    taken_back: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A session. `facts`, `jobs_done` and `jobs_put_off` (never done) are what holds at its end."""

    task: str
    seed: int
    window: int
    system: str
    turns: tuple[Turn, ...]
    facts: tuple[Fact, ...]
    jobs_done: tuple[str, ...]
    jobs_put_off: tuple[str, ...]

    @property
    def steps(self) -> int:
        return sum(len(turn.steps) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens between two bounds, most often near `usual`."""

    usual: int
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        return min(self.most, max(self.least, round(self.usual * rng.lognormvariate(0.0, 0.6))))


@dataclass(frozen=True, slots=True)
class Plan:
    """How a task's scripts are made. Shares are chances: of a step to make two calls, of a result to be an error or to
    hold an image, of a turn to be taken back, to correct an earlier one, to forbid or demand something or to put a job
    off, of a pause to outlast the cache. `facts`: in how many of a hundred user messages, answers and results there is
    one."""

    window: int
    turns: int
    steps: tuple[int, int]
    user: Sizes
    answer: Sizes
    result: Sizes
    two_calls: float = 0.15
    errors: float = 0.03
    images: float = 0.0
    user_images: float = 0.0
    steers: float = 0.0
    taken_back: float = 0.0
    long_pauses: float = 0.0
    facts: tuple[float, float, float] = (60.0, 12.0, 14.0)
    corrections: float = 0.25
    constraints: float = 0.6
    put_off: float = 0.15
    system: int = 1_200


PLANS: Final[dict[str, Plan]] = {
    "light": Plan(
        32_768, 4, (12, 18), Sizes(120, 40, 400), Sizes(90, 30, 400), Sizes(1_500, 150, 4_500), facts=(100, 14, 16)
    ),
    "heavy": Plan(
        131_072, 6, (35, 50), Sizes(250, 60, 900), Sizes(140, 40, 600), Sizes(2_000, 150, 9_000), two_calls=0.25,
        steers=0.01, system=2_500,
    ),
    "long": Plan(
        131_072, 14, (45, 60), Sizes(250, 60, 900), Sizes(140, 40, 600), Sizes(2_300, 150, 9_000), two_calls=0.25,
        steers=0.01, facts=(60, 6, 7), system=2_500,
    ),
    "chatty": Plan(
        65_536, 170, (0, 1), Sizes(900, 150, 3_000), Sizes(260, 60, 900), Sizes(500, 100, 1_800), taken_back=0.06,
        long_pauses=0.12, facts=(40, 15, 15), corrections=0.4, constraints=0.2,
    ),
    "images": Plan(
        65_536, 22, (4, 8), Sizes(150, 40, 500), Sizes(160, 50, 500), Sizes(500, 100, 1_800), images=0.5,
        user_images=0.6, long_pauses=0.15, facts=(60, 25, 12), system=2_000,
    ),
    "huge": Plan(
        1_000_000, 26, (44, 54), Sizes(250, 60, 900), Sizes(130, 40, 500), Sizes(1_150, 100, 6_000), facts=(60, 5, 6),
        system=6_000,
    ),
    "bulky": Plan(
        32_768, 4, (12, 18), Sizes(120, 40, 400), Sizes(90, 30, 400), Sizes(3_000, 150, 9_000), facts=(100, 14, 16)
    ),
    "pauses": Plan(
        131_072, 40, (5, 8), Sizes(250, 60, 900), Sizes(140, 40, 600), Sizes(3_000, 150, 11_000), long_pauses=0.4,
        system=2_500,
    ),
}  # fmt: skip


def make(task: str, seed: int) -> Script:
    """The script of a task; the same for the same seed."""
    return _Maker(task, PLANS[task], random.Random(f"{task} {seed}")).script(seed)


class _Maker:
    def __init__(self, task: str, plan: Plan, rng: random.Random) -> None:
        self._task = task
        self._plan = plan
        self._rng = rng
        self._facts: dict[str, Fact] = {}
        self._jobs_done: list[str] = []
        self._jobs_put_off: list[str] = []
        self._correctable: list[str] = []

    def script(self, seed: int) -> Script:
        turns = tuple(self._turn(n) for n in range(self._plan.turns))
        return Script(
            self._task, seed, self._plan.window, filler(self._rng, self._plan.system), turns,
            tuple(self._facts.values()), tuple(self._jobs_done), tuple(self._jobs_put_off),
        )  # fmt: skip

    # ------------------------------------------------------------ turns

    def _turn(self, n: int) -> Turn:
        plan, rng = self._plan, self._rng
        taken_back = n > 0 and rng.random() < plan.taken_back
        before = dict(self._facts), list(self._jobs_done), list(self._correctable)
        job = self._job()
        text = self._user_text(n, job)
        count = rng.randint(*plan.steps)
        steps = [self._step() for _ in range(count)]
        closing = self._planted("assistant", filler(rng, plan.answer.draw(rng)), chance=0.5)
        if taken_back:
            self._facts, self._jobs_done, self._correctable = before
        else:
            if rng.random() < plan.put_off:
                self._jobs_put_off.append(later := self._job())
                text += f"\nBut {facts.asked(later, later=True)}."
            closing = f"{closing}\n{facts.done(job)}."
            self._jobs_done.append(job)
        pause = rng.uniform(400, 1_500) if rng.random() < plan.long_pauses else rng.uniform(10, 200)
        images = int(rng.random() < plan.user_images)
        return Turn(text, (*steps, Step(closing)), pause if n else 0.0, images, taken_back)

    def _job(self) -> str:
        return f"job-{_token(self._rng, 6).lower()}"

    def _user_text(self, n: int, job: str) -> str:
        plan, rng = self._plan, self._rng
        text = self._planted("user", filler(rng, plan.user.draw(rng))) + f"\nPlease {facts.asked(job)}."
        if n == 0:
            text += "\n" + self._plant("user", "Whatever happens, keep to this: {}.", constraint=True)
        elif rng.random() < plan.constraints:
            text += "\n" + self._plant("user", "Never go over this: {}.", constraint=True)
        if self._correctable and rng.random() < plan.corrections:
            text += "\n" + self._corrected()
        return text

    def _step(self) -> Step:
        plan, rng = self._plan, self._rng
        calls = tuple(self._call() for _ in range(2 if rng.random() < plan.two_calls else 1))
        text = self._planted("assistant", filler(rng, plan.answer.draw(rng)))
        steer = None
        if rng.random() < plan.steers:
            steer = self._plant("user", "One more thing while you are at it: {}.")
        return Step(text, calls, rng.uniform(0.3, 6.0), steer)

    def _call(self) -> Call:
        rng = self._rng
        tool = rng.choice(("read_file", "grep", "run_command", "list_dir"))
        if rng.random() < self._plan.errors:
            return Call(tool, f"error: {filler(rng, 60)}", is_error=True)
        text = self._planted("tool", filler(rng, self._plan.result.draw(rng)))
        return Call(tool, text, image=rng.random() < self._plan.images)

    # ------------------------------------------------------------ facts

    def _planted(self, place: Place, text: str, chance: float | None = None) -> str:
        """`text` with a fact somewhere inside, as often as the plan says."""
        share = dict(zip(("user", "assistant", "tool"), self._plan.facts, strict=True))[place] / 100
        if self._rng.random() >= (share if chance is None else share * chance):
            return text
        at = text.find(" ", int(self._rng.random() * len(text) * 0.95))
        at = len(text) if at < 0 else at
        return f"{text[:at]}\n{self._plant(place, 'Note: {}.')}\n{text[at:].lstrip()}"

    def _plant(self, place: Place, sentence: str, constraint: bool = False) -> str:
        rng = self._rng
        key = f"{rng.choice(_AREAS)}.{rng.choice(_THINGS)}.{_token(rng, 5).lower()}"
        value = _token(rng, 7)
        self._facts[key] = Fact(key, value, place, constraint=constraint)
        if place == "user" and not constraint:
            self._correctable.append(key)
        return sentence.format(facts.stated(key, value))

    def _corrected(self) -> str:
        key = self._correctable.pop(self._rng.randrange(len(self._correctable)))
        old = self._facts[key].value
        new = _token(self._rng, 7)
        self._facts[key] = Fact(key, new, "user", void=old)
        return f"No, that was wrong, use this: {facts.stated(key, new, old)}."


# ---------------------------------------------------------------- words

_AREAS = ("proxy", "store", "queue", "index", "billing", "login", "mailer", "cache", "router", "export")
_THINGS = ("port", "limit", "owner", "path", "region", "version", "timeout", "token", "schema", "flag")
_WORDS = """
the of and to in is that it was for on are as with they be at one have this from or had by word but what some we can
out other were all there when up use your how said an each she which do their time if will way about many then them
write would like so these her long make thing see him two has look more day could go come did number sound no most
people over know water than call first who may down side been now find any new work part take get place made live
where after back little only round man year came show every good me give our under name very through just form
sentence great think say help low line differ turn cause much mean before move right boy old too same tell does set
three want air well also play small end put home read hand port large spell add even land here must big high such
follow act why ask men change went light kind off need house picture try us again animal point mother world near build
self earth father
""".split()  # noqa: SIM905

_POOL_CHARS = 3_000_000


@cache
def _pool() -> str:
    rng = random.Random("filler")
    words = rng.choices(_WORDS, k=_POOL_CHARS // 5)
    lines = (" ".join(words[i : i + 14]) for i in range(0, len(words), 14))
    return "\n".join(lines)


def filler(rng: random.Random, tokens: int) -> str:
    """Text of about so many tokens that says nothing; hardly ever the same twice."""
    pool = _pool()
    start = rng.randrange(len(pool) - 4 * tokens)
    return pool[start : start + 4 * tokens]


_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def _token(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(_LETTERS, k=length))
