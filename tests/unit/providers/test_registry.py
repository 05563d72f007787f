"""Names to bindings: what resolves, what is said when it does not, whose key and address, what lists tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sidecar.errors import Fault
from sidecar.providers.port import FALLBACK_WINDOW
from sidecar.providers.provider import join_url
from sidecar.providers.registry import Registry, default_reference, preload
from sidecar.settings import Settings, effective
from tests.support.fake_llm import FakeLLM
from tests.support.providers import ask, registry_for, summary_of
from tests.support.requests import PREFIX, Held, user

KEYS = {"OPENAI_API_KEY": "sk-1234567", "ANTHROPIC_API_KEY": "sk-ant-1234567"}
OTHER = {"base_url": "https://models.example/v1"}


def providers(**rows: Any) -> Settings:
    return effective({"providers": rows})


def refused(registry: Registry, reference: str | None, settings: Settings | None = None) -> Fault:
    with pytest.raises(Fault) as caught:
        registry.resolve(reference, settings or Settings())
    return caught.value


# ---------------------------------------------------------------- what resolves


def test_a_binding() -> None:
    binding = Registry(KEYS).resolve("openai/gpt-4o", Settings())
    assert (binding.reference, binding.model, binding.provider.name) == ("openai/gpt-4o", "gpt-4o", "openai")
    assert (binding.info.window, binding.info.window_source) == (128_000, "table")
    assert (binding.provider.retry.max_retries, binding.provider.retry.base_s) == (5, 0.5)


def test_a_models_own_name_may_have_slashes() -> None:
    settings = providers(openrouter={**OTHER, "api_key_env": "MY_KEY"})
    binding = Registry({"MY_KEY": "k-12345"}).resolve("openrouter/vendor/model:free", settings)
    assert (binding.provider.name, binding.model) == ("openrouter", "vendor/model:free")


@pytest.mark.parametrize(
    ("reference", "environment", "settings"),
    [
        ("openai/m", {"OPENAI_BASE_URL": "http://localhost:8080/v1"}, Settings()),
        ("anthropic/m", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, Settings()),
        ("openai/m", {}, providers(openai={"base_url": "http://[::1]:80"})),
        ("openai/m", {}, providers(openai={"headers": {"Authorization": "Bearer x"}})),
        ("openai/m", {"MINE": "k"}, providers(openai={"api_key_env": "MINE"})),
        ("lan/m", {}, providers(lan={"base_url": "http://192.168.1.5:8000/v1"})),
        ("deepseek/m", {"DEEPSEEK_API_KEY": "k"}, providers(deepseek=OTHER)),
        ("claude/m", {"K": "k"}, providers(claude={**OTHER, "dialect": "anthropic", "api_key_env": "K"})),
        ("scripted/echo", {}, Settings()),
        ("player/echo", {}, providers(player={"dialect": "scripted"})),
    ],
)
def test_these_can_be_served(reference: str, environment: dict[str, str], settings: Settings) -> None:
    assert Registry(environment).resolve(reference, settings).reference == reference


@pytest.mark.parametrize(
    ("reference", "environment", "settings", "words"),
    [
        (None, {}, Settings(), "OPENAI_API_KEY"),
        (None, KEYS, Settings(), "SIDECAR_MODEL"),
        ("openai/m", {}, Settings(), "OPENAI_API_KEY"),
        ("openai/m", {"OPENAI_API_KEY": "  "}, Settings(), "OPENAI_API_KEY"),
        ("anthropic/m", {"OPENAI_API_KEY": "k"}, Settings(), "ANTHROPIC_API_KEY"),
        ("openai/m", {}, providers(openai={"api_key_env": "MINE"}), "MINE"),
        ("other/m", KEYS, Settings(), "[providers.other]"),
        ("openai", KEYS, Settings(), "provider/model"),
        ("/m", KEYS, Settings(), "provider/model"),
        ("openai/", KEYS, Settings(), "provider/model"),
        ("other/m", KEYS, providers(other={}), "base_url"),
        ("other/m", KEYS, providers(other={"base_url": "models.example"}), "base_url"),
        ("openai/m", {**KEYS, "OPENAI_BASE_URL": "ftp://x"}, Settings(), "OPENAI_BASE_URL"),
        ("openai/m", {"OPENAI_API_KEY": "kéy"}, Settings(), "variable"),
        ("openai/m", {"OPENAI_API_KEY": "a\nb"}, Settings(), "variable"),
        ("scripted/not/there.jsonl", {}, Settings(), "JSON Lines"),
    ],
)
def test_these_cannot_and_the_hint_says_what_to_do(
    reference: str | None, environment: dict[str, str], settings: Settings, words: str
) -> None:
    fault = refused(Registry(environment), reference, settings)
    assert fault.reason == "no_provider"
    assert words in str(fault.hint) or words in fault.message
    for key in environment.values():
        assert len(key) < 6 or key not in f"{fault.message} {fault.hint} {fault.data}"


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"quirks": {"odd": 1}}, "providers.openai.quirks.odd"),
        ({"headers": {"X-A": "a\r\nb: c"}}, "providers.openai.headers"),
        ({"headers": {"bad name": "a"}}, "providers.openai.headers"),
        ({"headers": {"X-A": "ü"}}, "providers.openai.headers"),
    ],
)
def test_wrong_settings_are_named(row: dict[str, Any], key: str) -> None:
    fault = refused(Registry(KEYS), "openai/m", providers(openai=row))
    assert (fault.reason, fault.data["key"]) == ("config_invalid", key)


def test_the_same_settings_give_the_same_provider() -> None:
    registry = Registry(KEYS)
    first = registry.resolve("openai/a", Settings()).provider
    assert registry.resolve("openai/b", Settings()).provider is first
    own = registry.resolve("openai/a", providers(openai={"max_retries": 1}))
    assert own.provider is not first
    assert own.provider.retry.max_retries == 1


# ---------------------------------------------------------------- defaults


@pytest.mark.parametrize(
    ("environment", "settings", "wanted"),
    [
        ({}, Settings(), None),
        (KEYS, Settings(), None),
        (KEYS, effective({"model": {"name": "x/y"}}), "x/y"),
        ({"OPENAI_API_KEY": "k"}, Settings(), "openai/"),
        ({"ANTHROPIC_API_KEY": "k"}, Settings(), "anthropic/"),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:1/v1"}, Settings(), None),
        ({"OPENAI_API_KEY": "k"}, providers(openai=OTHER), None),
    ],
)
def test_the_default_model(environment: dict[str, str], settings: Settings, wanted: str | None) -> None:
    found = default_reference(settings, environment)
    assert found == wanted if wanted is None or not wanted.endswith("/") else str(found).startswith(wanted)


def test_the_default_can_be_resolved() -> None:
    binding = Registry({"ANTHROPIC_API_KEY": "k-12345"}).resolve(None, Settings())
    assert binding.provider.name == "anthropic"
    assert binding.info.window_source == "table"
    preload()


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [
        ("http://h/v1", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "/models", "http://h/v1/models"),
        ("http://h/d?api-version=7", "/chat/completions", "http://h/d/chat/completions?api-version=7"),
        ("http://h", "/v1/messages", "http://h/v1/messages"),
        ("http://h/v1", "/v1/messages", "http://h/v1/messages"),
        ("http://h/v1/messages", "/v1/messages", "http://h/v1/messages"),
        ("http://h/anthropic", "/v1/messages", "http://h/anthropic/v1/messages"),
        ("http://h/?a=b", "/v1/models?limit=1000", "http://h/v1/models?a=b&limit=1000"),
    ],
)
def test_joining(base: str, path: str, wanted: str) -> None:
    assert join_url(base, path) == wanted


@pytest.mark.anyio
async def test_whose_key_and_address_are_used() -> None:
    with FakeLLM() as configured, FakeLLM() as usual:
        environment = {**usual.environment(), "MINE": "key-of-mine", "LOCAL_API_KEY": "key-of-local"}
        async with registry_for(environment) as registry:
            await ask(registry.resolve("openai/m", Settings()), [user("hi")])
            assert usual.requests[-1].headers["authorization"] == f"Bearer {environment['OPENAI_API_KEY']}"
            await ask(registry.resolve("anthropic/m", Settings()), [user("hi")])
            head = usual.requests[-1].headers
            assert (head["x-api-key"], head["anthropic-version"]) == (environment["ANTHROPIC_API_KEY"], "2023-06-01")
            row = {"base_url": configured.openai_url, "api_key_env": "MINE", "headers": {"X-Team": "a"}}
            await ask(registry.resolve("openai/m", providers(openai=row)), [user("hi")])
            assert configured.requests[-1].headers["authorization"] == "Bearer key-of-mine"
            assert configured.requests[-1].headers["x-team"] == "a"
            local = providers(local={"base_url": configured.openai_url, "quirks": {"auth": "x-api-key"}})
            await ask(registry.resolve("local/m", local), [user("hi")])
            assert configured.requests[-1].headers["x-api-key"] == "key-of-local"
            assert "authorization" not in configured.requests[-1].headers


# ---------------------------------------------------------------- lists


async def eventually(holds: Callable[[], Awaitable[bool] | bool]) -> None:
    with anyio.fail_after(5):
        while not holds():
            await anyio.sleep(0.005)


LISTED = ({"id": "big", "max_model_len": 70_000, "max_output_tokens": 900}, {"id": "plain"})


@pytest.mark.anyio
async def test_a_window_is_asked_for_once_in_the_background() -> None:
    with FakeLLM(models=LISTED) as llm:
        async with registry_for(llm.environment()) as registry, anyio.create_task_group() as tasks:
            assert registry.resolve("openai/big", Settings()).info.window_source == "fallback"
            assert llm.model_queries == 0
            registry.start(tasks)
            assert registry.resolve("openai/big", Settings()).info.window == FALLBACK_WINDOW
            await eventually(lambda: registry.info("openai/big", Settings()).window_source == "provider")
            info = registry.resolve("openai/big", Settings()).info
            assert (info.window, info.max_output) == (70_000, 900)
            assert registry.info("openai/plain", Settings()).window_source == "fallback"
            assert llm.model_queries == 1


@pytest.mark.anyio
async def test_nothing_is_asked_where_configuration_or_table_know() -> None:
    with FakeLLM(models=LISTED) as llm:
        async with registry_for(llm.environment()) as registry, anyio.create_task_group() as tasks:
            registry.start(tasks)
            registry.resolve("openai/gpt-4o", Settings())
            registry.resolve("openai/big", effective({"model": {"window": 9_000}}))
            registry.resolve("openai/big", effective({"models": {"openai/big": {"window": 9_000}}}))
            registry.resolve("scripted/echo", Settings())
            await anyio.sleep(0.05)
            assert llm.model_queries == 0


@pytest.mark.anyio
async def test_a_list_that_cannot_be_had_harms_nothing() -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k-12345"}
    async with registry_for(environment) as registry, anyio.create_task_group() as tasks:
        registry.start(tasks)
        assert registry.resolve("openai/m", Settings()).info.window_source == "fallback"
        assert {m.name for m in await registry.models(Settings())} >= {"scripted/echo", "openai/gpt-4o"}
        assert registry.resolve("openai/m", Settings()).info.window_source == "fallback"


@pytest.mark.anyio
async def test_the_list_of_models() -> None:
    with FakeLLM(models=LISTED) as llm:
        async with registry_for({"OPENAI_BASE_URL": llm.openai_url, "OPENAI_API_KEY": "k-12345"}) as registry:
            table = {"openai/mine": {"window": 5_000}, "gone/x": {}}
            settings = effective({"models": table, "model": {"name": "openai/now"}})
            rows = {m.name: (m.provider, m.window, m.max_output, m.source) for m in await registry.models(settings)}
            assert rows == {
                "openai/big": ("openai", 70_000, 900, "provider"),
                "openai/plain": ("openai", FALLBACK_WINDOW, None, "fallback"),
                "openai/mine": ("openai", 5_000, None, "table"),
                "openai/now": ("openai", FALLBACK_WINDOW, None, "fallback"),
                "scripted/echo": ("scripted", FALLBACK_WINDOW, None, "fallback"),
            }
            await registry.models(settings)
            assert llm.model_queries == 1
        async with registry_for({}) as registry:
            assert [m.name for m in await registry.models(Settings())] == ["scripted/echo"]


@pytest.mark.anyio
async def test_the_output_limit_of_the_dialect_that_needs_one() -> None:
    with FakeLLM() as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve("anthropic/unknown", Settings())
            assert binding.info.max_output == 8_192
            encoder = binding.provider.encoder(binding.model, lambda digest: None)
            encoder.sync(PREFIX, [Held(user("q"))], 0)
            assert b'"max_tokens":8192,' in encoder.request(max_output_tokens=None).body
            known = registry.resolve("anthropic/claude-3-haiku-20240307", Settings())
            encoder = known.provider.encoder(known.model, lambda digest: None)
            assert b'"max_tokens":4096,' in encoder.request(max_output_tokens=None).body


@pytest.mark.anyio
async def test_closing_is_the_end_of_connections_not_of_the_registry(tmp_path: Path) -> None:
    with FakeLLM() as llm:
        registry = Registry(llm.environment())
        for _ in range(2):
            assert summary_of(await ask(registry.resolve("openai/m", Settings()), [user("hi")]))["text"] == "ok"
            await registry.aclose()


@pytest.mark.parametrize("reference", ["gpt-5.2", "other/m"])
def test_who_has_keys_is_not_told_to_set_them(reference: str) -> None:
    assert "API_KEY" not in str(refused(Registry(KEYS), reference, Settings()).hint)
