"""The files with passes; importing this one fills the registry."""

from onnxport.optimizers.simplification import (
    activations,
    casts,
    constants,
    noops,
    products,
    recurrence,
    reshapes,
    slices,
    subexpressions,
    tools,
    transposes,
)

__all__ = [
    "activations",
    "casts",
    "constants",
    "noops",
    "products",
    "recurrence",
    "reshapes",
    "slices",
    "subexpressions",
    "tools",
    "transposes",
]
