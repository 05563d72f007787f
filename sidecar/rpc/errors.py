"""Why the daemon does not start: for the person at the terminal, never for a host."""

from __future__ import annotations


class StartError(Exception):
    """What is wrong, and what to do about it. The daemon exits with 1."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem = problem
        self.fix = fix
