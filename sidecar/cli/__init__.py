"""The command line: parses, starts what is asked for, turns failures into exit codes."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Runs a command other than `serve`; the exit code. 1 on an error, 2 on wrong usage."""
    from sidecar.cli.commands import dispatch

    return dispatch(argv)
