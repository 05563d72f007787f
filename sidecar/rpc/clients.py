"""The connected peers as clients of sessions: one object per peer, for as long as it is connected."""

from __future__ import annotations

from sidecar.rpc.port import Peer
from sidecar.rpc.projection import EventEncoder, PeerClient


class Clients:
    def __init__(self) -> None:
        self._encoder = EventEncoder()
        self._clients: dict[str, PeerClient] = {}

    def of(self, peer: Peer) -> PeerClient:
        client = self._clients.get(peer.id)
        if client is None:
            client = PeerClient(peer, self._encoder)
            if not peer.closed:  # else it is gone already, and a call that it had made goes on
                self._clients[peer.id] = client
        return client

    def gone(self, peer: Peer) -> None:
        self._clients.pop(peer.id, None)
