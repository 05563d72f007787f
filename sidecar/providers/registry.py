"""Names to providers and models: `provider/model` plus settings gives a `Binding`.

Providers are made when first needed and shared: the same name with the same settings is the same object, whatever
session asks. Resolving never waits and never asks the network; what the provider's own list of models would tell is
asked in the background, once, and used from then on (`start`).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from sidecar import logs
from sidecar.errors import Fault
from sidecar.providers import catalog
from sidecar.providers.catalog import ListedModel, resolve_info
from sidecar.providers.model_lists import ModelLists
from sidecar.providers.port import Binding, ModelInfo, Provider, RetryPolicy, WindowOrigin
from sidecar.providers.quirks import DEFAULT_MAX_TOKENS, chat_quirks, is_loopback, messages_quirks
from sidecar.providers.rows import DialectName, credentials_in, dialect_of, secrets_in
from sidecar.settings import ProviderSettings, Settings

if TYPE_CHECKING:
    from sidecar.providers.http import HttpPool

MAX_PROVIDERS = 256
"""Providers kept; the one that was not asked for longest is forgotten first. It holds no connection."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    dialect: DialectName
    base_url: str
    key_env: str
    url_env: str


BUILT_IN: Mapping[str, BuiltIn] = {
    "openai": BuiltIn("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": BuiltIn("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
}
SCRIPTED = "scripted"

HINT = (
    "set OPENAI_API_KEY or ANTHROPIC_API_KEY, and SIDECAR_MODEL=provider/model; "
    "or configure [providers.<name>] with a base_url for any other server"
)


class ModelListing(Struct, frozen=True, kw_only=True):
    """A row of `model.list`. `name` is `provider/model`; `source` says where the window is from."""

    name: str
    provider: str
    window: int
    max_output: int | None
    source: WindowOrigin


def default_reference(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The model that is asked when a session names none: the configured one; else, if exactly one of the two
    built-in providers has a key and its own address, that provider's shipped default; else none."""
    if settings.model.name:
        return settings.model.name
    ready = [n for n, b in BUILT_IN.items() if _key(environment, settings.providers.get(n), b)]
    if len(ready) != 1:
        return None
    row, built_in = settings.providers.get(ready[0]), BUILT_IN[ready[0]]
    elsewhere = (row is not None and row.base_url) or environment.get(built_in.url_env)
    return None if elsewhere else f"{ready[0]}/{catalog.defaults()[ready[0]]}"


SWITCH_S = 0.0005
"""How long the importing thread may keep the interpreter from the loop; the interpreter's own value is ten times it."""


def preload() -> None:
    """Imports what the first request needs (httpx and the dialects): 0.1 s or more, so not for the event loop."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        import sidecar.providers.provider  # noqa: F401

        catalog.shipped()
    finally:
        sys.setswitchinterval(before)


class Registry:
    """All providers of the process. `environment` is where keys and addresses are looked up."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._providers: OrderedDict[tuple[str, bytes], Provider] = OrderedDict()
        self._lists = ModelLists()
        self._pool: HttpPool | None = None
        self._loading: anyio.Event | None = None

    def start(self, tasks: TaskGroup) -> None:
        """Begins to load what requests need, and gives the background questions a place to run in; without it no
        provider is asked for its list, and what is needed is imported where it is needed."""
        self._lists.start(tasks)
        self._loading = anyio.Event()
        tasks.start_soon(self._load, self._loading)

    async def ready(self) -> None:
        """Returns when a provider can be made without an import: who is about to resolve a model waits here, not in
        the middle of the event loop. Callers go on in the order in which they came."""
        if self._loading is not None and not self._loading.is_set():
            await self._loading.wait()

    @staticmethod
    async def _load(loaded: anyio.Event) -> None:
        try:
            await anyio.to_thread.run_sync(preload, abandon_on_cancel=True)
        finally:
            loaded.set()

    def default_reference(self, settings: Settings) -> str | None:
        return default_reference(settings, self._environment)

    def resolve(self, reference: str | None, settings: Settings) -> Binding:
        """The model by its reference (None: the default one), with what is known of it now.

        Raises `no_provider` when it cannot be served, naming what to set, and `config_invalid` for wrong quirks or
        headers. Cheap enough to call before every turn, which is how a window told later comes into use.
        """
        reference = reference or self.default_reference(settings)
        if reference is None:
            raise Fault("no_provider", "No model is configured", hint=HINT)
        name, _, model = reference.partition("/")
        if not name or not model:
            raise Fault(
                "no_provider",
                f"{reference!r} names no model: the form is provider/model",
                hint="name the provider too, e.g. openai/gpt-5.2",
                model=reference,
            )
        provider = self._provider(name, settings)
        if name_is_scripted(name, settings):
            _check_script(model)
        return Binding(reference, provider, model, self.info(reference, settings))

    def info(self, reference: str, settings: Settings) -> ModelInfo:
        """What is known of a model now; a dialect that has to name an output limit always has one.

        Where configuration and table are silent on the window, the provider is asked in the background; until it
        answers the fallback holds.
        """
        name, _, model = reference.partition("/")
        info = resolve_info(reference, settings, None)
        if info.window_source == "fallback" and not name_is_scripted(name, settings):
            key = _list_key(name, settings)
            self._lists.ask(key, partial(self._fetch, name, settings))
            info = resolve_info(reference, settings, self._lists.known(key).get(model))
        if info.max_output is None and dialect_of(name, settings.providers.get(name)) == "anthropic":
            info = replace(info, max_output=DEFAULT_MAX_TOKENS)
        return info

    async def models(self, settings: Settings) -> tuple[ModelListing, ...]:
        """Every model that could be asked with these settings: of each usable provider its own list where it can be
        had in time, else the table's rows; configured models; the echo. Sorted by name."""
        await self.ready()
        names = {*BUILT_IN, SCRIPTED, *settings.providers}
        usable = [n for n in names if self._is_usable(n, settings)]
        async with anyio.create_task_group() as tasks:
            for name in usable:
                if not name_is_scripted(name, settings):
                    tasks.start_soon(
                        self._lists.refresh, _list_key(name, settings), partial(self._fetch, name, settings)
                    )
        references = {r for r in settings.models if r.partition("/")[0] in usable}
        if settings.model.name and settings.model.name.partition("/")[0] in usable:
            references.add(settings.model.name)
        for name in usable:
            references |= self._references(name, settings)
        return tuple(self._listing(r, settings) for r in sorted(references))

    async def aclose(self) -> None:
        """Closes all connections."""
        pool, self._pool = self._pool, None
        self._providers.clear()
        if pool is not None:
            await pool.aclose()

    # ---- providers

    def _provider(self, name: str, settings: Settings) -> Provider:
        row = settings.providers.get(name)
        built_in = BUILT_IN.get(name)
        if row is None and built_in is None and name != SCRIPTED:
            raise Fault(
                "no_provider",
                f"There is no provider {name!r}",
                hint=f"openai and anthropic are built in; for another server configure [providers.{name}] "
                "with dialect and base_url",
                provider=name,
            )
        row = row or ProviderSettings()
        key = (name, msgspec.json.encode(row, order="sorted"))
        found = self._providers.get(key)
        if found is None:
            found = self._providers[key] = self._make(name, row, built_in)
            if len(self._providers) > MAX_PROVIDERS:
                self._providers.popitem(last=False)
        self._providers.move_to_end(key)
        return found

    def _make(self, name: str, row: ProviderSettings, built_in: BuiltIn | None) -> Provider:
        dialect = dialect_of(name, row)
        if dialect == "scripted":
            from sidecar.providers.scripted import ScriptedProvider

            return ScriptedProvider(name, RetryPolicy(row.max_retries, row.retry_base_s))
        from sidecar.providers.http import HttpPool
        from sidecar.providers.provider import HttpProvider

        base_url = self._base_url(name, row, built_in)
        api_key = self._checked_key(name, row, built_in, base_url)
        for secret in (*secrets_in(base_url), *credentials_in(row.headers)):
            logs.hide(secret)
        quirks = (messages_quirks if dialect == "anthropic" else chat_quirks)(name, base_url, row.quirks)
        self._pool = self._pool or HttpPool()
        return HttpProvider(name, dialect, base_url, api_key, row, quirks, self._pool, _max_output)

    def _base_url(self, name: str, row: ProviderSettings, built_in: BuiltIn | None) -> str:
        base_url = row.base_url
        if not base_url and built_in is not None:
            base_url = self._environment.get(built_in.url_env, "").strip() or built_in.base_url
        if not base_url:
            raise Fault(
                "no_provider",
                f"The provider {name!r} has no address",
                hint=f"set base_url in [providers.{name}]",
                provider=name,
            )
        if not _is_address(base_url):
            raise Fault(
                "no_provider",
                f"The base_url of provider {name!r} is not an http or https address",
                hint=f"correct base_url in [providers.{name}]"
                + (f" or {built_in.url_env}" if built_in is not None else ""),
                provider=name,
            )
        return base_url

    def _checked_key(self, name: str, row: ProviderSettings, built_in: BuiltIn | None, base_url: str) -> str | None:
        """The key, or None where none is needed: on this machine, with credentials among the headers, or for a
        configured server that names no key."""
        key = _key(self._environment, row, built_in, name)
        if key is None:
            carries = any(h.lower() in ("authorization", "x-api-key", "api-key") for h in row.headers)
            wanted = row.api_key_env or (built_in.key_env if built_in is not None else None)
            if wanted is None or carries or is_loopback(urlsplit(base_url).hostname or ""):
                return None
            raise Fault(
                "no_provider",
                f"The provider {name!r} has no key: {wanted} is not set",
                hint=f"set {wanted}",
                provider=name,
            )
        if not (key.isascii() and key.isprintable()):
            raise Fault(
                "no_provider",
                f"The key of provider {name!r} has characters that cannot be sent",
                hint="check the variable that holds the key for quotes and line breaks",
                provider=name,
            )
        logs.hide(key)
        return key

    def _is_usable(self, name: str, settings: Settings) -> bool:
        try:
            self._provider(name, settings)
        except Fault:
            return False
        return True

    # ---- lists

    def _references(self, name: str, settings: Settings) -> set[str]:
        if name_is_scripted(name, settings):
            return {f"{name}/echo"}
        rows = self._lists.known(_list_key(name, settings))
        if rows:
            return {f"{name}/{model}" for model in rows}
        return {r for r in catalog.shipped() if r.startswith(f"{name}/")}

    def _listing(self, reference: str, settings: Settings) -> ModelListing:
        info = self.info(reference, settings)
        return ModelListing(
            name=reference,
            provider=reference.partition("/")[0],
            window=info.window,
            max_output=info.max_output,
            source=info.window_source,
        )

    async def _fetch(self, name: str, settings: Settings) -> tuple[ListedModel, ...]:
        from sidecar.providers.provider import HttpProvider

        provider = self._provider(name, settings)
        return await provider.list_models() if isinstance(provider, HttpProvider) else ()


def _list_key(name: str, settings: Settings) -> str:
    row = settings.providers.get(name) or ProviderSettings()
    return f"{name} {row.base_url} {row.dialect} {row.api_key_env}"


def _is_address(url: str) -> bool:
    """Whether it is an http or https address that a request can be sent to."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _key(
    environment: Mapping[str, str], row: ProviderSettings | None, built_in: BuiltIn | None, name: str = ""
) -> str | None:
    """The key of a provider: from the variable that it names, else its usual one (`<NAME>_API_KEY`)."""
    named = row.api_key_env if row is not None else None
    usual = built_in.key_env if built_in is not None else f"{name.upper().replace('-', '_')}_API_KEY"
    return environment.get(named or usual, "").strip() or None


def _max_output(reference: str) -> int | None:
    row = catalog.row_of(reference)
    return row.max_output if row is not None else None


def name_is_scripted(name: str, settings: Settings) -> bool:
    return dialect_of(name, settings.providers.get(name)) == "scripted"


def _check_script(model: str) -> None:
    from sidecar.providers.scripted import ECHO, script_path

    if model != ECHO and not script_path(model).is_file():
        raise Fault(
            "no_provider",
            f"There is no script {model!r}",
            hint="scripted/<path> plays a JSON Lines file; scripted/echo echoes",
            model=f"scripted/{model}",
        )
