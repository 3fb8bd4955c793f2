"""Simplification: named passes (passes.yaml) that reduce nodes and keep the answers, run until nothing changes.

graph.py holds what passes read and edit; each family of passes has a module, which registers them (registry.py).
"""

from onnxport.optimizers.simplification.manager import simplify

__all__ = ["simplify"]
