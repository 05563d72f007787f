"""An Agent Client Protocol agent on stdio: editors on one side, the daemon's own client on the other.

    editor <-> transport <-> agent -> session -> SidecarClient <-> daemon (in this process, or at a socket)

The modules whose first line says "pure" translate; `session` and `agent` act. Loaded only by `sidecar acp`.
"""
