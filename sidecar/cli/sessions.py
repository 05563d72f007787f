"""`sidecar sessions`, `compact`, `inspect`, `doctor`, `demo`"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from protocol.info import SessionInfo
from record_store.local import LocalStore
from sidecar.cli.records import clock
from sidecar.cli.store import read, session, writing_to
from sidecar.tools.text import printable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    p = commands.add_parser("sessions", help="list the stored sessions, newest first")
    p.add_argument("--json", action="store_true", help="one array of SessionInfo")
    p.add_argument("--cwd", metavar="DIR", help="only those of this directory")
    p.set_defaults(run=list_sessions)

    p = commands.add_parser("compact", help="compact a session now")
    p.add_argument("session", metavar="SESSION", help="a session id, or `last`")
    p.add_argument("instruction", nargs="?", metavar="INSTRUCTION", help="what the summary should look at")
    p.add_argument("--connect", metavar="SOCKET", help="use the daemon that listens there")
    p.add_argument("--config", metavar="FILE")
    p.set_defaults(run=compact)

    p = commands.add_parser("inspect", help="write one page about a session")
    p.add_argument("session", metavar="SESSION", help="a session id, or `last`")
    p.add_argument("--html", required=True, metavar="FILE")
    p.add_argument("--config", metavar="FILE")
    p.set_defaults(run=inspect)

    p = commands.add_parser("doctor", help="check keys, vocabulary, store and versions")
    p.add_argument("--config", metavar="FILE")
    p.set_defaults(run=doctor)

    p = commands.add_parser("demo", help="a conversation with tools, a compaction, a kill and a resume")
    p.add_argument("--scripted", action="store_true", help="the scripted model, whatever the environment says")
    p.set_defaults(run=demo)


def list_sessions(args: argparse.Namespace) -> int:
    cwd = str(Path(os.path.expanduser(args.cwd)).resolve()) if args.cwd else None

    async def work(store: LocalStore) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        cursor = None
        while True:
            page = await store.list(cwd=cwd, limit=1000, cursor=cursor)
            found += page.sessions
            cursor = page.next_cursor
            if cursor is None:
                return found

    sessions = read(work)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(sessions), indent=2).decode())
        return 0
    for s in sessions:
        print(f"{s.session_id}  {clock(s.updated_at)}  {s.turns:>4} turns  {s.state:<7}  {printable(s.title) or '-'}")
    if not sessions:
        print("no sessions yet", file=sys.stderr)
    return 0


def compact(args: argparse.Namespace) -> int:
    from sidecar.headless.compacting import compact as compact_session

    return compact_session(args.session, args.instruction, connect=args.connect, config=args.config)


def inspect(args: argparse.Namespace) -> int:
    from sidecar import settings
    from sidecar.app import configuration_layer
    from sidecar.inspect import page_of

    layer = configuration_layer(args.config, settings.environment())

    async def work(store: LocalStore) -> str:
        return await page_of(await session(store, args.session), layer)

    page = read(work)
    path = Path(args.html)
    with writing_to(args.html):
        path.write_text(page, "utf-8")
    print(f"wrote {path} ({path.stat().st_size // 1024} KiB)")
    return 0


def doctor(args: argparse.Namespace) -> int:
    from sidecar.cli.doctor import check

    return check(args.config)


def demo(args: argparse.Namespace) -> int:
    from sidecar.demo.session import main as show

    return show(args.scripted)
