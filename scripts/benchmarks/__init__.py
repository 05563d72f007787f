"""Benchmarks, one module for each part; `run()` of each gives rows."""
