"""What shape inference knows of a value: its sizes, its elements where it is a small integer tensor, its bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array

# A size: int64 per candidate (of shape [1] where all candidates agree), the name of a free symbol, or None for unknown.
Size = Array | str | None
# An element of a tensor that holds sizes: as a Size, but floats where the graph computes sizes in floats.
Element = Array | str | None

# Tensors with more elements are no shapes.
MOST_ELEMENTS = 64


@dataclass(frozen=True)
class Fact:
    """A value.

    Attributes:
        dims: None where even the rank is unknown.
        elements: of a small integer tensor or a scalar, in row-major order; None where unknown.
        span: the least and the largest element of an integer tensor, per candidate.
    """

    dims: tuple[Size, ...] | None = None
    elements: tuple[Element, ...] | None = None
    span: tuple[Array, Array] | None = None

    @property
    def bounds(self) -> tuple[Array, Array] | None:
        """The least and the largest element, from the elements where these are known."""
        if self.span is not None or not self.elements:
            return self.span
        if not all(isinstance(each, np.ndarray) for each in self.elements):
            return None
        known = np.broadcast_arrays(*(each for each in self.elements if isinstance(each, np.ndarray)))
        return np.min(known, axis=0), np.max(known, axis=0)

    @property
    def is_scalar(self) -> bool:
        return self.dims == ()


UNKNOWN = Fact()


def size(number: int) -> Array:
    """Return a size that all candidates share."""
    return np.array([number], np.int64)


def fixed(element: Element) -> int | None:
    """Return the number that all candidates share; None if there is none."""
    if not isinstance(element, np.ndarray) or not element.size or (element != element[0]).any():
        return None
    return int(element[0])


def fixed_elements(fact: Fact) -> list[int] | None:
    """Return the elements as integers where all are known and all candidates share them."""
    if fact.elements is None:
        return None
    numbers = [fixed(element) for element in fact.elements]
    return None if None in numbers else [number for number in numbers if number is not None]


def of_constant(array: Array) -> Fact:
    """Return the fact of a constant."""
    dims = tuple(size(extent) for extent in array.shape)
    if array.dtype.kind not in "iufb" or not array.size:
        return Fact(dims, () if not array.size else None)
    elements = None
    if array.size <= MOST_ELEMENTS:
        kind = np.float64 if array.dtype.kind == "f" else np.int64
        elements = tuple(np.array([each], kind) for each in array.ravel().tolist())
    if array.dtype.kind == "f" or array.size > 2**20:
        return Fact(dims, elements)
    return Fact(dims, elements, (size(int(array.min())), size(int(array.max()))))
