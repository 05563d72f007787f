"""The sidecar daemon: sessions, the agent loop, compaction, tools and the edges that hosts connect to."""
