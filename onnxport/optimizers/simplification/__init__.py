"""Fewer nodes that compute the same: a list of named passes (passes.yaml), run until nothing changes.

registry.py says what a pass is, graph.py what it works on; each family of passes has a file.
pass_lists.py reads the lists,
manager.py runs them: it has every pass that changed something checked, undoes one that changed the answers, the
signature or the size, and counts.
"""

from onnxport.optimizers.simplification.manager import Simplified, simplified

__all__ = ["Simplified", "simplified"]
