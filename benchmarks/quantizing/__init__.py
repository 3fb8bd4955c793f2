"""The parts of benchmarks.quantize: how the peers run, what is measured, and the page of results."""
