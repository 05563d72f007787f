"""The loop of one session: turns, steps, tools, steering, undo; with the hooks where the daemon's loop has them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import anyio

from protocol.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
from record_store import records as r
from scripts.evaluation import simtime
from scripts.evaluation.agent import MODEL, SimulatedAgent, World
from scripts.evaluation.arms import Arm, Compactor
from scripts.evaluation.facts import Parser
from scripts.evaluation.model import Answer, Provider, message_tokens
from scripts.evaluation.summaries import Fidelity, Summarizer
from scripts.evaluation.tasks import CACHE_TTL_S, Call, Script, Step, Turn, filler
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError

TOOLS = ("grep", "list_dir", "read_file", "run_command", "todo_write", "write_file")

FACTORS = (0.94, 1.12)
"""How many of its tokens the provider counts for one of ours; drawn anew for each seed."""

MAX_ATTEMPTS = 10
"""Of one step; no arm needs as many."""

BEFORE_UNDO_S = 3.0


@dataclass(slots=True)
class Course:
    """How a session went: steps that were answered, tokens that they added, waits of more than a millisecond."""

    steps: int = 0
    added: int = 0
    stalled: int = 0
    stalled_s: float = 0.0
    died: bool = False


@dataclass(frozen=True, slots=True)
class Played:
    """A session after its last turn."""

    script: Script
    arm: str
    agent: SimulatedAgent
    course: Course
    parse: Parser


def play(script: Script, arm: Arm, fidelity: Fidelity) -> Played:
    """Plays a script against an arm, in simulated time. What the daemon would log as unexpected is raised."""

    async def main() -> Played:
        rng = random.Random(f"world {script.task} {script.seed}")
        parse = Parser()
        provider = Provider(script.window, rng.uniform(*FACTORS), CACHE_TTL_S)
        async with anyio.create_task_group() as group:
            summarizer = Summarizer(fidelity, script.seed, parse)
            world = World(provider, summarizer, group, rng, filler(random.Random("tool"), 60))
            agent = SimulatedAgent(world, arm.settings(), script.system, TOOLS)
            session = _Session(agent, arm.compactor(agent))
            await session.play(script)
        return Played(script, arm.name, agent, session.course, parse)

    played = simtime.run(main)
    for error in played.agent.failures:
        raise error
    return played


class _Session:
    def __init__(self, agent: SimulatedAgent, hooks: Compactor) -> None:
        self._agent = agent
        self._hooks = hooks
        self._ids = 0
        self.course = Course()

    async def play(self, script: Script) -> None:
        try:
            for n, turn in enumerate(script.turns):
                await anyio.sleep(turn.pause_s)
                await self._turn(f"turn{n}", turn)
                if turn.taken_back:
                    await anyio.sleep(BEFORE_UNDO_S)
                    self._undo(f"turn{n}")
        except (ProviderError, Fault) as error:
            if not _is_death(error):
                raise
            self.course.died = True
        finally:
            await self._hooks.close()

    async def _turn(self, turn_id: str, turn: Turn) -> None:
        agent = self._agent
        message = self._say(turn.text, turn.images)
        agent.append(r.AppendMessage(agent.now_ms(), message, turn_id, "turn"))
        agent.append(r.TurnBegin(agent.now_ms(), turn_id, (message.id,)))
        for n, step in enumerate(turn.steps, 1):
            await self._step(turn_id, n, step)
        agent.append(r.TurnEnd(agent.now_ms(), turn_id, "end_turn", Usage()))

    async def _step(self, turn_id: str, n: int, step: Step) -> None:
        agent, hooks, course = self._agent, self._hooks, self.course
        began = anyio.current_time()
        await hooks.on_will_begin_step(turn_id)
        self._waited(began)
        steers: tuple[str, ...] = ()
        if step.steer is not None:
            message = self._say(step.steer)
            agent.append(r.AppendMessage(agent.now_ms(), message, turn_id, "steer"))
            steers = (message.id,)
        agent.append(r.StepBegin(agent.now_ms(), turn_id, n, steers))
        said = self._answer(step)
        answer = await self._ask(turn_id, message_tokens(said))
        await anyio.sleep(answer.seconds)
        agent.append(r.AppendMessage(agent.now_ms(), said, turn_id))
        agent.usage(answer)
        if step.calls:
            await anyio.sleep(step.tools_s)
        for call, issued in zip(step.calls, said.tool_calls or (), strict=True):
            agent.append(r.AppendMessage(agent.now_ms(), self._result(call, issued), turn_id))
        used = agent.used()
        course.steps += 1
        course.added += max(0, used - answer.prompt)
        agent.append(r.StepEnd(agent.now_ms(), turn_id, n, used, hooks.breakers_after_step(used)))
        await hooks.on_did_finish_step(turn_id)

    async def _ask(self, turn_id: str, output: int) -> Answer:
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._agent.request(output)
            except ProviderError as error:
                began = anyio.current_time()
                if not await self._hooks.on_request_error(turn_id, error):
                    raise
                self._waited(began)
        raise ProviderError("overflow", "tried too often")

    def _waited(self, since: float) -> None:
        waited = anyio.current_time() - since
        if waited > 0.001:
            self.course.stalled += 1
            self.course.stalled_s += waited

    def _undo(self, turn_id: str) -> None:
        """Unless a landing stands between, which no undo crosses."""
        agent = self._agent
        marks = agent.state.turn_marks
        if marks and marks[-1].turn_id == turn_id:
            agent.append(r.Undo(agent.now_ms(), 1, marks[-1].start))
            self._hooks.on_context_changed()

    # ------------------------------------------------------------ messages

    def _id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}{self._ids}"

    def _say(self, text: str, images: int = 0) -> Message:
        parts: list[Part] = [TextPart(text), *(self._image() for _ in range(images))]
        return Message(id=self._id("u"), role="user", content=tuple(parts), time=self._agent.now_ms())

    def _answer(self, step: Step) -> Message:
        calls = tuple(ToolCall(self._id("c"), call.tool, f'{{"query":"{call.result[:12]!r}"}}') for call in step.calls)
        return Message(
            id=self._id("a"),
            role="assistant",
            content=(TextPart(step.text),),
            time=self._agent.now_ms(),
            tool_calls=calls or None,
            model=MODEL,
        )

    def _result(self, call: Call, issued: ToolCall) -> Message:
        parts: list[Part] = [TextPart(call.result), *([self._image()] if call.image else [])]
        return Message(
            id=self._id("t"),
            role="tool",
            content=tuple(parts),
            time=self._agent.now_ms(),
            tool_call_id=issued.id,
            name=issued.name,
            is_error=call.is_error,
        )

    def _image(self) -> ImagePart:
        """A blob that this store does not hold: its hash is its place in the session."""
        return ImagePart("image/png", blob=f"{self._ids:064x}")


def _is_death(error: ProviderError | Fault) -> bool:
    """A request that was too large in the end, and nothing else."""
    return error.kind == "overflow" if isinstance(error, ProviderError) else error.reason == "context_overflow"
