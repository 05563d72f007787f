"""Front matter of Markdown files. Pure; YAML is loaded when the first header is read that needs it."""

from __future__ import annotations

import re

MAX_HEADER_CHARS = 16_384
"""A longer header is refused: it is no longer a description of the text below it."""

MAX_BRACKETS = 1_000
"""Opening ones. The time that YAML takes grows with the square of how deep they nest."""

Header = dict[str, "str | list[str]"]
"""Keys to texts or lists of texts. Nothing is guessed: `3`, `yes` and dates stay as they are written."""

_FENCE = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^|(?<=\n))---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class FrontMatterError(ValueError):
    """A header that cannot be read. The text is for the person who wrote the file."""


def split(text: str) -> tuple[str, str] | None:
    """Header and body of a text that begins with a `---` line, else None. The body is what follows the closing line,
    untouched; the header has `\\n` line ends."""
    found = _FENCE.match(text)
    if found is None:
        return None
    return found.group(1).replace("\r\n", "\n"), text[found.end() :]


def read(header: str) -> Header:
    """The header's fields. Raises `FrontMatterError`.

    Values that are neither texts nor lists of texts are left out. An empty value is an empty text.
    """
    if len(header) > MAX_HEADER_CHARS:
        raise FrontMatterError(f"the front matter is longer than {MAX_HEADER_CHARS} characters")
    if header.count("[") + header.count("{") > MAX_BRACKETS:
        raise FrontMatterError(f"the front matter has more than {MAX_BRACKETS} opening brackets")
    import yaml

    try:
        loaded = yaml.load(header, Loader=yaml.BaseLoader)  # texts, lists and tables only: builds no objects
    except yaml.YAMLError as error:
        raise FrontMatterError(_explain(error)) from None
    except (RecursionError, ValueError):
        raise FrontMatterError("the front matter is not valid YAML") from None
    if loaded in (None, ""):
        return {}
    if not isinstance(loaded, dict):
        raise FrontMatterError("the front matter is not a list of `key: value` lines")
    fields: Header = {}
    for key, value in loaded.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, str):
            fields[key] = value
        elif isinstance(value, list):
            fields[key] = [item for item in value if isinstance(item, str)]
    return fields


def _explain(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not valid YAML"
    where = f" in line {mark.line + 1} of the front matter" if mark is not None else ""
    return f"{problem}{where} (a value with `: ` or `#` in it needs quotes)"


def texts(value: str | list[str] | None) -> tuple[str, ...]:
    """A list, or a comma-separated text, as a tuple of trimmed texts; commas inside parentheses do not separate."""
    if value is None:
        return ()
    items = _separated(value) if isinstance(value, str) else value
    return tuple(item.strip() for item in items if item.strip())


def _separated(text: str) -> list[str]:
    """Linear in the text. A parenthesis without its other half is like any other character."""
    opened: list[int] = []
    matched: set[int] = set()
    for i, char in enumerate(text):
        if char == "(":
            opened.append(i)
        elif char == ")" and opened:
            matched |= {opened.pop(), i}
    items, start, depth = [], 0, 0
    for i, char in enumerate(text):
        if i in matched:
            depth += 1 if char == "(" else -1
        elif char == "," and depth == 0:
            items.append(text[start:i])
            start = i + 1
    return [*items, text[start:]]
