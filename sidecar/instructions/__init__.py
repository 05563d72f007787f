"""Standing instructions: what must hold, in every request of a session. Read once, frozen, never summarised."""
