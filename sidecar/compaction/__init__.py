"""Keeps a conversation inside its window: pure modules that decide, one service that acts. See README.md."""
