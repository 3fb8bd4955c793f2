"""The files with passes; importing this one fills the registry."""

from onnxport.optimizers.simplification import (
    activations,
    casts,
    constants,
    external,
    gather,
    identities,
    products,
    recurrence,
    reshapes,
    scaling,
    slices,
    subexpressions,
    transposes,
)

__all__ = [
    "activations",
    "casts",
    "constants",
    "external",
    "gather",
    "identities",
    "products",
    "recurrence",
    "reshapes",
    "scaling",
    "slices",
    "subexpressions",
    "transposes",
]
