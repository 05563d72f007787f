"""`sidecar record show|verify|grep|export`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from protocol.messages import ImagePart, Message
from record_store.backend import LogReader
from record_store.local import LocalStore
from record_store.query import Query, search
from record_store.transcript import read_transcript
from record_store.verify import verify as verify_session
from sidecar.cli.store import read, session, writing_to

SHOWN_CHARS = 160


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    record = commands.add_parser("record", help="read a session's event log")
    actions = record.add_subparsers(dest="action", required=True, metavar="ACTION")

    show = _action(actions, "show", "list records, a line each", show_records)
    show.add_argument("--from", dest="first", type=int, metavar="LINE")
    show.add_argument("--to", dest="last", type=int, metavar="LINE")
    show.add_argument("--type", dest="types", action="append", metavar="TYPE")
    show.add_argument("--json", action="store_true", help="whole records, a line each")

    verify = _action(actions, "verify", "check the logs; exit 1 on problems", verify_logs)
    verify.add_argument("--policy", action="store_true", help="check what compaction did against its own rules too")

    grep = _action(actions, "grep", "find records by their text", grep_records)
    grep.add_argument("pattern", metavar="PATTERN")
    grep.add_argument("--regex", action="store_true", help="PATTERN is a regular expression")
    grep.add_argument("--json", action="store_true", help="whole records, a line each")

    export = _action(actions, "export", "write a log out", export_log)
    export.add_argument("--out", metavar="FILE", help="a file instead of stdout")
    export.add_argument("--format", choices=("jsonl", "markdown"), default="jsonl")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, run: Any
) -> argparse.ArgumentParser:
    p = actions.add_parser(name, help=text)
    p.add_argument("session", metavar="SESSION", help="a session id, or `last`")
    p.add_argument("--agent", default="main", metavar="AGENT")
    p.set_defaults(run=run)
    return p


def show_records(args: argparse.Namespace) -> int:
    query = Query(from_line=args.first, to_line=args.last, types=tuple(args.types) if args.types else None, limit=1000)
    return _print_found(args, query)


def grep_records(args: argparse.Namespace) -> int:
    """Exit 1 when nothing was found, as grep does."""
    return _print_found(args, Query(grep=args.pattern, regex=args.regex, limit=1000), none=1)


def _print_found(args: argparse.Namespace, query: Query, none: int = 0) -> int:
    async def work(store: LocalStore) -> int:
        log = await (await session(store, args.session)).log(args.agent)
        count = 0
        async for line, record in _all(log, query):
            count += 1
            print(msgspec.json.encode(record).decode() if args.json else _row(line, record))
        return count

    return 0 if read(work) else none


async def _all(log: LogReader, query: Query) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    while True:
        page = await search(log, query)
        for hit in page.records:
            yield hit.line, hit.record
        if page.next_cursor is None:
            return
        query = Query(
            from_line=query.from_line,
            to_line=query.to_line,
            types=query.types,
            grep=query.grep,
            regex=query.regex,
            limit=query.limit,
            cursor=page.next_cursor,
        )


def _row(line: int, record: dict[str, Any]) -> str:
    rest = {k: v for k, v in record.items() if k not in ("seq", "type", "time", "crc")}
    text = msgspec.json.encode(rest).decode()
    if len(text) > SHOWN_CHARS:
        text = text[: SHOWN_CHARS - 1] + "…"
    return f"{line:>7}  {clock(record.get('time'))}  {record.get('type', '?')!s:<26} {text}"


def clock(ms: object) -> str:
    """A time as a person reads it, in UTC; dashes for what is none that a calendar has."""
    if isinstance(ms, int):
        try:
            return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        except (ValueError, OverflowError, OSError):
            pass
    return "-" * 19


def verify_logs(args: argparse.Namespace) -> int:
    async def work(store: LocalStore) -> int:
        stored = await session(store, args.session)
        problems = 0
        for report in await verify_session(stored):
            print(f"{report.agent_id}: {report.lines} lines, {len(report.problems) or 'no'} problems")
            for problem in report.problems:
                print(f"  line {problem.line}: {problem.kind}: {problem.detail}")
            problems += len(report.problems)
        if args.policy:
            from sidecar.compaction.audit import audit

            for agent_id in await stored.agents():
                for finding in await audit(await stored.log(agent_id)):
                    print(f"  {agent_id} line {finding.line}: {finding.kind}: {finding.detail}")
                    problems += 1
        return problems

    return 1 if read(work) else 0


def export_log(args: argparse.Namespace) -> int:
    async def work(store: LocalStore) -> None:
        log = await (await session(store, args.session)).log(args.agent)
        with _output(args.out) as out:
            if args.format == "jsonl":
                for line in log.iterate():
                    out.write(line.raw + b"\n")
            else:
                for piece in markdown(await read_transcript(log)):
                    out.write(piece.encode())

    read(work)
    return 0


@contextmanager
def _output(path: str | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with writing_to(path), Path(path).open("wb") as file:
        yield file


def markdown(messages: Iterable[Message]) -> Iterator[str]:
    """The conversation as a page: a heading per message, calls and results in fences that they cannot end."""
    for message in messages:
        kind = message.origin.kind if message.origin is not None else ""
        title = {"user": "User", "assistant": "Assistant", "tool": f"Result of {message.name or 'a tool'}"}.get(
            message.role, "System"
        )
        yield f"## {title}{f' ({kind})' if kind else ''}\n\n{clock(message.time)}\n\n"
        text = message.text
        if message.role == "tool":
            yield _fenced(text)
        elif text:
            yield text.rstrip("\n") + "\n\n"
        for part in message.content:
            if isinstance(part, ImagePart):
                yield f"*image, {part.media_type}{f', blob {part.blob[:12]}' if part.blob else ''}*\n\n"
        for call in message.tool_calls or ():
            yield f"**Calls {call.name}**\n\n" + _fenced(call.arguments)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip(chr(10))}\n{fence}\n\n"
