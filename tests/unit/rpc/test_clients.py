"""Peers as clients: one object per peer, for as long as it is connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from sidecar.rpc.clients import Clients


@dataclass
class APeer:
    id: str = "socket-1"
    closed: bool = False


def test_a_peer_is_one_client_until_it_is_gone_whatever_its_calls_still_do() -> None:
    clients, peer = Clients(), cast(Any, APeer())
    client = clients.of(peer)
    assert clients.of(peer) is client
    peer.closed = True
    clients.gone(peer)
    assert clients.of(peer).closed
    assert not clients._clients
