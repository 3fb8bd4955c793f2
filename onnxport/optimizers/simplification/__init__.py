"""Simplification: named passes (passes.yaml) that reduce nodes and keep the answers, run until nothing changes."""

from onnxport.optimizers.simplification.manager import simplify

__all__ = ["simplify"]
