"""Rewritings of operators into simpler ONNX operators, a module or package per family; importing this fills the
registry."""

from onnxport.optimizers.rewrites import (  # noqa: F401
    fourier,
    integer,
    microsoft,
    ml,
    ngrams,
    numerics,
    positions,
    qoperators,
    vision,
)
