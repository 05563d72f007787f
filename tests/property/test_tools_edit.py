"""Edits over every encoding: what was asked for changes, and not a byte besides."""

from __future__ import annotations

import codecs
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tools import textfile
from sidecar.tools.edits import edit
from sidecar.tools.reading import read_slice
from sidecar.tools.refusal import Refused

WORDS = st.text(st.sampled_from("abXY 漢é😀\t\u2028\x85\x0b"), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n"])
ENCODINGS = st.sampled_from(
    [
        textfile.Encoding(),
        textfile.Encoding("utf-8", codecs.BOM_UTF8),
        textfile.Encoding("utf-16-le", codecs.BOM_UTF16_LE),
        textfile.Encoding("utf-16-be", codecs.BOM_UTF16_BE),
    ]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Lines with line ends of one kind or of both, the last with or without."""
    lines = draw(st.lists(WORDS, min_size=1, max_size=8))
    ends = draw(st.sampled_from(["\n", "\r\n", "mixed"]))
    text = "".join(line + (draw(ENDS) if ends == "mixed" else ends) for line in lines)
    return text if draw(st.booleans()) else text.rstrip("\r\n")


@given(texts(), ENCODINGS)
def test_a_file_comes_back_as_it_was(text: str, encoding: textfile.Encoding) -> None:
    data = textfile.encode(text, encoding)
    decoded = textfile.decode(data, "f")
    assert decoded.text == text
    assert decoded.encoding == encoding
    assert textfile.encode(decoded.text, decoded.encoding) == data


@given(st.binary(max_size=200))
def test_any_bytes_come_back_or_are_refused(data: bytes) -> None:
    try:
        decoded = textfile.decode(data, "f")
    except Refused:
        return
    assert textfile.encode(decoded.text, decoded.encoding) == data


@given(texts(), texts(), st.text(st.sampled_from("nN\n"), max_size=5), st.data())
def test_what_surrounds_an_edit_stays(before: str, after: str, new: str, data: st.DataObject) -> None:
    """The passage is marked, so that it is unique, and given with `\\n` whatever its line ends are."""
    inner = data.draw(texts())
    passage = f"<{inner}>"
    text = before + passage + after
    old = passage.replace("\r\n", "\n")
    if new.replace("\r\n", "\n") == old or text.count("<") != 1:
        return
    edited = edit(text, old, new, replace_all=False, name="f")
    assert edited.text.startswith(before)
    assert edited.text.endswith(after)
    middle = edited.text[len(before) : len(edited.text) - len(after)] if after else edited.text[len(before) :]
    assert middle.replace("\r\n", "\n") == new
    assert edited.lines == (before.count("\n") + 1,)
    if textfile.is_uniform(text) and "\n" in text:
        assert textfile.is_uniform(edited.text)


@given(texts(), st.text(st.sampled_from("abXY\n"), min_size=1, max_size=3), WORDS)
def test_every_occurrence_is_replaced_or_the_one(text: str, old: str, new: str) -> None:
    plain = text.replace("\r\n", "\n")
    overlapping = sum(plain.startswith(old, i) for i in range(len(plain)))
    if old == new:
        return
    if overlapping == 0:
        with pytest.raises(Refused, match="was not found"):
            edit(text, old, new, replace_all=True, name="f")
        return
    edited = edit(text, old, new, replace_all=True, name="f")
    assert edited.text.replace("\r\n", "\n") == plain.replace(old, new)
    if overlapping > 1:
        with pytest.raises(Refused, match="times"):
            edit(text, old, new, replace_all=False, name="f")
    else:
        assert edit(text, old, new, replace_all=False, name="f") == edited


@given(texts(), ENCODINGS, st.integers(1, 10), st.integers(1, 10))
def test_slices_are_the_lines_of_the_text(text: str, encoding: textfile.Encoding, first: int, count: int) -> None:
    lines = text.replace("\r\n", "\n").split("\n")
    ended = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_bytes(textfile.encode(text, encoding))
        fd = os.open(path, os.O_RDONLY)
        try:
            part = read_slice(fd, "f", first=first, count=count, budget=10_000, check=lambda: None)
        finally:
            os.close(fd)
    assert part.text == "".join(ended[first - 1 : first - 1 + count])
    assert part.total == len(ended)
    assert part.encoding == encoding
