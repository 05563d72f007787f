"""Windows with their source, and providers' lists in every spelling."""

# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.providers import catalog
from sidecar.providers.catalog import ListedModel, read_models, resolve_info, row_of
from sidecar.providers.port import FALLBACK_WINDOW, ModelInfo
from sidecar.settings import effective

LISTED = ListedModel("m", window=50_000, max_output=5_000, input_price=9.0)


def test_the_order_of_sources() -> None:
    known = "openai/gpt-4o"
    assert resolve_info("x/m", effective(), None) == ModelInfo()
    assert resolve_info("x/m", effective(), LISTED) == ModelInfo(50_000, "provider", 5_000, 9.0)
    assert resolve_info(known, effective(), LISTED).window == 128_000
    assert resolve_info(known, effective(), None).window_source == "table"
    table = effective({"models": {known: {"window": 64_000}, "x/m": {"max_output": 7}}})
    row = resolve_info(known, table, None)
    assert (row.window, row.window_source, row.max_output, row.input_price) == (64_000, "table", 16_384, 2.5)
    assert resolve_info("x/m", table, LISTED) == ModelInfo(50_000, "provider", 7, 9.0)
    own = effective({"model": {"window": 4_000, "max_output": 99}, "models": {known: {"window": 64_000}}})
    assert (resolve_info(known, own, None).window, resolve_info(known, own, None).window_source) == (4_000, "config")
    assert resolve_info(known, own, None).max_output == 99
    assert resolve_info("x/m", effective(), ListedModel("m")) == ModelInfo(FALLBACK_WINDOW, "fallback")


def test_the_sessions_window_is_not_that_of_the_model_that_only_summarises() -> None:
    settings = effective({"model": {"name": "x/main", "window": 4_000}, "compaction": {"model": "openai/gpt-4o"}})
    assert resolve_info("x/main", settings, None).window == 4_000
    assert resolve_info("openai/gpt-4o", settings, None).window == 128_000


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-latest"])
def test_dated_names_count_as_the_plain_one(name: str) -> None:
    row = row_of(f"openai/{name}")
    assert row is not None
    assert row.window == 128_000
    assert row_of("openai/gpt-4o-audio") is None


def test_the_shipped_table_is_sound() -> None:
    for reference, row in catalog.shipped().items():
        assert "/" in reference
        assert row.window is not None
        assert row.max_output is not None
        assert row.max_output <= row.window
        if row.input_price is not None:
            assert row.output_price is not None
            assert (row.cached_price or 0) <= row.input_price <= row.output_price
    for provider, model in catalog.defaults().items():
        assert f"{provider}/{model}" in catalog.shipped()


ROWS: list[tuple[dict[str, Any], ListedModel | None]] = [
    ({"id": "a"}, ListedModel("a")),
    ({"id": "a", "max_model_len": 4096}, ListedModel("a", 4096)),
    ({"id": "a", "context_window": 8192, "max_completion_tokens": 512}, ListedModel("a", 8192, 512)),
    ({"id": "a", "context_length": 131072, "top_provider": {"max_completion_tokens": 16384},
      "pricing": {"prompt": "0.0000025", "completion": "0.00001", "input_cache_read": "0.00000025"}},
     ListedModel("a", 131072, 16384, 2.5, 0.25, 10.0)),
    ({"id": "a", "max_input_tokens": 1_000_000, "max_tokens": 128_000}, ListedModel("a", 1_000_000, 128_000)),
    ({"id": "a", "meta": {"n_ctx_train": 2048}}, ListedModel("a", 2048)),
    ({"id": "a", "meta": {"n_ctx": 1024, "n_ctx_train": 2048}}, ListedModel("a", 1024)),
    ({"name": "models/gemini", "inputTokenLimit": 1048576, "outputTokenLimit": 65536}, ListedModel("gemini", 1048576, 65536)),
    ({"id": "a", "capabilities": {"limits": {"max_context_window_tokens": 128000}}}, ListedModel("a", 128000)),
    ({"id": "a", "context_length": "many", "max_model_len": 12, "pricing": {"prompt": "-1", "completion": None}},
     ListedModel("a")),
    ({"id": 5}, None), ({}, None),
]  # fmt: skip


@pytest.mark.parametrize(("row", "wanted"), ROWS)
def test_rows_of_a_list(row: dict[str, Any], wanted: ListedModel | None) -> None:
    found = read_models(json.dumps({"object": "list", "data": [row, row]}).encode())
    assert found == ((wanted,) if wanted is not None else ())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b'{"data": 5}', b'{"data": [5, null]}', b'{"models": {}}'])
def test_what_is_no_list(body: bytes) -> None:
    assert read_models(body) == ()


def test_lists_under_other_names() -> None:
    assert read_models(b'{"models": [{"name": "a"}]}') == (ListedModel("a"),)
    assert read_models(b'[{"id": "a"}]') == (ListedModel("a"),)
