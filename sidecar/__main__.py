"""The command `sidecar`. `serve` takes a short way to its first reply; everything else is `sidecar.cli`'s."""

from __future__ import annotations

import os
import sys

USAGE = """\
usage: sidecar COMMAND [arguments]

  serve     the daemon: JSON-RPC over stdio, a Unix socket or TCP
  run       one prompt, answered on stdout
  acp       an Agent Client Protocol agent on stdio
  sessions  list the stored sessions
  compact   compact a session now
  record    show, verify, search or export a session's event log
  inspect   one page about a session
  doctor    check keys, vocabulary, store and versions
  demo      a conversation against a scripted model

`sidecar COMMAND --help` says more.
"""
INTERRUPTED = 130
CLI_COMMANDS = ("run", "acp", "sessions", "compact", "record", "inspect", "doctor", "demo")


def main(argv: list[str] | None = None) -> int:
    """The exit code of a command; `serve` ends the process itself."""
    _fill_standard_descriptors()
    arguments = sys.argv[1:] if argv is None else argv
    command = arguments[0] if arguments else ""
    if command == "serve":
        return _serve(arguments[1:])
    if command in CLI_COMMANDS:
        try:
            from sidecar.cli import main as cli_main

            return cli_main(arguments)
        except KeyboardInterrupt:
            return INTERRUPTED
    if command in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if command in ("-V", "--version"):
        from protocol.version import VERSION

        print(f"sidecar {VERSION}")
        return 0
    problem = f"unknown command {command}" if command else "a command is missing"
    print(f"sidecar: {problem}\n\n{USAGE}", end="", file=sys.stderr)
    return 2


def _fill_standard_descriptors() -> None:
    """Where the parent closed one of the first three descriptors, the next file that is opened would get its number,
    and with it whatever is printed there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _serve(arguments: list[str]) -> int:
    """Never returns but for wrong usage: threads that hang in a read or an import cannot be joined."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        from sidecar.rpc.arguments import USAGE as SERVE_USAGE

        print(SERVE_USAGE, end="")
        return 0
    from sidecar.rpc.aside import keep_stdio_aside
    from sidecar.rpc.ends import exit_quietly_on_signals

    exit_quietly_on_signals()
    stdio = keep_stdio_aside()
    from sidecar.rpc.arguments import USAGE as SERVE_USAGE
    from sidecar.rpc.arguments import UsageError, parse_serve

    try:
        parsed = parse_serve(arguments)
    except UsageError as error:
        print(f"sidecar: {error}\n\n{SERVE_USAGE}", end="", file=sys.stderr)
        return 2
    from sidecar.rpc.command import run

    code = run(parsed, stdio)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
