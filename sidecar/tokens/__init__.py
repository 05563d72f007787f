"""Counting tokens: offline, bounded on any input, corrected by what providers report."""
