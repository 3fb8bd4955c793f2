"""Metadata keys by which preparation tells the lowerings about nodes, and the domains that it knows.

A compiler's process imports this module without the passes.
"""

from __future__ import annotations

# Metadata key for the reason why a node cannot be rewritten; the converter that refuses the node reads it.
REASON = "onnxport.refused"

# Metadata key for nodes that wait for a type or rank, which shape inference did not find.
WAITS = "onnxport.waits"

# Metadata key for nodes that compute integers in float32: fewer bits would not be exact.
EXACT = "onnxport.exact"

# Domains whose operators shape inference knows.
KNOWN_DOMAINS = frozenset(
    ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
)
