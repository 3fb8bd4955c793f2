"""Rewritings of operators into simpler ONNX operators, a module or package per family; importing this fills the
registry."""

from onnxport.optimizers.rewrites import (  # noqa: F401
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
