"""A believable long session, made of the log's own record types: thirty landings and everything else that happens.

Sizes are simulated (a context of numbers beside the texts), so that no tokenizer runs. The same seed gives the same
bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.info import CacheDiagnostics, PrefixShape
from protocol.messages import ErrorInfo, Message, Origin, TextPart, ToolCall, Usage
from record_store import records as r

WINDOW = 128_000
PREFIX = 3_200
FILES = ("server/router.py", "server/session.py", "web/src/App.tsx", "docs/deploy.md", "tests/test_router.py")
WISHES = (
    "The upload endpoint times out for files over 80 MB. Find out why and fix it; keep the public API as it is.",
    "Use port 8081 for the preview server, not 8080: something else is listening there.",
    "请把部署文档翻译成中文，并保留所有命令不变。",
    "Now add tests for the retry path. Two slow clients at once is the case that bit us.",
    "Why does the second test hang on CI but not here?",
    "Looks good. Commit it, then bring the changelog up to date.",
)
OUTPUT = (
    "collected 48 items\n\ntests/test_router.py ....F..........\n\nE   TimeoutError: upload stalled after 30.0 s\n",
    "def route(request):\n    limit = settings.upload_limit\n    return store(request.stream())\n",
    "M server/router.py\nM tests/test_router.py\n?? notes.txt\n",
)
SUMMARY = (
    "## Goal\nUploads over 80 MB must not time out; the public API stays. The preview server uses port 8081.\n\n"
    "## Decisions\n- Stream to disk in 1 MiB pieces instead of buffering: the proxy drops idle ones after 30 s.\n"
    "- Retries keep the upload id, so that a second attempt continues.\n\n"
    "## State\nserver/router.py is changed and tested; the CI hang is a leaked event loop in tests/conftest.py.\n\n"
    "## Next\nWrite the changelog entry, then run the whole suite once more.\n"
)


class Session:
    """Writes one agent's log; every method appends what the daemon would append."""

    def __init__(self, seed: int = 1, *, session_id: str = "demo", agent_id: str = "main") -> None:
        self.records: list[r.Record] = []
        self.random = random.Random(seed)
        self.time = 1_767_600_000_000
        self.used = PREFIX
        self.cached = 0
        self.rewrites = 0
        self.reasons: list[str] = []
        self.turn = self.step = self.compactions = 0
        self.span_from = 3
        self.tokens_in_turn = Usage()
        self.model = "openai/gpt-5-mini"
        self._add(
            r.Metadata, version=1, session_id=session_id, agent_id=agent_id, created_at=self.time, server_version="1.0"
        )
        self._add(
            r.ConfigUpdate, title="Uploads over 80 MB", cwd="/home/ada/shop", model=self.model, window=WINDOW,
            system_prompt="You are a careful engineer.", config={},
        )  # fmt: skip

    def _add(self, kind: type[r.Record], /, **fields: Any) -> int:
        self.records.append(kind(time=self.time, **fields))
        return len(self.records)

    def wait(self, ms: int) -> None:
        self.time += ms

    def say(self, role: Any, text: str, tokens: int, **more: Any) -> None:
        self.used += tokens
        message = Message(id=f"m{len(self.records)}", role=role, content=(TextPart(text),), time=self.time, **more)
        self._add(r.AppendMessage, message=message, turn_id=f"t{self.turn}")

    def begin_turn(self, text: str) -> None:
        self.turn += 1
        self.step = 0
        self.tokens_in_turn = Usage()
        self._add(r.TurnBegin, turn_id=f"t{self.turn}")
        self.say("user", text, 20 + len(text) // 4)

    def end_turn(self, stop_reason: Any = "end_turn", error: ErrorInfo | None = None) -> None:
        self._add(
            r.TurnEnd, turn_id=f"t{self.turn}", stop_reason=stop_reason, usage=self.tokens_in_turn, error=error
        )  # fmt: skip

    def request(self, kind: Any, prompt: int, cached: int, completion: int, **more: Any) -> None:
        self._add(
            r.LlmRequest, kind=kind, model=self.model, system_hash="5f2a", tools_hash="90cc", prefix_hash="d1e7",
            message_count=1, attempt=1,
        )  # fmt: skip
        self.wait(self.random.randint(900, 6_000))
        self._add(
            r.LlmUsage, kind=kind, model=self.model, prompt_tokens=prompt, cached_tokens=cached,
            completion_tokens=completion, **more,
        )  # fmt: skip
        self.tokens_in_turn = self.tokens_in_turn.plus(Usage(prompt, cached, completion, 1))

    def a_step(self, *, tool: bool = True, result_tokens: int | None = None) -> None:
        self.step += 1
        self._add(r.StepBegin, turn_id=f"t{self.turn}", step=self.step)
        completion = self.random.randint(150, 900)
        prompt = self.used
        cached = min(self.cached, prompt) // 128 * 128
        shape = PrefixShape("5f2a", "90cc", "d1e7", self.rewrites, 1_900)
        cache = CacheDiagnostics(cached, prompt - cached, (), tuple(self.reasons), shape)
        self.reasons = []
        path = self.random.choice(FILES)
        call = ToolCall(id=f"c{len(self.records)}", name="read_file", arguments=f'{{"path": "{path}"}}')
        self.say(
            "assistant", f"I will look at {path} first.", 0, tool_calls=(call,) if tool else None, model=self.model
        )
        self.request("step", prompt, cached, completion, cache=cache)
        self.used += completion
        self.cached = prompt
        if tool:
            tokens = result_tokens if result_tokens is not None else self.random.randint(400, 7_000)
            text = self.random.choice(OUTPUT) * max(1, tokens // 40)
            self.say("tool", text, tokens, tool_call_id=call.id, name="read_file")
        self.wait(self.random.randint(50, 2_000))
        self._add(r.StepEnd, turn_id=f"t{self.turn}", step=self.step, used=self.used)

    def start_compaction(self, trigger: Any = "auto", mode: Any = "background", instruction: str | None = None) -> str:
        self.compactions += 1
        compaction_id = f"cmp_{self.compactions:03}"
        self._add(
            r.CompactionStart, compaction_id=compaction_id, trigger=trigger, mode=mode,
            span=(self.span_from, len(self.records)), message_count=40, pre_tokens=self.used, instruction=instruction,
        )  # fmt: skip
        return compaction_id

    def pay(self, compaction_id: str, *, failed: bool = False) -> None:
        prompt, cached = self.used + 700, self.used // 128 * 128
        self.request("compaction", prompt, cached, 0 if failed else 1_150, compaction_id=compaction_id, failed=failed)

    def land(self, compaction_id: str, kind: Any = "model") -> None:
        if kind == "model":
            self._add(
                r.CompactionSummary, compaction_id=compaction_id, summary=SUMMARY,
                usage=Usage(self.used, self.used - 900, 1_150, 1), attempts=1, dropped_messages=0,
            )  # fmt: skip
        post = PREFIX + self.random.randint(7_000, 21_000)
        summary = Message(
            id=f"s{len(self.records)}", role="user", content=(TextPart("Summary of the work so far\n\n" + SUMMARY),),
            time=self.time, origin=Origin("compaction_summary"),
        )  # fmt: skip
        self._add(
            r.ApplyCompaction, compaction_id=compaction_id, shape="handoff", summary_kind=kind, message_count=40,
            replacement=(r.New(summary),), pre_tokens=self.used, post_tokens=post, replacement_count=3,
        )  # fmt: skip
        self.used, self.cached, self.rewrites = post, PREFIX, self.rewrites + 1
        self.reasons.append("compaction")

    def cancel(self, compaction_id: str, reason: str) -> None:
        self._add(r.CompactionCancel, compaction_id=compaction_id, reason=reason)

    def prune(self, action: Any = "prune", share: float = 0.3) -> None:
        post = PREFIX + int((self.used - PREFIX) * (1 - share))
        edits = tuple(r.Edit(f"m{i}", (TextPart("[elided tool result]"),)) for i in range(7))
        self._add(r.Rewrite, action=action, pre_tokens=self.used, post_tokens=post, edits=edits)
        self.used, self.cached, self.rewrites = post, PREFIX, self.rewrites + 1
        self.reasons.append(action)

    def lines(self) -> Iterator[bytes]:
        from record_store.encoder import encode

        for seq, record in enumerate(self.records, 1):
            yield encode(record, seq)

    def log(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """As a store reads it: numbered plain objects."""
        for line, raw in enumerate(self.lines(), 1):
            yield line, msgspec.json.decode(raw)


def thirty_compactions(seed: int = 1) -> Session:
    """A working week: 30 landings, some failures, free rewrites, pauses, an unexplained miss, a change of model."""
    s = Session(seed)
    landed = 0
    while landed < 30:
        s.begin_turn(WISHES[s.turn % len(WISHES)])
        for _ in range(s.random.randint(3, 9)):
            s.a_step()
            if s.used < 0.75 * WINDOW:
                continue
            if landed in (6, 17) and s.random.random() < 0.6:
                s.prune()
                continue
            compaction = s.start_compaction()
            if landed == 11 and s.compactions % 2:
                s.pay(compaction, failed=True)
                s.cancel(compaction, "provider_unavailable")
                s.a_step(result_tokens=900)
                continue
            s.pay(compaction)
            s.a_step(result_tokens=2_500)
            s.land(compaction, "excerpt" if landed == 22 else "model")
            landed += 1
        s.a_step(tool=False)
        _end(s)
        _between_turns(s, landed)
    return s


def _end(s: Session) -> None:
    if s.turn == 14:
        s.end_turn(
            "error", ErrorInfo(code=-32052, reason="provider_unavailable", message="The provider did not answer")
        )
    elif s.turn == 9:
        s.end_turn("cancelled")
    else:
        s.end_turn()


def _between_turns(s: Session, landed: int) -> None:
    s.wait(s.random.randint(5_000, 200_000))
    if s.turn % 7 == 0:
        s.wait(45 * 60_000)
        s.cached, s.reasons = 0, [*s.reasons, "ttl"]
        if s.used > 0.6 * WINDOW:
            s.prune("snip", 0.15)
    if s.turn == 10:
        s.cached = min(s.cached, 9_000)  # the provider forgot, and nobody knows why
    if s.turn == 20:
        s.model = "openai/gpt-5"
        s._add(r.ConfigUpdate, model=s.model, window=WINDOW)
        s.cached, s.reasons = 0, [*s.reasons, "model"]
    if s.turn == 24:
        compaction = s.start_compaction("manual", "blocking", "Keep the names of all endpoints.")
        s.cancel(compaction, "cancelled")
        s._add(r.Undo, turns=1, keep=4)
    if s.turn == 26:
        s._add(r.AgentSpawn, agent_id="reviewer", turn_id=f"t{s.turn}", tool_call_id="c", purpose="Review the diff")


def reviewer(seed: int = 2) -> Session:
    s = Session(seed, agent_id="reviewer")
    s.begin_turn("Review the diff of the upload fix. Report problems only.")
    for _ in range(12):
        s.a_step()
    s.a_step(tool=False)
    s.end_turn()
    return s
