"""Which calls of one step may run at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Planned:
    """One call: whether it has side effects, and its conflict key (see `Tool.conflict_key`). A call that is `free`
    (a host's tool, a call that will not be run) waits for nothing and is waited for by nothing."""

    side_effects: bool = False
    key: str | None = None
    free: bool = False


def stages(calls: Sequence[Planned]) -> list[list[int]]:
    """Indices of the calls in groups: those of a group may run at once, one group after the other.

    Calls with side effects keep their order; a call that touches what an earlier one with side effects touches, or the
    other way round, comes after it; calls with the same lock come one after the other. All else is in the first group.
    """
    level: list[int] = []
    for i, call in enumerate(calls):
        level.append(max((level[j] + 1 for j in range(i) if must_wait(call, calls[j])), default=0))
    return [[i for i, at in enumerate(level) if at == n] for n in range(max(level, default=-1) + 1)]


def must_wait(call: Planned, earlier: Planned) -> bool:
    """Whether `call` may only start when `earlier` is done."""
    if call.free or earlier.free:
        return False
    if call.side_effects and earlier.side_effects:
        return True
    if call.key is None or earlier.key is None:
        return False
    if PurePath(call.key).is_absolute() and PurePath(earlier.key).is_absolute():
        return (call.side_effects or earlier.side_effects) and _overlap(call.key, earlier.key)
    return call.key == earlier.key


def _overlap(one: str, other: str) -> bool:
    a, b = PurePath(one), PurePath(other)
    return a.is_relative_to(b) or b.is_relative_to(a)
