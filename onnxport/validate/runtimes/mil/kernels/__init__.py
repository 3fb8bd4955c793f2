"""Kernels by family; importing this package fills the registry."""

from onnxport.validate.runtimes.mil.kernels import (
    arithmetic,
    casts,
    control,
    creation,
    elementwise,
    indexing,
    layout,
    ordering,
    products,
    reductions,
    slicing,
)

__all__ = [
    "arithmetic",
    "casts",
    "control",
    "creation",
    "elementwise",
    "indexing",
    "layout",
    "ordering",
    "products",
    "reductions",
    "slicing",
]
