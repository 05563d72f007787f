"""What is known of models: the shipped table, the configuration, and providers' own lists. Pure but for reading the
table, once.

The shipped table (`models.toml`) holds public list prices in dollars per million tokens at the base tier, and the
windows and output limits that the makers state. A dated or `-latest` name counts as the plain one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from sidecar.providers.jsontext import clean, loads
from sidecar.providers.port import FALLBACK_WINDOW, ModelInfo, WindowOrigin
from sidecar.providers.usage import count
from sidecar.settings import ModelRow, ModelSettings, Settings

MAX_LIST_BYTES = 8 << 20
MAX_LISTED = 5_000

MIN_LISTED_WINDOW = 256
"""A smaller number in a provider's list is no window."""

_DATED = re.compile(r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest|@\d{8}|:latest)$")


class ListedModel(Struct, frozen=True):
    """A row of a provider's own list; None where it says nothing. Prices are per million tokens."""

    model: str
    window: int | None = None
    max_output: int | None = None
    input_price: float | None = None
    cached_price: float | None = None
    output_price: float | None = None


@cache
def shipped() -> Mapping[str, ModelRow]:
    """The shipped rows by `provider/model`."""
    raw = tomllib.loads(files("sidecar.providers").joinpath("models.toml").read_text("utf-8"))
    return msgspec.convert(raw["models"], dict[str, ModelRow], strict=True)


@cache
def defaults() -> Mapping[str, str]:
    """The model that a provider is asked for when none is named."""
    raw = tomllib.loads(files("sidecar.providers").joinpath("models.toml").read_text("utf-8"))
    return msgspec.convert(raw["defaults"], dict[str, str], strict=True)


def row_of(reference: str) -> ModelRow | None:
    """The shipped row of a model, by its name or by its name without a date."""
    table = shipped()
    return table.get(reference) or table.get(_DATED.sub("", reference))


def resolve_info(reference: str, settings: Settings, listed: ListedModel | None) -> ModelInfo:
    """All that is known of a model. Window: the session's setting, the configured table, the shipped one, the
    provider's list, else the fallback; each other figure from the first of these that has it."""
    own = settings.model if _is_session_model(reference, settings) else ModelSettings()
    rows = [r for r in (settings.models.get(reference), row_of(reference)) if r is not None]
    window, source = _window(own, rows, listed)
    sources: list[ModelSettings | ModelRow | ListedModel] = [own, *rows]
    if listed is not None:
        sources.append(listed)

    def first(name: str) -> Any:
        return next((v for s in sources if (v := getattr(s, name, None)) is not None), None)

    return ModelInfo(
        window, source, first("max_output"), first("input_price"), first("cached_price"), first("output_price")
    )


def _window(own: ModelSettings, rows: Sequence[ModelRow], listed: ListedModel | None) -> tuple[int, WindowOrigin]:
    if own.window is not None:
        return own.window, "config"
    table = next((r.window for r in rows if r.window is not None), None)
    if table is not None:
        return table, "table"
    if listed is not None and listed.window is not None:
        return listed.window, "provider"
    return FALLBACK_WINDOW, "fallback"


def _is_session_model(reference: str, settings: Settings) -> bool:
    """The session's `model.window` is its own model's; a model that only writes summaries keeps its own window."""
    return reference != settings.compaction.model or settings.model.name in (None, reference)


# ---------------------------------------------------------------- providers' lists

_WINDOW_NAMES = (
    "context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "inputTokenLimit",
    "max_context_window_tokens", "context_size", "contextLength", "max_context_tokens", "max_sequence_length",
    "loaded_context_length", "n_ctx", "num_ctx", "max_seq_len", "n_ctx_train",
)  # fmt: skip
_OUTPUT_NAMES = (
    "max_output_tokens", "max_completion_tokens", "outputTokenLimit", "max_output_length", "max_tokens", "max_output",
)  # fmt: skip
_NESTED = (
    "top_provider", "meta", "limits", "limit", "capabilities", "model_info", "details", "default_generation_settings",
)  # fmt: skip


def read_models(body: bytes) -> tuple[ListedModel, ...]:
    """The rows of a model list in any of the known spellings; what is none is left out."""
    try:
        value, _ = loads(body)
    except ValueError:
        return ()
    rows = value
    if isinstance(value, dict):
        rows = next((value[k] for k in ("data", "models", "result") if isinstance(value.get(k), list)), [])
    found: dict[str, ListedModel] = {}
    for row in rows if isinstance(rows, list) else ():
        listed = _read_row(row)
        if listed is not None and listed.model not in found:
            found[listed.model] = listed
        if len(found) >= MAX_LISTED:
            break
    return tuple(found.values())


def _read_row(row: Any) -> ListedModel | None:
    if not isinstance(row, dict):
        return None
    name = next((row[k] for k in ("id", "model", "name", "slug") if isinstance(row.get(k), str) and row[k]), None)
    if name is None:
        return None
    window = _figure(row, _WINDOW_NAMES, MIN_LISTED_WINDOW)
    output = _figure(row, _OUTPUT_NAMES, 1)
    price = row.get("pricing")
    prices = price if isinstance(price, dict) else {}
    return ListedModel(
        model=clean(name).removeprefix("models/"),
        window=window,
        max_output=output,
        input_price=_price(prices.get("prompt")),
        cached_price=_price(prices.get("input_cache_read")),
        output_price=_price(prices.get("completion")),
    )


def _figure(row: Mapping[str, Any], names: tuple[str, ...], least: int) -> int | None:
    """The first of these figures, in the row itself or in one of its known inner tables."""
    tables = [row, *(row[k] for k in _NESTED if isinstance(row.get(k), dict))]
    tables += [t["limits"] for t in tables if isinstance(t.get("limits"), dict)]
    for name in names:
        for table in tables:
            value = count(table.get(name))
            if least <= value <= 100_000_000:
                return value
    return None


def _price(text: Any) -> float | None:
    """A price per token, as text, in dollars per million."""
    try:
        price = float(text) * 1_000_000
    except (TypeError, ValueError):
        return None
    return price if 0 <= price < 1_000_000 else None
