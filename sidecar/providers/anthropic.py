"""The Messages dialect: requests. Its streams are in `anthropic_stream`.

Cache marks stand on the system prompt, the last tool and the last two user-role messages: four, which is all that
the dialect allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.messages import ImagePart, Message, TextPart, ToolCall, ToolSpec
from sidecar.providers import blocks
from sidecar.providers.encoder import TranscriptEncoder
from sidecar.providers.jsontext import dumps
from sidecar.providers.port import BlobReader, Prefix
from sidecar.providers.quirks import MessagesQuirks

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The only ones that the dialect takes; one other makes the whole request fail."""

NAME_CHARS = 128
ID_CHARS = 64
CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'
MARK_BACK = len(b"}]}")


class MessagesCodec:
    """Messages as the Messages dialect takes them (see `transcript.Codec`). `reference` is `provider/model`.

    Every user-role message ends in `}]}`: the last block of its content, the content, the message.
    """

    group_open = b'{"role":"user","content":['
    group_close = b"]}"
    mark_back = MARK_BACK

    def __init__(self, reference: str, quirks: MessagesQuirks, blobs: BlobReader) -> None:
        self._reference = reference
        self._quirks = quirks
        self._blobs = blobs

    def opening(self) -> bytes | None:
        return self.user_parts([dumps({"type": "text", "text": "(the conversation starts with the assistant)"})])

    def user(self, message: Message) -> bytes:
        content = self._blocks(message) or [{"type": "text", "text": blocks.EMPTY_MESSAGE}]
        if message.role == "system":
            reminder = "\n\n".join(b["text"] for b in content if b["type"] == "text")
            content = [{"type": "text", "text": f"<system-reminder>\n{reminder}\n</system-reminder>"}]
        return dumps({"role": "user", "content": content})

    def assistant(self, message: Message) -> bytes | None:
        if blocks.is_blank(message):
            return None
        thoughts = self._thinking(message)
        if any(at for at, _ in thoughts):
            content = _interleaved(message.text, thoughts)
        else:
            content = [block for _, block in thoughts] + [_text(p.text) for p in _texts(message)]
        content += [self._tool_use(call) for call in message.tool_calls or ()]
        return b'{"role":"assistant","content":[' + b",".join(content) + b"]}"

    def result(self, message: Message) -> bytes:
        content = self._blocks(message)
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._call_id(message.tool_call_id or "")}
        if message.is_error:
            block["is_error"] = True
        if not content:
            block["content"] = blocks.NO_OUTPUT
        elif len(content) == 1 and content[0]["type"] == "text":
            block["content"] = content[0]["text"]
        else:
            block["content"] = content
        return dumps(block)

    def beside_result(self, message: Message) -> list[bytes]:
        return []

    def missing_result(self, call_id: str) -> bytes:
        return dumps(
            {
                "type": "tool_result",
                "tool_use_id": self._call_id(call_id),
                "is_error": True,
                "content": blocks.MISSING_RESULT,
            }
        )

    def late_result(self, message: Message) -> list[bytes]:
        text = f"{blocks.LATE_RESULT}\n{message.text or blocks.NO_OUTPUT}"
        return [dumps({"type": "text", "text": text})]

    def user_parts(self, parts: Sequence[bytes]) -> bytes:
        return self.group_open + b",".join(parts) + self.group_close

    # ---- blocks

    def _blocks(self, message: Message) -> list[dict[str, Any]]:
        """Text and images; text without a visible character is left out, the dialect refuses it."""
        out: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, ImagePart):
                out.append(self._image(part))
            elif part.text.strip():
                out.append({"type": "text", "text": part.text})
        return out

    def _image(self, part: ImagePart) -> dict[str, Any]:
        kind = "image/jpeg" if part.media_type == "image/jpg" else part.media_type
        if not self._quirks.images or kind not in IMAGE_TYPES:
            return {"type": "text", "text": blocks.image_pointer(part, "left out")}
        data = blocks.image_base64(part, self._blobs)
        if data is None:
            return {"type": "text", "text": blocks.image_pointer(part, "lost")}
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

    def _thinking(self, message: Message) -> list[tuple[int, bytes]]:
        """Signed blocks in the order in which they came, each with how much text was before it, to the model that made
        them; the rest cannot be replayed."""
        if message.partial or message.model != self._reference:
            return []
        out: list[tuple[int, bytes]] = []
        start = 0
        for block in message.reasoning_blocks or ():
            text = (message.reasoning or "")[start : start + block.chars]
            start += block.chars
            if block.redacted is not None:
                out.append((block.at, dumps({"type": "redacted_thinking", "data": block.redacted})))
            elif block.signature:
                thought = {"type": "thinking", "thinking": text, "signature": block.signature}
                out.append((block.at, dumps(thought)))
        return out

    def _tool_use(self, call: ToolCall) -> bytes:
        """The model's own argument text stands in the request as it is, where it is a JSON object."""
        name = blocks.safe_name(call.name, NAME_CHARS)
        head = dumps({"type": "tool_use", "id": self._call_id(call.id), "name": name})
        raw = blocks.arguments_object(call.arguments)
        arguments = dumps(blocks.wrapped_arguments(call.arguments)) if raw is None else raw
        return head[:-1] + b',"input":' + arguments + b"}"

    def _call_id(self, call_id: str) -> str:
        return blocks.safe_id(call_id, "toolu_", ID_CHARS)


def _texts(message: Message) -> list[TextPart]:
    return [p for p in message.content if isinstance(p, TextPart) and p.text.strip()]


def _text(text: str) -> bytes:
    return dumps({"type": "text", "text": text})


def _interleaved(text: str, thoughts: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """Blocks in the order in which they came; the dialect refuses signed ones that stand elsewhere, and text without a
    visible character, which goes to the text behind it."""
    out: list[bytes] = []
    said = 0
    for at, thought in thoughts:
        if text[said:at].strip():
            out.append(_text(text[said:at]))
            said = at
        out.append(thought)
    return [*out, _text(text[said:])] if text[said:].strip() else out


class MessagesEncoder(TranscriptEncoder):
    """See `port.Encoder`. `max_output` is the model's own limit, used when a request names none."""

    def __init__(
        self, reference: str, model: str, quirks: MessagesQuirks, blobs: BlobReader, max_output: int | None
    ) -> None:
        super().__init__(MessagesCodec(reference, quirks, blobs))
        self.cache_mark = CACHE_MARK if quirks.cache_control else b""
        self._max_output = max_output or quirks.default_max_tokens
        self._options = dumps({"model": model, "stream": True, **quirks.extra_body})[:-1]
        self._system = b""
        self._tools = b""

    def _encode_prefix(self, prefix: Prefix) -> tuple[bytes, bytes]:
        self._system = self._tools = b""
        if prefix.system.strip():
            block = dumps({"type": "text", "text": prefix.system})
            self._system = b',"system":[' + block[:-1] + self.cache_mark + b"}]"
        if prefix.tools:
            tools = [dumps(_tool(t)) for t in sorted(prefix.tools, key=lambda t: t.name)]
            tools[-1] = tools[-1][:-1] + self.cache_mark + b"}"
            self._tools = b',"tools":[' + b",".join(tools) + b"]"
        return self._system, self._tools

    def _head(self, max_output_tokens: int | None) -> tuple[bytes, bytes]:
        limit = b',"max_tokens":%d' % (max_output_tokens or self._max_output)
        return self._options + limit + self._tools + self._system + b',"messages":[', b"]}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": spec.name}
    if spec.description:
        fields["description"] = spec.description
    schema = spec.parameters
    fields["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    return fields
