"""`sidecar record verify SESSION --policy` on logs that a real daemon wrote, and on the same logs damaged by hand."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
import pytest

from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Reply, call, failure
from tests.support.running import ROOT, Place, a_place, running_sidecar

pytestmark = pytest.mark.anyio

WINDOW = 16_000
SUMMARY = "The goal stands: read all pages. " + "Pages were read one by one; nothing special was found so far. " * 8

Records = list[dict[str, Any]]


@host_tool("page", "Returns a page.", {"n": {"type": "integer"}})
async def page(asked: HostCall) -> str:
    return f"page {asked.arguments['n']}: " + "lorem ipsum dolor " * 140


class Model:
    """Calls the tool `steps` times a turn. `refuse` are the numbers of requests answered with an overflow."""

    def __init__(self, steps: int, refuse: tuple[int, ...] = ()) -> None:
        self.steps, self.refuse, self.done = steps, refuse, 0

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        if n in self.refuse:
            told = f"This model's maximum context length is {WINDOW} tokens."
            return failure(400, told, type="invalid_request_error", code="context_length_exceeded")
        if "about to be compacted" in json.dumps(request["messages"][-1]):
            return Reply(SUMMARY, delay=0.05)
        if self.done >= self.steps:
            self.done = 0
            return Reply("finished")
        self.done += 1
        return Reply(f"step {self.done}", tool_calls=[call("page", {"n": self.done}, f"c{n}")])


async def a_log(home: Path, preset: str, **compaction: Any) -> str:
    """A session with background landings, an overflow, a manual compaction, an undo and a landing taken back."""
    model = Model(30, refuse=(10,))
    with FakeLLM(model) as llm:
        async with running_sidecar(llm=llm, home=home) as sidecar:
            client = sidecar.client
            session = await client.sessions.create(
                cwd=str(sidecar.work),
                tools=[page],
                config={"model": {"window": WINDOW}, "compaction": {"preset": preset, **compaction}},
            )
            sid = session.session_id
            with anyio.fail_after(60):
                for text in ("read everything", "once more"):
                    assert (await client.chat.run(sid, text)).stop_reason == "end_turn"
                await client.chat.compact(sid, "keep the numbers")
                with contextlib.suppress(SidecarError):
                    await client.chat.uncompact(sid)
                model.steps = 1
                await client.chat.run(sid, "one page")
                await client.chat.undo(sid)
                model.steps = 30
                await client.chat.run(sid, "the last time")
            return sid


def verify(home: Path, sid: str) -> tuple[int, list[str]]:
    """The exit code, and the findings that `--policy` adds to those of the log's form."""
    with a_place(home=home) as place:
        plain = {x for x in run(place, sid).stdout.splitlines() if x.startswith("  ")}
        done = run(place, sid, "--policy")
    return done.returncode, [x.strip() for x in done.stdout.splitlines() if x.startswith("  ") and x not in plain]


def run(place: Place, sid: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        place.command("record", "verify", sid, *more), env=place.env, cwd=ROOT, capture_output=True, text=True
    )


def wire(home: Path, sid: str) -> Path:
    return home / "sessions" / sid / "agents" / "main" / "wire.jsonl"


def write(path: Path, records: Records) -> None:
    """Writes a log anew, every line with the seq and the checksum that it should have."""
    lines = []
    for seq, record in enumerate(records, 1):
        body = {"seq": seq, **{k: v for k, v in record.items() if k not in ("seq", "crc")}}
        head = json.dumps(body, ensure_ascii=False, separators=(",", ":"))[:-1].encode()
        lines.append(b'%b,"crc":"%08x"}\n' % (head, crc32(head)))
    path.write_bytes(b"".join(lines))


def nth(records: Records, type: str, n: int = 0, /, **fields: Any) -> int:
    """The position of the `n`-th record of a type with these fields; counts from the end if negative."""
    found = [i for i, r in enumerate(records) if r["type"] == type and all(r.get(k) == v for k, v in fields.items())]
    return found[n]


@pytest.mark.parametrize(
    ("preset", "more"),
    [
        ("default", {}),
        ("handoff", {"cache_ttl_s": 0}),
        ("span", {"tail_tokens": 1_000}),
        ("ladder", {}),
        ("excerpt", {"objective": "cost"}),
        ("default", {"landing": "strict"}),
    ],
)
async def test_a_daemons_own_log_keeps_every_rule(preset: str, more: dict[str, Any], tmp_path: Path) -> None:
    sid = await a_log(tmp_path, preset, **more)
    kinds = [json.loads(line)["type"] for line in wire(tmp_path, sid).read_bytes().splitlines()]
    assert kinds.count("context.apply_compaction") >= 2, kinds
    assert verify(tmp_path, sid) == (0, [])


def earlier_start(records: Records) -> int:
    at = nth(records, "compaction.start", 1, trigger="auto")
    records[at]["pre_tokens"] = records[at]["limits"]["trigger_at"] - 1
    return at


def inside_the_margin(records: Records) -> int:
    at = nth(records, "compaction.start", 1, trigger="auto")
    landed = nth(records[:at], "context.apply_compaction", -1)
    records[landed]["post_tokens"] = records[landed]["pre_tokens"] - 1
    return at


def summary_request(records: Records) -> int:
    started = records[nth(records, "compaction.start", 0, mode="background")]
    return nth(records, "llm.request", 0, compaction_id=started["compaction_id"])


def other_bytes(records: Records) -> int:
    """A background summary and the step beside it send the same messages, whichever comes first."""
    at = summary_request(records)
    sent = records[at]["messages_hash"]
    (beside,) = (i for i, r in enumerate(records) if r.get("kind") == "step" and r.get("messages_hash") == sent)
    records[at]["messages_hash"] = "0123456789abcdef"
    return max(at, beside)


def other_prefix(records: Records) -> int:
    at = summary_request(records)
    records[at]["prefix_hash"] = "0" * 16
    return at


def other_tools(records: Records) -> int:
    at = summary_request(records)
    records[at]["tools_hash"] = "0" * 16
    return at


def grown(records: Records) -> int:
    at = nth(records, "context.apply_compaction")
    records[at]["post_tokens"] = records[at]["pre_tokens"]
    return at


def lost_summary(records: Records) -> int:
    del records[nth(records, "compaction.summary")]
    return nth(records, "context.apply_compaction")


def lost_end(records: Records) -> int:
    del records[nth(records, "context.apply_compaction")]
    return nth(records, "compaction.start", 1)


def two_summaries(records: Records) -> int:
    at = nth(records, "context.apply_compaction")
    new = next(x for x in records[at]["replacement"] if x["kind"] == "new" and "summary" in x["message"]["id"])
    again = {**new, "message": {**new["message"], "id": "again"}}
    records[at]["replacement"].append(again)
    records[at]["replacement_count"] += 1
    return at


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    home = tmp_path_factory.mktemp("home")
    return home, anyio.run(a_log, home, "default")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (earlier_start, "trigger"),
        (inside_the_margin, "margin"),
        (other_bytes, "prefix|append_only"),
        (other_prefix, "prefix"),
        (other_tools, "prefix"),
        (grown, "gain"),
        (lost_summary, "unpaid"),
        (lost_end, "bracket"),
        (two_summaries, "shape"),
    ],
)
def test_a_broken_rule_is_named(damage: Callable[[Records], int], kind: str, written: tuple[Path, str]) -> None:
    home, sid = written
    path = wire(home, sid)
    whole = path.read_bytes()
    records = [json.loads(line) for line in whole.splitlines()]
    at = damage(records)
    write(path, records)
    try:
        code, found = verify(home, sid)
    finally:
        path.write_bytes(whole)
    assert code == 1
    assert any(re.match(f"main line {at + 1}: ({kind}): ", line) for line in found), found
