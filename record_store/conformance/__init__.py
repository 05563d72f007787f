"""What any backend must keep, as checks that can be run against it.

A backend brings a `Harness`; every check gets a fresh one and raises `NonConformance` naming what is not kept:

    for check in CHECKS:
        await check(MyHarness())

The checks use nothing but the port and the harness, so they hold for an engine at the far end of a network too: a
refusal may come from `append` or only from `sync`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from record_store.conformance import logs, sessions
from record_store.conformance.kit import Harness, NonConformance, config, info, message, metadata

__all__ = ["CHECKS", "Harness", "NonConformance", "config", "info", "message", "metadata"]

CHECKS: tuple[Callable[[Harness], Awaitable[None]], ...] = (
    logs.check_order,
    logs.check_live_is_replayed,
    logs.check_rejected_record,
    logs.check_synced_survives,
    logs.check_concurrent_syncs,
    logs.check_cancelled_sync,
    logs.check_create_is_whole,
    logs.check_single_writer,
    logs.check_crash_frees,
    logs.check_fencing,
    logs.check_reads_while_writing,
    logs.check_damage,
    logs.check_agents,
    sessions.check_list,
    sessions.check_info,
    sessions.check_delete,
    sessions.check_fork,
    sessions.check_blobs,
)
