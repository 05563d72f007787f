"""A host's own transcript against ours: equal, longer, or different from some message on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from protocol.chat import HostMessage
from protocol.messages import Message, Part, TextPart
from record_store.fold import Entry
from sidecar import ids

Comparable = tuple[str, str]
"""Role, and what was said; images count by their number only, since hosts encode them anew."""


@dataclass(frozen=True, slots=True)
class Match:
    """`common` of the host's messages equal ours one by one, from the first on. `ours` is the index of our first
    message behind them, or the number of our messages."""

    common: int
    ours: int
    ours_left: int

    @property
    def diverged(self) -> bool:
        """Our transcript goes on where the host's says something else, or stops."""
        return self.ours_left > 0


def match(host: Sequence[HostMessage], raw: Sequence[Message]) -> Match:
    """Compares by role and content, not by id. What only we have (injections, and tool exchanges where the host keeps
    none) is passed over."""
    keeps_tools = any(m.role == "tool" or m.tool_calls for m in host)
    mine = [(i, _of(m)) for i, m in enumerate(raw) if _counts(m, keeps_tools)]
    theirs = comparables(host)
    common = 0
    while common < min(len(mine), len(theirs)) and mine[common][1] == theirs[common]:
        common += 1
    rest = mine[common:]
    return Match(common, rest[0][0] if rest else len(raw), len(rest))


def kept_until(entries: Sequence[Entry], raw: Sequence[Message], index: int) -> tuple[int, tuple[Message, ...]]:
    """How many entries of the context stay so that it ends before message `index` of the raw transcript, and which
    raw messages have to come again because a summary tells of what is gone."""
    gone = {m.id for m in raw[index:]}
    keep = next((i for i, e in enumerate(entries) if e.message.id in gone), len(entries))
    summary = next(
        (i for i, e in enumerate(entries) if e.message.origin and e.message.origin.kind == "compaction_summary"),
        None,
    )
    if summary is None:
        return keep, ()
    told_in_summary = keep <= summary or not gone <= {e.message.id for e in entries}
    return (0, tuple(raw[:index])) if told_in_summary else (keep, ())


def with_ids_of_their_own(messages: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """The messages with every call's id standing once in the context that they make with those `before`: a transcript
    may count its calls anew in each turn, and providers refuse that. Results follow their calls."""
    taken = {call.id for m in before for call in m.tool_calls or ()}
    open_calls: dict[str, list[str]] = {}
    out: list[Message] = []
    for message in messages:
        if message.tool_calls:
            open_calls = {}
            own = []
            for call in message.tool_calls:
                name = call.id if call.id and call.id not in taken else ids.new("call")
                taken.add(name)
                open_calls.setdefault(call.id, []).append(name)
                own.append(replace(call, id=name))
            message = replace(message, tool_calls=tuple(own))
        elif message.tool_call_id in open_calls:
            names = open_calls[message.tool_call_id]
            message = replace(message, tool_call_id=names.pop(0) if len(names) > 1 else names[0])
        out.append(message)
    return out


def comparables(host: Sequence[HostMessage]) -> list[Comparable]:
    return [(m.role, _said(m.content)) for m in spoken(host)]


def spoken(host: Sequence[HostMessage]) -> list[HostMessage]:
    """The host's messages that belong to the conversation: no system prompts, nothing blank."""
    return [m for m in host if m.role != "system" and (_said(m.content) or m.tool_calls or m.role == "tool")]


def _counts(message: Message, keeps_tools: bool) -> bool:
    kind = message.origin.kind if message.origin is not None else "user"
    if message.role == "system" or kind in ("injection", "compaction_summary", "hook_result", "retry"):
        return False
    if keeps_tools:
        return True
    return message.role != "tool" and bool(_said(message.content))


def _of(message: Message) -> Comparable:
    return message.role, _said(message.content)


def _said(content: str | Sequence[Part]) -> str:
    if isinstance(content, str):
        return content.strip()
    text = "".join(p.text for p in content if isinstance(p, TextPart)).strip()
    images = sum(not isinstance(p, TextPart) for p in content)
    return f"{text}\0{images}" if images else text
