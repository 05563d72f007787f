"""Puts an agent together: log, model, tools, measuring, hooks. The only place that knows all of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from record_store.backend import Journal, OpenSession
from record_store.fold import State
from sidecar.agent.measure import MeasureHook
from sidecar.agent.model import ModelLink
from sidecar.agent.ports import HookChain
from sidecar.agent.quarantine import QuarantineHook
from sidecar.agent.retry import RetryHook
from sidecar.agent.runtime import Agent, Measuring
from sidecar.compaction.service import CompactionService
from sidecar.providers.port import Prefix
from sidecar.providers.shelf import BlobShelf
from sidecar.sessions.compacting import CompactionHook, CompactionPort
from sidecar.sessions.conversation import Conversation
from sidecar.sessions.events import AgentEvents, EventHub
from sidecar.sessions.hosts import Hosts
from sidecar.sessions.secrets import Secrets
from sidecar.sessions.servers import Servers
from sidecar.sessions.services import Services
from sidecar.sessions.summary_requests import SummaryRequests
from sidecar.sessions.tasks import Tasks
from sidecar.sessions.toolbox import Toolbox
from sidecar.sessions.toolports import ToolDesk
from sidecar.tokens.estimator import BpeEstimator


@dataclass(frozen=True, slots=True)
class Desk:
    """What all agents of one session share."""

    services: Services
    opened: OpenSession
    hub: EventHub
    hosts: Hosts
    tasks: Tasks
    measuring: Measuring
    servers: Servers
    images: BlobShelf
    secrets: Secrets

    @staticmethod
    def of(services: Services, opened: OpenSession, hub: EventHub, hosts: Hosts, secrets: Secrets) -> Desk:
        images = BlobShelf(opened.blobs.get)
        estimator = BpeEstimator(services.counter, images.head)
        return Desk(
            services,
            opened,
            hub,
            hosts,
            Tasks(services.group),
            Measuring(estimator, services.calibration),
            Servers(services.group, services.environment, secrets),
            images,
            secrets,
        )


@dataclass(slots=True)
class Seat:
    """One agent at its desk."""

    journal: Journal
    agent: Agent
    toolbox: Toolbox
    compaction: CompactionService
    conversation: Conversation

    def refresh(self, desk: Desk) -> None:
        """After the configuration or the tools changed: settings, prefix and tools are those of the state."""
        state = self.agent.state
        self.agent.settings = desk.services.layers.settings(state.config)
        self.toolbox.refresh(self.agent.settings)
        self.agent.prefix = Prefix(prefix_text(state), self.toolbox.specs())

    def model_name(self) -> str | None:
        """`provider/model` that would be asked now; None if nothing is configured."""
        return self.agent.reference or None


def prefix_text(state: State) -> str:
    """The system prompt as it is sent: the host's, then what stands."""
    return "\n\n".join(t for t in (state.system_prompt, state.standing) if t)


def seat(desk: Desk, journal: Journal, agent_id: str, *, resumed: bool, only: Collection[str] | None = None) -> Seat:
    """An agent on an open log. `resumed`: its past was read, the provider's cache may be cold. `only` limits its
    tools."""
    services = desk.services
    settings = services.layers.settings(journal.state.config)
    tools = ToolDesk(
        session_id=desk.opened.session_id,
        agent_id=agent_id,
        journal=journal,
        blobs=desk.opened.blobs,
        hosts=desk.hosts,
        environment=services.environment,
        clock=services.clock,
        append=lambda record: agent.append(record),
        emit=lambda event: agent.emit(event, agent.state.open_turn),
        enable_record_access=lambda: port.enable_record_access(),
        approval_wait_s=lambda: agent.settings.approval.wait_s,
        stand_in=desk.servers.stand_in,
    )
    toolbox = Toolbox(tools, settings, only=only)
    agent = Agent(
        log=journal,
        events=AgentEvents(desk.hub, agent_id),
        model=ModelLink(services.registry, desk.measuring.estimator, desk.images),
        tools=toolbox,
        settings=settings,
        measuring=desk.measuring,
        clock=services.clock,
    )
    requests = SummaryRequests(agent, services.registry, desk.opened.blobs.get)
    port = CompactionPort(agent, journal, toolbox, services.registry, desk.tasks, requests, lambda: made.refresh(desk))
    compaction = CompactionService(port, resumed=resumed)
    agent.breakers_after_step = compaction.breakers_after_step
    agent.hooks = HookChain(
        (
            MeasureHook(agent),
            CompactionHook(compaction),
            QuarantineHook(agent, compaction.on_context_changed),
            RetryHook(agent),
        )
    )
    made = Seat(journal, agent, toolbox, compaction, Conversation(journal))
    made.refresh(desk)
    return made
