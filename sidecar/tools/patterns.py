"""Regular expressions from models and schemas, which may take for ever: searched with a time limit."""

from __future__ import annotations

from collections.abc import Callable

SECONDS = 1.0
"""For one search in one text."""


class BadPattern(Exception):
    """Not a regular expression; the text says why."""


class TooSlow(Exception):
    """The expression did not come to an end on a text."""


def searcher(pattern: str, *, ignore_case: bool = False) -> Callable[[str], tuple[int, int] | None]:
    """A function that finds the first match in a text: its start and end, or None. It raises `TooSlow`, and lets other
    threads run meanwhile. Raises `BadPattern`."""
    import regex

    try:
        compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, OverflowError, RecursionError) as error:
        raise BadPattern(str(error)) from None

    def search(text: str) -> tuple[int, int] | None:
        try:
            match = compiled.search(text, concurrent=True, timeout=SECONDS)
        except TimeoutError:
            raise TooSlow from None
        return None if match is None else match.span()

    return search
