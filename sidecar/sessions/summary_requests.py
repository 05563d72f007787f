"""The one request that a compaction makes of a model, on behalf of its agent: sent, written down and billed."""

from __future__ import annotations

from operator import is_

from protocol.messages import Usage
from record_store.fold import State
from record_store.records import LlmRequest
from sidecar.agent.billing import usage_event, usage_of, usage_record
from sidecar.agent.runtime import Agent
from sidecar.agent.view import WellFormed
from sidecar.compaction.ports import SummaryReply, SummaryRequest
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import Binding, BlobReader, EncodedRequest, Finished, PrefixHashes, TextChunk, TokenUsage
from sidecar.providers.registry import Registry


class SummaryRequests:
    """Of one agent."""

    def __init__(self, agent: Agent, registry: Registry, blobs: BlobReader) -> None:
        self._agent = agent
        self._registry = registry
        self._blobs = blobs

    def binding(self, model: str | None) -> Binding:
        """The session's model, or another one (`provider/model`), with its provider. Raises `Fault` when it cannot be
        served."""
        if model is not None:
            return self._registry.resolve(model, self._agent.settings)
        return self._agent.model.bind(self._agent.state.model, self._agent.settings)

    async def send(self, request: SummaryRequest) -> SummaryReply:
        """One attempt, as `sidecar.compaction.ports.AgentPort.summarize` says: the bytes of the next step, or of a
        shortened list, and the instruction."""
        binding = self.binding(request.model)
        hashes, encoded = self._encoded(binding, request)
        self._agent.append(
            LlmRequest(
                time=self._agent.clock.now_ms(),
                kind="compaction",
                model=binding.reference,
                system_hash=hashes.system,
                tools_hash=hashes.tools,
                prefix_hash=hashes.prefix,
                message_count=encoded.message_count,
                attempt=request.attempt,
                suffix_count=1,
                messages_bytes=encoded.messages_bytes,
                messages_hash=encoded.messages_hash,
                compaction_id=request.compaction_id,
            )
        )
        try:
            text, finished = await _collect(binding, encoded)
        except ProviderError as error:
            self._paid(request, binding, error.usage, failed=True)
            raise
        return SummaryReply(text, finished.reason, self._paid(request, binding, finished.usage), binding.reference)

    def _encoded(self, binding: Binding, request: SummaryRequest) -> tuple[PrefixHashes, EncodedRequest]:
        """The context as it stands goes out as the bytes that the next step would send, cache marks included, without
        being serialised again; a shortened list, or another model's, is serialised for this request alone."""
        agent = self._agent
        entries = agent.state.entries
        if request.model is None and len(request.entries) == len(entries) and all(map(is_, request.entries, entries)):
            agent.model.sync(agent.prefix, agent.state)
            shape = agent.model.shape(agent.state.rewrites)
            hashes = PrefixHashes(shape.system_hash, shape.tools_hash, shape.prefix_hash)
            encoder = agent.model.encoder
        else:
            encoder = binding.provider.encoder(binding.model, self._blobs)
            hashes = encoder.sync(agent.prefix, WellFormed().follow(State(entries=list(request.entries))), 0)
        return hashes, encoder.request(max_output_tokens=request.max_output_tokens, suffix=request.instruction)

    def _paid(
        self, request: SummaryRequest, binding: Binding, told: TokenUsage | None, *, failed: bool = False
    ) -> Usage:
        """Writes down and tells what it cost, where the provider said so."""
        if told is None:
            return Usage(0, 0, 0, 1)
        agent = self._agent
        agent.append(
            usage_record(
                told,
                time=agent.clock.now_ms(),
                kind="compaction",
                model=binding.reference,
                failed=failed,
                compaction_id=request.compaction_id,
            )
        )
        agent.emit(usage_event(told, kind="compaction"), agent.state.open_turn)
        return usage_of(told)


async def _collect(binding: Binding, encoded: EncodedRequest) -> tuple[str, Finished]:
    """Streams an answer to its end. Raises `ProviderError` for one that is cut."""
    pieces: list[str] = []
    async with binding.provider.stream(binding.model, encoded) as stream:
        async for event in stream:
            match event:
                case TextChunk(text):
                    pieces.append(text)
                case Finished():
                    return "".join(pieces), event
                case _:
                    pass
    raise ProviderError("unavailable", "The provider's answer ended before it was complete.")
