"""The tools that the daemon brings, one per file."""
