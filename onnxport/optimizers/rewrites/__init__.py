"""Operators rewritten into simpler ones of ONNX, a module or package a family; importing this fills the registry."""

from onnxport.optimizers.rewrites import (
    batch_statistics,
    determinant,
    fourier,
    integer,
    kv_cache,
    microsoft,
    ml,
    ngrams,
    qoperators,
    sorting,
    vision,
)

__all__ = [
    "batch_statistics",
    "determinant",
    "fourier",
    "integer",
    "kv_cache",
    "microsoft",
    "ml",
    "ngrams",
    "qoperators",
    "sorting",
    "vision",
]
