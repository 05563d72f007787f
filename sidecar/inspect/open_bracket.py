"""A compaction's bracket while it is read, and the text of the span that it will shadow. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from protocol.messages import JsonObject
from sidecar.inspect.fields import items, number, shortened, table, text
from sidecar.inspect.report import Compaction, Excerpt, Outcome, Tokens

FIRST_KEPT, LAST_KEPT = 60, 140
"""Messages of one span that are kept for the page: from its beginning and from its end."""

SUMMARY_CHARS = 20_000


class SpanText:
    """Excerpts of the messages that no landing has shadowed yet, bounded: the middle goes first."""

    def __init__(self) -> None:
        self._first: list[Excerpt] = []
        self._last: deque[Excerpt] = deque()  # bounded: `add` keeps LAST_KEPT
        self._left_out = 0

    def add(self, line: int, who: str, body: str) -> None:
        excerpt = Excerpt(line, who, shortened(body), len(body))
        if len(self._first) < FIRST_KEPT:
            self._first.append(excerpt)
            return
        self._last.append(excerpt)
        if len(self._last) > LAST_KEPT:
            self._last.popleft()
            self._left_out += 1

    def take(self, last_line: int) -> tuple[tuple[Excerpt, ...], int]:
        """Removes and returns what stands up to this line, and how many messages of it were left out."""
        kept = (*self._first, *self._last)
        taken = tuple(e for e in kept if e.line <= last_line)
        rest = [e for e in kept if e.line > last_line]
        left_out, self._left_out = self._left_out, 0
        # bounded: a part of what was kept before
        self._first, self._last = rest[:FIRST_KEPT], deque(rest[FIRST_KEPT:])
        return taken, left_out


@dataclass(slots=True)
class OpenBracket:
    number: int
    x: float
    time: int
    line: int
    raw: JsonObject
    paid: Tokens = field(default_factory=Tokens)
    summary: JsonObject = field(default_factory=dict)

    def answered(self, raw: JsonObject) -> None:
        """The model's summary came; where no usage was recorded of its own, the summary's tells the price."""
        self.summary = raw
        usage = table(raw, "usage")
        if self.paid.requests == 0 and usage:
            self.paid = Tokens(
                number(usage, "prompt_tokens"),
                number(usage, "cached_tokens"),
                number(usage, "completion_tokens"),
                number(usage, "requests"),
            )

    def landed(self, x: float, time: int, line: int, raw: JsonObject, span: SpanText) -> Compaction:
        taken, left_out = span.take(self._last_line(line))
        return self._closed(
            "landed", x, time, line, "", post=number(raw, "post_tokens"), landing=raw, span=taken, left_out=left_out
        )

    def cancelled(self, x: float, time: int, line: int | None, reason: str) -> Compaction:
        return self._closed("cancelled", x, time, line, reason)

    def still_open(self, x: float, time: int) -> Compaction:
        return self._closed("open", x, time, None, "")

    def _last_line(self, default: int) -> int:
        span = items(self.raw, "span")
        return span[1] if len(span) == 2 and isinstance(span[1], int) else default

    def _closed(
        self,
        outcome: Outcome,
        x: float,
        time: int,
        line: int | None,
        reason: str,
        *,
        post: int | None = None,
        landing: JsonObject | None = None,
        span: tuple[Excerpt, ...] = (),
        left_out: int = 0,
    ) -> Compaction:
        landing = landing or {}
        lines = items(self.raw, "span")
        return Compaction(
            compaction_id=text(self.raw, "compaction_id"),
            number=self.number,
            trigger=text(self.raw, "trigger"),
            mode=text(self.raw, "mode"),
            start_x=self.x,
            end_x=x,
            start_time=self.time,
            end_time=time,
            start_line=self.line,
            end_line=line,
            first_line=lines[0] if len(lines) == 2 and isinstance(lines[0], int) else 0,
            last_line=self._last_line(0),
            message_count=number(self.raw, "message_count"),
            pre_tokens=number(landing, "pre_tokens") or number(self.raw, "pre_tokens"),
            post_tokens=post,
            outcome=outcome,
            reason=reason,
            shape=text(landing, "shape"),
            summary_kind=text(landing, "summary_kind"),
            attempts=number(self.summary, "attempts"),
            dropped_messages=number(self.summary, "dropped_messages"),
            instruction=text(self.raw, "instruction"),
            summary=shortened(text(self.summary, "summary") or _standing_summary(landing), SUMMARY_CHARS, 0),
            paid=self.paid,
            span=span,
            left_out=left_out,
        )


def _standing_summary(landing: JsonObject) -> str:
    """The summary as it landed, for one that no model wrote."""
    for item in items(landing, "replacement"):
        message = table(item, "message") if isinstance(item, dict) else {}
        if text(table(message, "origin"), "kind") == "compaction_summary":
            return "".join(text(p, "text") for p in items(message, "content") if isinstance(p, dict))
    return ""
