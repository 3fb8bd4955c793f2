"""Benchmarks beside the tools that do the same; each is one command that prints what it measured."""
