"""The chat completions dialect: requests. Its streams are in `openai_stream`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.messages import ImagePart, Message, TextPart, ToolCall, ToolSpec
from sidecar.providers import blocks
from sidecar.providers.encoder import TranscriptEncoder
from sidecar.providers.jsontext import dumps
from sidecar.providers.port import BlobReader, Prefix
from sidecar.providers.quirks import ChatQuirks

NAME_CHARS = 64

UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Google documents for calls whose signatures a client does not have."""


class ChatCodec:
    """Messages as chat completions take them (see `transcript.Codec`). `reference` is `provider/model`."""

    group_open = b""
    group_close = b""
    mark_back = 0

    def __init__(self, reference: str, quirks: ChatQuirks, blobs: BlobReader) -> None:
        self._reference = reference
        self._quirks = quirks
        self._blobs = blobs

    def opening(self) -> bytes | None:
        return None

    def user(self, message: Message) -> bytes:
        role = self._quirks.system_role if message.role == "system" else "user"
        return dumps({"role": role, "content": self._content(message)})

    def assistant(self, message: Message) -> bytes | None:
        if blocks.is_blank(message):
            return None
        text = message.text
        fields: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
        reasoning = self._reasoning(message)
        if reasoning is not None:
            fields["reasoning_content"] = reasoning
        if message.tool_calls:
            fields["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return dumps(fields)

    def result(self, message: Message) -> bytes:
        content: Any
        if self._quirks.images and self._quirks.tool_images == "inline" and _has_image(message):
            content = self._parts(message)
        else:
            content = self._result_text(message)
        return dumps({"role": "tool", "tool_call_id": self._call_id(message.tool_call_id or ""), "content": content})

    def beside_result(self, message: Message) -> list[bytes]:
        if not (self._quirks.images and self._quirks.tool_images == "user" and _has_image(message)):
            return []
        call_id = self._call_id(message.tool_call_id or "")
        title = {"type": "text", "text": f"Images in the result of {message.name or 'the tool'} ({call_id}):"}
        return [dumps(p) for p in (title, *(self._part(p) for p in message.content if isinstance(p, ImagePart)))]

    def missing_result(self, call_id: str) -> bytes:
        return dumps({"role": "tool", "tool_call_id": self._call_id(call_id), "content": blocks.MISSING_RESULT})

    def late_result(self, message: Message) -> list[bytes]:
        text = f"{blocks.LATE_RESULT}\n{message.text or blocks.NO_OUTPUT}"
        return [dumps({"type": "text", "text": text})]

    def user_parts(self, parts: Sequence[bytes]) -> bytes:
        return b'{"role":"user","content":[' + b",".join(parts) + b"]}"

    # ---- parts

    def _content(self, message: Message) -> Any:
        parts = self._parts(message)
        if not parts:
            return blocks.EMPTY_MESSAGE
        if all(p["type"] == "text" for p in parts) and (len(parts) == 1 or self._quirks.string_content):
            return "\n\n".join(p["text"] for p in parts)
        return parts

    def _parts(self, message: Message) -> list[dict[str, Any]]:
        return [self._part(p) for p in message.content if not (isinstance(p, TextPart) and not p.text)]

    def _part(self, part: TextPart | ImagePart) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        if not self._quirks.images:
            return {"type": "text", "text": blocks.image_pointer(part, "left out")}
        data = blocks.image_base64(part, self._blobs)
        if data is None:
            return {"type": "text", "text": blocks.image_pointer(part, "lost")}
        return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}

    def _result_text(self, message: Message) -> str:
        """A result as one string; its images are named where they go elsewhere or nowhere."""
        moved = self._quirks.images and self._quirks.tool_images == "user"
        lines = []
        for part in message.content:
            if isinstance(part, TextPart):
                lines.append(part.text)
            else:
                lines.append(blocks.image_pointer(part, "shown in the next user message" if moved else "left out"))
        text = "\n".join(line for line in lines if line)
        return text or blocks.NO_OUTPUT

    # ---- calls

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": self._name(call.name), "arguments": self._arguments(call.arguments)}
        fields: dict[str, Any] = {"id": self._call_id(call.id), "type": "function", "function": function}
        if self._quirks.unsigned_calls:
            fields["extra_content"] = UNSIGNED
        return fields

    def _reasoning(self, message: Message) -> str | None:
        """What goes back as `reasoning_content`: only a model's own, and not that of an answer that was cut."""
        mode = self._quirks.reasoning_replay
        if mode == "none" or message.partial:
            return None
        own = message.reasoning if message.model == self._reference else None
        if message.tool_calls:
            return own or ("" if mode == "tool_calls" else None)
        return own if mode == "all" and own else None

    def _arguments(self, text: str) -> str:
        if not text.strip():
            return "{}"
        if not self._quirks.repair_arguments:
            return text
        whole = blocks.arguments_object(text)
        return (dumps(blocks.wrapped_arguments(text)) if whole is None else whole).decode()

    def _name(self, name: str) -> str:
        return blocks.safe_name(name, NAME_CHARS) if self._quirks.strict_names else name or "unnamed"

    def _call_id(self, call_id: str) -> str:
        match self._quirks.call_ids:
            case "max_40":
                return call_id if 0 < len(call_id) <= 40 else "call_" + blocks.short_hash(call_id, 12)
            case "alnum_9":
                fits = len(call_id) == 9 and call_id.isascii() and call_id.isalnum()
                return call_id if fits else blocks.short_hash(call_id)[:9]
            case _:
                return call_id


def _has_image(message: Message) -> bool:
    return any(isinstance(p, ImagePart) for p in message.content)


class ChatEncoder(TranscriptEncoder):
    """See `port.Encoder`."""

    def __init__(self, reference: str, model: str, quirks: ChatQuirks, blobs: BlobReader) -> None:
        super().__init__(ChatCodec(reference, quirks, blobs))
        self._quirks = quirks
        self._options = self._encode_options(model)
        self._system = b""
        self._tools = b""

    @property
    def _separator(self) -> bytes:
        return b"," if self._system else b""

    def _encode_options(self, model: str) -> bytes:
        fields: dict[str, Any] = {"model": model, "stream": True}
        if self._quirks.stream_options:
            fields["stream_options"] = {"include_usage": True}
        return dumps({**fields, **self._quirks.extra_body})[:-1]

    def _encode_prefix(self, prefix: Prefix) -> tuple[bytes, bytes]:
        self._system = self._tools = b""
        if prefix.system.strip():
            self._system = dumps({"role": self._quirks.system_role, "content": prefix.system})
        if prefix.tools:
            self._tools = b',"tools":' + dumps([_tool(t) for t in sorted(prefix.tools, key=lambda t: t.name)])
            if self._quirks.parallel_tool_calls is not None:
                self._tools += b',"parallel_tool_calls":' + dumps(self._quirks.parallel_tool_calls)
        return self._system, self._tools

    def _head(self, max_output_tokens: int | None) -> tuple[bytes, bytes]:
        limit = b""
        if max_output_tokens is not None:
            limit = b',"%s":%d' % (self._quirks.max_tokens_field.encode(), max_output_tokens)
        return self._options + limit + self._tools + b',"messages":[' + self._system, b"]}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name}
    if spec.description:
        function["description"] = spec.description
    function["parameters"] = spec.parameters
    return {"type": "function", "function": function}
