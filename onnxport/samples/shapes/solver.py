"""Solve for the open dimensions of a model: which follow from others, and which sizes every operator accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.model import Model
from onnxport.samples.shapes.analysis import Constraint, Sizes, infer
from onnxport.samples.shapes.fact import Fact, size
from onnxport.samples.shapes.rules import RULES

_LONG_WINDOW = 128  # samples
# Each pass assigns one more symbol, and may bind others.
_MOST_PASSES = 64


@dataclass(frozen=True)
class Solution:
    """The sizes of all open dimensions for a number of candidates.

    Attributes:
        sizes: symbol -> a size per candidate.
        constraints: those that some candidate does not meet.
    """

    sizes: dict[str, Array]
    constraints: tuple[Constraint, ...]

    @property
    def holds(self) -> Array:
        """Whether a candidate meets every constraint, of shape [candidates] or [1]."""
        result = np.ones(1, bool)
        for constraint in self.constraints:
            result = result & constraint.holds
        return result

    @property
    def contradiction(self) -> tuple[Constraint, ...]:
        """The first constraint that no candidate meets, with those before it that exclude the same candidates."""
        chain: list[Constraint] = []
        together = np.ones(1, bool)
        for constraint in self.constraints:
            before, together = together, together & constraint.holds
            if not together.any():
                return (*(each for each in chain if not (each.holds & constraint.holds).any()), constraint)
            if bool((before != together).any()):
                chain.append(constraint)
        return ()


class SizeSolver:
    """Shape inference of one model at candidate sizes.

    Args:
        model: without functions.
        shapes: of every input; an open dimension is a symbol, each occurrence of which has one size.

    Attributes:
        origins: symbol -> the node that decided it, after `bound`.
    """

    def __init__(self, model: Model, shapes: Mapping[str, Sequence[int | str]]) -> None:
        self._graph = model.graph
        self.origins: dict[str, str] = {}
        self._constants: dict[int, Fact] = {}
        self._assigned: set[str] | None = None  # symbols that follow from no others, once that is known
        self._least: dict[str, Array] = {}  # smallest sizes of assigned symbols
        self._suggested: dict[str, Array] | None = (
            None  # sizes that fit any unknown target, once they are known
        )
        self._inputs = {
            name: Fact(tuple(dim if isinstance(dim, str) else size(dim) for dim in dims))
            for name, dims in shapes.items()
        }
        self._symbols = list(
            dict.fromkeys(dim for dims in shapes.values() for dim in dims if isinstance(dim, str))
        )

    def bound(self) -> dict[str, int | str]:
        """Return the symbols that the graph alone decides: their size, or the symbol that they equal."""
        sizes = self._settle({}, [])
        self.origins = sizes.origins
        return {
            symbol: int(known[0]) if isinstance(known, np.ndarray) else known
            for symbol in self._symbols
            if (known := sizes.read(symbol)) is not None and not (isinstance(known, str) and known == symbol)
        }

    def solve(self, candidates: Mapping[str, Array]) -> Solution:
        """Assign candidates to the symbols in order; a symbol that follows from those before it keeps that size.

        Args:
            candidates: symbol -> sizes, all of shape [candidates] or [1].
        """
        sizes = self._settle(candidates, [symbol for symbol in self._symbols if symbol in candidates])
        known = {
            symbol: found for symbol in self._symbols if isinstance(found := sizes.read(symbol), np.ndarray)
        }
        positive = [
            Constraint(symbol, "", f"a size of at least 1 for {symbol!r}", np.atleast_1d(found >= 1))
            for symbol, found in known.items()
            if not (found >= 1).all()
        ]
        return Solution(known, (*positive, *sizes.constraints))

    def _settle(self, candidates: Mapping[str, Array], order: Sequence[str]) -> Sizes:
        """Infer shapes until all symbols of `order` are assigned.

        What operators suggest counts only if they still do when all sizes are known.
        """
        if self._suggested is None and order:
            self._suggested = {}
            self._suggested = dict(self._assign(candidates, order).suggestions)
            self._assigned = None
        return self._assign(candidates, order)

    def _assign(self, candidates: Mapping[str, Array], order: Sequence[str]) -> Sizes:
        """Infer shapes until nothing follows any more, then assign the next free symbol, until all are assigned.

        Later solutions assign all symbols at once that followed from no others in the first.
        """
        sizes, remaining = Sizes({}), list(order)
        assigned: set[str] = set()
        for symbol in order:
            if self._assigned is not None and symbol in self._assigned:
                sizes.bind(symbol, np.maximum(candidates[symbol], self._least.get(symbol, 1)))
        for _ in range(_MOST_PASSES):
            changes, sizes.constraints, sizes.suggestions = sizes.changes, [], {}
            infer(self._graph, RULES, self._inputs, sizes, self._constants)
            if sizes.changes != changes:
                continue
            free = [symbol for symbol in remaining if isinstance(sizes.read(symbol), str)]
            if not free:
                break
            root = sizes.root(free[0])
            suggested = None if self._suggested is None else self._suggested.get(root)
            if suggested is None:
                assigned.add(free[0])
                self._least[free[0]] = sizes.least.get(root, size(1))
                suggested = np.maximum(candidates[free[0]], self._least[free[0]])
            sizes.bind(root, suggested)
            remaining = free[1:]
        if order and self._assigned is None:
            self._assigned = assigned
        return sizes


def reads_signal(node: ir.Node) -> bool:
    """Return whether a node computes a spectrum, or filters over many samples."""
    if node.op_type in ("STFT", "DFT", "MelWeightMatrix"):
        return True
    weights = constant_tensor(node.inputs[1]) if node.op_type == "Conv" else None
    return weights is not None and len(weights.shape) == 3 and int(weights.shape.numpy()[2]) >= _LONG_WINDOW
