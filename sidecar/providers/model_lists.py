"""Providers' own lists of models: asked for once, in the background or on request, and remembered.

A list that cannot be had harms nothing: nothing is known then, and it may be asked for again later.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from sidecar import logs
from sidecar.errors import Fault
from sidecar.providers.catalog import ListedModel
from sidecar.providers.errors import ProviderError

_log = logs.get(__name__)

ANSWER_S = 5.0
"""A list is waited for this long."""

RETRY_S = 60.0
"""A list that could not be had is asked for again after this."""

AGE_S = 3_600.0
"""A list is asked for again after this."""

MAX_LISTS = 256
"""Lists remembered; the oldest are forgotten first."""

Fetch = Callable[[], Awaitable["tuple[ListedModel, ...]"]]
"""Asks for a list. May raise `ProviderError` or `Fault`."""


@dataclass(slots=True)
class _Question:
    """One asking. `rows` None: not answered yet, or never."""

    asked_at: float
    rows: Mapping[str, ListedModel] | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask again."""
        age = time.monotonic() - self.asked_at
        return self.over.is_set() and age > (RETRY_S if self.rows is None else AGE_S)


class ModelLists:
    """What is known of each place, by a key that names it."""

    def __init__(self) -> None:
        self._questions: dict[str, _Question] = {}
        self._tasks: TaskGroup | None = None

    def start(self, tasks: TaskGroup) -> None:
        """Where background questions run; without it none is asked."""
        self._tasks = tasks

    def known(self, key: str) -> Mapping[str, ListedModel]:
        """The rows by the model's name; empty while nothing is known."""
        question = self._questions.get(key)
        return (question.rows if question is not None else None) or {}

    def ask(self, key: str, fetch: Fetch) -> None:
        """Asks in the background if it was not asked lately. Never waits."""
        if self._tasks is not None and self._is_due(key):
            self._tasks.start_soon(self._put, self._begin(key), fetch)

    async def refresh(self, key: str, fetch: Fetch) -> None:
        """Waits until the list is as new as it can be had: a question under way is waited for, not repeated."""
        if self._is_due(key):
            await self._put(self._begin(key), fetch)
        else:
            with anyio.move_on_after(ANSWER_S):
                await self._questions[key].over.wait()

    def _is_due(self, key: str) -> bool:
        question = self._questions.get(key)
        return question is None or question.is_due

    def _begin(self, key: str) -> _Question:
        """A new question; what the last one told holds until it is answered."""
        rows = self.known(key) or None
        question = self._questions[key] = _Question(time.monotonic(), rows)
        while len(self._questions) > MAX_LISTS:
            del self._questions[next(iter(self._questions))]
        return question

    async def _put(self, question: _Question, fetch: Fetch) -> None:
        try:
            with anyio.move_on_after(ANSWER_S):
                question.rows = {row.model: row for row in await fetch()}
        except (ProviderError, Fault):
            pass
        except Exception as error:  # a question in the background ends nothing else, whatever a provider makes of it
            _log.error("the list of models could not be read", exc_info=error)
        finally:
            question.over.set()
