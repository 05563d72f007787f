"""What the loop needs from outside. Ports and small values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from protocol.events import AnyEvent
from protocol.messages import Part
from record_store.fold import State
from record_store.records import Record
from sidecar.providers.errors import ProviderError
from sidecar.tools.port import ToolOutcome

if TYPE_CHECKING:
    from sidecar.agent.calls import ParsedCall
    from sidecar.agent.turn import Turn


class Log(Protocol):
    """One agent's log. Appending folds: after `append` the state has the records in it."""

    @property
    def state(self) -> State: ...

    def append(self, *records: Record) -> list[int]:
        """Writes and folds the records, all or none; their lines. Raises `StoreWriteError`."""
        ...

    async def sync(self) -> None:
        """On return everything appended before the call is on disk. Raises `StoreWriteError`."""
        ...


class Events(Protocol):
    """Where the agent tells what happens. Never raises, never blocks."""

    def emit(self, event: AnyEvent, turn_id: str | None = None) -> None: ...

    async def writable(self) -> None:
        """Returns when every client that must not miss a word can take more; at once in the usual case."""
        ...


class ToolRunner(Protocol):
    """Runs calls. Failures are outcomes; only cancellation is raised."""

    async def run(self, turn: Turn, call: ParsedCall) -> ToolOutcome: ...

    async def keep(self, name: str, outcome: ToolOutcome) -> ToolOutcome:
        """Puts what is too large for a record beside the log; on return it is on disk."""
        ...

    def shorten(self, name: str, content: tuple[Part, ...]) -> tuple[Part, ...]:
        """The content of a kept outcome as the record that is appended next holds it."""
        ...

    def stages(self, calls: Sequence[ParsedCall]) -> list[list[int]]:
        """Indices of the calls in groups: the calls of a group run at once, the groups one after the other."""
        ...


class StepHooks(Protocol):
    """What attaches to the loop. `turn` is None at a boundary that belongs to no turn."""

    async def on_will_begin_step(self, turn: Turn) -> None:
        """Before steering enters and the request is built."""
        ...

    async def on_did_finish_step(self, turn: Turn) -> None:
        """After the step's results are in the log."""
        ...

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        """Whether the step may be tried again: something was changed or waited for."""
        ...


class HookBase:
    """A hook that does nothing; others override what they need."""

    async def on_will_begin_step(self, turn: Turn) -> None:
        return None

    async def on_did_finish_step(self, turn: Turn) -> None:
        return None

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        return False


class HookChain:
    """Handlers in order; for an error, the first that recovers ends the chain."""

    def __init__(self, hooks: Sequence[StepHooks]) -> None:
        self._hooks = tuple(hooks)

    async def on_will_begin_step(self, turn: Turn) -> None:
        for hook in self._hooks:
            await hook.on_will_begin_step(turn)

    async def on_did_finish_step(self, turn: Turn) -> None:
        for hook in self._hooks:
            await hook.on_did_finish_step(turn)

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        for hook in self._hooks:
            if await hook.on_request_error(turn, error):
                return True
        return False
