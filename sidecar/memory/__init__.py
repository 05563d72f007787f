"""Background memory: facts that may help later and may be stale. Recalled into the tail of a turn; never a command."""
