"""What both stream decoders share: the port to the transport, and the assembly of calls. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from protocol.messages import ToolCall
from sidecar.providers.errors import ProviderError
from sidecar.providers.failures import Judge
from sidecar.providers.jsontext import clean, dumps, json_object, loads
from sidecar.providers.port import StreamEvent, TokenUsage
from sidecar.providers.sse import SseEvent


class StreamDecoder(Protocol):
    """Reads one answer. Every method may raise `ProviderError`. An event whose data is blank is a heartbeat.

    `settled`: the finish reason came, the answer is whole, only figures may follow. `complete`: nothing more is
    expected. `taken` counts what was read, heartbeats left out.
    """

    settled: bool
    complete: bool
    taken: int

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        """The chunks that this event holds."""
        ...

    def whole(self, body: bytes) -> list[StreamEvent]:
        """The chunks of an answer that is one JSON document, no stream."""
        ...

    def result(self) -> list[StreamEvent]:
        """What was held back, then `Finished`. Raises `unavailable` if the answer has no finish reason."""
        ...

    def spent(self) -> TokenUsage | None:
        """What the answer has told of its cost so far."""
        ...


def read_json(data: bytes, judge: Judge) -> tuple[Any, bool]:
    """The event's JSON, and whether bytes in it had to be replaced. What cannot be read fails the attempt."""
    try:
        return loads(data)
    except ValueError:
        raise judge.unreadable("the stream holds something that is no JSON") from None


def cut_short(judge: Judge) -> ProviderError:
    return judge.unreadable("the answer ended before it was finished")


class _Call:
    __slots__ = ("arguments", "call_id", "name")

    def __init__(self, call_id: str = "", name: str = "") -> None:
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []


class CallAssembler:
    """Puts tool calls together from their pieces, in the order in which they began.

    Providers disagree on how a piece says which call it belongs to: by `index`; by an `id` with all calls under
    index 0; by nothing at all. Ids may come late, names in pieces or with every piece, a call may come whole.
    """

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, index: Any, call_id: Any, name: Any, arguments: Any) -> None:
        """One piece; what is missing or of the wrong kind counts as absent, and a piece without anything begins no
        call. `arguments` may be a ready object."""
        call_id = call_id if isinstance(call_id, str) else ""
        name = name if isinstance(name, str) else ""
        text = _argument_text(arguments)
        if not (call_id or name or text):
            return
        call = self._find(index if isinstance(index, int) else None, call_id, name, text)
        call.call_id = call.call_id or call_id
        call.name = _joined_name(call, name, index)
        if text:
            call.arguments.append(text)

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(clean(c.call_id), clean(c.name), clean("".join(c.arguments))) for c in self._calls)

    def _find(self, index: int | None, call_id: str, name: str, text: str) -> _Call:
        if index is None:
            known = next((c for c in self._calls if call_id and c.call_id == call_id), None)
            if known is not None:
                return known
            last = self._calls[-1] if self._calls else None
            if last is None or _starts_anew(last, call_id, name, text):
                return self._begin(len(self._calls))
            return last
        call = self._by_index.get(index)
        if call is None or _starts_anew(call, call_id, name, text):
            return self._begin(index)
        return call

    def _begin(self, index: int) -> _Call:
        call = _Call()
        self._calls.append(call)
        self._by_index[index] = call
        return call


def _starts_anew(call: _Call, call_id: str, name: str, text: str) -> bool:
    """Whether a piece under a known index is another call: it has a name and either another id, or, where there are
    no ids, arguments of its own although those of the known call are already whole."""
    if not name:
        return False
    if call_id and call.call_id:
        return call_id != call.call_id
    return not call_id and bool(text) and bool(call.name) and json_object("".join(call.arguments)) is not None


def _joined_name(call: _Call, name: str, index: Any) -> str:
    """The call's name with this piece: a name may come in pieces, before the arguments and under an index; one that
    comes again is the same name."""
    if not call.name:
        return name
    goes_on = isinstance(index, int) and not call.arguments and name != call.name
    return call.name + name if goes_on else call.name


def _argument_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return dumps(arguments).decode() if isinstance(arguments, (dict, list)) else ""


def texts_in(content: Any) -> Iterator[tuple[str, str]]:
    """(`text` or `thinking`, words) of a chat message's content: one string, or a list of typed parts."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, list):
        for part in content:
            if not isinstance(part, dict):
                continue
            for kind in ("text", "thinking"):
                inner = part.get(kind)
                if isinstance(inner, str):
                    yield kind, inner
                elif isinstance(inner, list):
                    yield from ((kind, words) for _, words in texts_in(inner))
