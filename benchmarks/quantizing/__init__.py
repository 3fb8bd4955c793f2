"""The rooms of benchmarks.quantize: what the peers run, what is measured, and what is said of it."""
