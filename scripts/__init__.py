"""Commands of the project: tests, checks, the demo, benchmarks and the evaluation."""
