"""What an MCP server's answer is as a tool's outcome. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from protocol.messages import ImagePart, Part, TextPart
from sidecar.tools.port import ToolOutcome
from sidecar.tools.text import clean

IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""What the providers take."""
MAX_IMAGE = 20 << 20
"""Base64 characters; a larger image becomes a note."""


def outcome_of(result: Any) -> ToolOutcome:
    """Text stays text, images that providers take are images, anything else becomes text that says what it was. A
    result without content is its structured content as JSON."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [TextPart(clean(json.dumps(result.structured_content, ensure_ascii=False)))]
    return ToolOutcome(_joined(parts), is_error=bool(result.is_error))


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring texts as one, a line each."""
    out: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart) and out and isinstance(out[-1], TextPart):
            out[-1] = TextPart(f"{out[-1].text}\n{part.text}")
        else:
            out.append(part)
    return tuple(out)


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return TextPart(clean(block.text))
        case "image":
            return _image(block.mime_type, block.data)
        case "audio":
            return TextPart(f"[audio, {clean(block.mime_type)}, {_size(block.data)}; it cannot be shown here]")
        case "resource_link":
            note = f": {block.description}" if block.description else ""
            return TextPart(clean(f"[resource {block.name}, {block.uri}{note}]"))
        case "resource":
            return _resource(block.resource)
    return TextPart(f"[content of type {clean(str(block.type))}, which cannot be shown here]")


def _resource(resource: Any) -> Part:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return TextPart(clean(f"[resource {resource.uri}]\n{text}"))
    kind = resource.mime_type or "application/octet-stream"
    if kind in IMAGE_TYPES:
        return _image(kind, resource.blob)
    return TextPart(clean(f"[resource {resource.uri}, {kind}, {_size(resource.blob)}; it cannot be shown here]"))


def _image(kind: str, data: str) -> Part:
    if kind not in IMAGE_TYPES:
        return TextPart(f"[image of type {clean(kind)}, {_size(data)}; only PNG, JPEG, GIF and WebP can be shown]")
    if len(data) > MAX_IMAGE:
        return TextPart(f"[image, {kind}, {_size(data)}; it is too large to be shown]")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextPart(f"[image, {kind}; its data is damaged]")
    return ImagePart(kind, data=data)


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4} bytes"
