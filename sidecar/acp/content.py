"""Between the content blocks of prompts and updates and our message parts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from protocol.messages import ImagePart, Part, TextPart


class UnsupportedContent(Exception):
    """A block that the agent did not offer to take; `index` is its place in the prompt."""

    def __init__(self, index: int, kind: str) -> None:
        super().__init__(kind)
        self.index = index
        self.kind = kind


def parts_of(blocks: Sequence[Any]) -> tuple[Part, ...]:
    """The parts of a prompt, in order; text that follows text is joined. Raises `UnsupportedContent`."""
    parts: list[Part] = []
    for index, block in enumerate(blocks):
        part = _part(index, block)
        if isinstance(part, TextPart) and parts and isinstance(parts[-1], TextPart):
            parts[-1] = TextPart(f"{parts[-1].text}\n\n{part.text}")
        else:
            parts.append(part)
    return tuple(parts)


def _part(index: int, block: Any) -> Part:
    match block:
        case TextContentBlock():
            return TextPart(block.text)
        case ImageContentBlock():
            return ImagePart(block.mime_type, data=block.data)
        case ResourceContentBlock():
            return TextPart(f"[{block.title or block.name}]({block.uri})")
        case EmbeddedResourceContentBlock():
            return _resource(index, block.resource)
        case AudioContentBlock():
            raise UnsupportedContent(index, "audio")
    raise UnsupportedContent(index, str(getattr(block, "type", "unknown")))


def _resource(index: int, resource: Any) -> Part:
    if isinstance(resource, BlobResourceContents):
        if (resource.mime_type or "").startswith("image/"):
            return ImagePart(resource.mime_type, data=resource.blob)
        raise UnsupportedContent(index, f"resource of type {resource.mime_type or 'unknown'}")
    return TextPart(f'<resource uri="{_attribute(resource.uri)}">\n{resource.text}\n</resource>')


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def blocks_of(parts: Iterable[Part]) -> list[Any]:
    """Content blocks for an update. An image that is only a hash here becomes a word."""
    blocks: list[Any] = []
    for part in parts:
        if isinstance(part, TextPart):
            if part.text:
                blocks.append(text_block(part.text))
        elif part.data is not None:
            blocks.append(ImageContentBlock(type="image", data=part.data, mime_type=part.media_type))
        else:
            blocks.append(text_block(f"[{part.media_type}]"))
    return blocks


def text_block(text: str) -> Any:
    return TextContentBlock(type="text", text=text)
