"""The files with passes; importing this one fills the registry."""

from onnxport.optimizers.simplification import (
    activations,
    casts,
    constants,
    indexing,
    noops,
    products,
    recurrence,
    reshapes,
    scaling,
    slices,
    subexpressions,
    tools,
    transposes,
)

__all__ = [
    "activations",
    "casts",
    "constants",
    "indexing",
    "noops",
    "products",
    "recurrence",
    "reshapes",
    "scaling",
    "slices",
    "subexpressions",
    "tools",
    "transposes",
]
