"""The commands and their flags."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from protocol.version import VERSION
from sidecar.errors import Fault

Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Tells of an argument that a command does not know with that command's usage, not with the program's."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


def parser() -> argparse.ArgumentParser:
    root: argparse.ArgumentParser = Parser(prog="sidecar", description="A sidecar daemon for LLM agents.")
    root.add_argument("--version", action="version", version=f"sidecar {VERSION}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(commands)
    from sidecar.cli import acp, records, sessions

    acp.add(commands)
    records.add(commands)
    sessions.add(commands)
    return root


def _run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser("run", help="answer one prompt, without a host")
    p.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; - or nothing reads stdin")
    p.add_argument("--model", metavar="PROVIDER/MODEL")
    p.add_argument("--cwd", metavar="DIR", help="the directory that the tools work in")
    which = p.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="ID", help="go on with this session")
    which.add_argument("--continue", dest="resume_last", action="store_true", help="go on with the last one here")
    p.add_argument("--output", choices=("text", "json", "stream-json"), default="text")
    p.add_argument("--tools", choices=("none", "read", "edit", "all"), help="built-in tools (read)")
    p.add_argument("--approve", choices=("ask", "auto", "deny"), help="calls with side effects (ask)")
    p.add_argument("--max-steps", type=_positive, metavar="N")
    p.add_argument("--timeout", type=_seconds, metavar="SECONDS")
    p.add_argument("--connect", metavar="SOCKET", help="use the daemon that listens there")
    p.add_argument("--config", metavar="FILE")
    p.set_defaults(run=run)


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be a whole number from 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds over 0")
    return value


def run(args: argparse.Namespace) -> int:
    import anyio

    from sidecar import logs, settings
    from sidecar.app import App, layers_of
    from sidecar.headless.options import EXIT_CANCELLED, EXIT_USAGE, RunOptions
    from sidecar.headless.run import run as run_here

    prompt = args.prompt
    if prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            print("sidecar run: no prompt; give one, or - to read stdin", file=sys.stderr)
            return EXIT_USAGE
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not prompt.strip():
        print("sidecar run: the prompt is empty", file=sys.stderr)
        return EXIT_USAGE
    cwd = Path(os.path.expanduser(args.cwd)).resolve() if args.cwd else Path.cwd()
    if not os.path.isdir(cwd):
        print(f"sidecar run: --cwd {cwd} is no directory", file=sys.stderr)
        return EXIT_USAGE
    options = RunOptions(
        prompt=prompt,
        cwd=str(cwd),
        model=args.model,
        session_id=args.session,
        resume_last=args.resume_last,
        output=args.output,
        tools=args.tools,
        approve=args.approve,
        max_steps=args.max_steps,
        timeout_s=args.timeout,
        connect=args.connect,
    )
    logs.configure(level="warning")
    environment = settings.environment()
    if options.connect is not None:
        from sidecar.headless.connected import run_connected

        return anyio.run(run_connected, options)
    app = App(layers_of(args.config, environment), environment)
    try:
        return anyio.run(run_here, app, options)
    except KeyboardInterrupt:
        return EXIT_CANCELLED


def dispatch(argv: Sequence[str]) -> int:
    args = parser().parse_args(list(argv))
    command: Command = args.run
    _speak_utf8()
    try:
        code = command(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except Fault as fault:
        from sidecar.headless.run import complain

        complain(fault)
        return 1
    except BrokenPipeError:
        # The reader of our output has seen enough.
        _let_stdout_go()
        return 1
    except OSError as error:
        # Storage has its own errors, so this is our output: a full disk behind a redirection.
        named = f"{error.filename}: " if error.filename else "the output cannot be written: "
        print(f"sidecar: {named}{error.strerror or error}", file=sys.stderr)
        _let_stdout_go()
        return 1


def _speak_utf8() -> None:
    """What goes into a file or a pipe is UTF-8 whatever the locale; a terminal gets what it can show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _let_stdout_go() -> None:
    """What is still to be written goes nowhere: Python would try it, and complain again, while it closes stdout."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
