"""A record type exists when its type and its fold case exist."""

from __future__ import annotations

import re
import zlib

from record_store import fold, records
from tests.architecture.source import ROOT


def test_every_record_type_is_folded_or_said_to_have_no_effect() -> None:
    folded = set(fold._FOLDS)
    assert folded | set(fold.WITHOUT_EFFECT) == set(records.RECORDS)
    assert not folded & fold.WITHOUT_EFFECT


def test_every_class_of_a_record_is_in_the_table() -> None:
    subclasses = {c for c in records.Record.__subclasses__() if c.__module__ == records.__name__}
    assert subclasses == set(records.RECORDS)


def test_the_format_page_names_every_record_type() -> None:
    page = (ROOT / "record_store" / "FORMAT.md").read_text()
    missing = [t for t in records.RECORD_TYPES if f"`{t}`" not in page]
    assert not missing


def test_the_line_on_the_format_page_is_a_whole_record() -> None:
    page = (ROOT / "record_store" / "FORMAT.md").read_text()
    body, crc = re.findall(r'^(\{"seq":12,.*),"crc":"([0-9a-f]{8})"\}', page, re.MULTILINE)[0]
    assert f"{zlib.crc32(body.encode()):08x}" == crc
