"""An agent's link to its model: the binding, the encoder that follows the context, the window."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.info import PrefixShape, WindowSource
from record_store.fold import Entry, State
from sidecar.agent.view import WellFormed
from sidecar.errors import Fault
from sidecar.providers.port import FALLBACK_WINDOW, Binding, BlobReader, EncodedRequest, Encoder, Prefix, PrefixHashes
from sidecar.providers.registry import Registry
from sidecar.providers.shelf import BlobShelf
from sidecar.settings import Settings
from sidecar.tokens.port import Estimator

OUTPUT_MARGIN = 256
"""Tokens that stay free between input, output and the window: the estimate of the newest messages may be short."""


class ModelLink:
    """Resolves the model of an agent when it is needed, and keeps its bytes."""

    def __init__(self, registry: Registry, estimator: Estimator, blobs: BlobReader) -> None:
        self._registry = registry
        self._estimator = estimator
        self.images = blobs if isinstance(blobs, BlobShelf) else BlobShelf(blobs)
        self._binding: Binding | None = None
        self._key: tuple[str, Settings] | None = None
        self._encoder: Encoder | None = None
        self._view = WellFormed()
        self._hashes = PrefixHashes("", "", "")
        self._tools_tokens = 0

    def bind(self, reference: str | None, settings: Settings) -> Binding:
        """The binding for this reference, else the configured default. Raises `no_provider`."""
        key = (reference or self._registry.default_reference(settings) or "", settings)
        if self._key != key or self._binding is None:
            binding = self._registry.resolve(key[0] or None, settings)
            if self._binding is None or (binding.provider, binding.model) != (
                self._binding.provider,
                self._binding.model,
            ):
                self._encoder = None
            self._binding, self._key = binding, key
        return self._binding

    @property
    def binding(self) -> Binding:
        """The binding of the last `bind`. Raises `no_provider` when there is none."""
        if self._binding is None:
            raise Fault("no_provider", "This session has no model yet.")
        return self._binding

    @property
    def reference(self) -> str | None:
        """`provider/model` of the last `bind`."""
        return self._binding.reference if self._binding is not None else None

    def default(self, settings: Settings) -> str | None:
        """`provider/model` that is asked where a session names none."""
        return self._registry.default_reference(settings)

    def window(self, reference: str | None, state: State, settings: Settings) -> tuple[int, WindowSource]:
        """Tokens of the context window and where that is known from; a learned bound only ever lowers it."""
        if reference:
            info = self._registry.info(reference, settings)
            window, source = info.window, info.window_source
        elif settings.model.window is not None:
            window, source = settings.model.window, "config"
        else:
            window, source = FALLBACK_WINDOW, "fallback"
        learned = state.learned_windows.get(reference or "")
        return (learned, "learned") if learned is not None and learned < window else (window, source)

    def output_limit(self, window: int, used: int, settings: Settings) -> int | None:
        """Tokens that the answer may have; None leaves it to the provider."""
        info = self._registry.info(self.binding.reference, settings)
        most = settings.model.max_output or info.max_output
        if most is None:
            return None
        return max(1, min(most, window - used - OUTPUT_MARGIN))

    def sync(self, prefix: Prefix, state: State) -> None:
        """Takes in the context as it is now."""
        binding = self.binding
        if self._encoder is None:
            self._encoder = binding.provider.encoder(binding.model, self.images)
        entries = self._view.follow(state)
        self._hashes = self._encoder.sync(prefix, entries, state.rewrites)
        self._tools_tokens = self._estimator.tools_tokens(prefix.tools)
        self.images.clear()

    def unseen(self, state: State) -> Sequence[Entry]:
        """The entries that the next `sync` has to serialise, as far as that can be told cheaply."""
        return self._view.unseen(state) if self._encoder is not None else state.entries

    def shape(self, rewrites: int) -> PrefixShape:
        """The shape of what `sync` took in last."""
        h = self._hashes
        return PrefixShape(h.system, h.tools, h.prefix, rewrites, self._tools_tokens)

    @property
    def encoder(self) -> Encoder:
        assert self._encoder is not None
        return self._encoder

    def request(self, limit: int | None) -> EncodedRequest:
        return self.encoder.request(max_output_tokens=limit)
