"""Inputs of products on the user's samples, for GPTQ: their Gram matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.calibration import Resources, calibrate
from onnxport.quantize.calibration.observers import NotFiniteError
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.weights.discovery import Use
from onnxport.quantize.weights.plan import PlannedWeight

# A sample's sums are held as integers of two words, the upper one in units of 2^-20 and the lower in 2^-70, so that
# adding them up neither rounds nor depends on an order; the lower word has room for 2^13 samples.
_UPPER, _LOWER = 20, 50
# Rows of one sample beyond this are thinned out: neighbours in a long sequence or a large picture say much the same.
ROWS = 1024


class GramMatrix:
    """An observer of the Gram matrix of rows of length n: float64 [n, n].

    Attributes:
        axis: along which a row lies.
        rows: how many were counted.
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis, self.rows = axis, 0
        self._upper = self._lower = np.zeros((0, 0), np.int64)

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if not values.size:
            return
        rows = np.moveaxis(values, self.axis, -1).reshape(-1, values.shape[self.axis])
        rows = rows[:: -(-len(rows) // ROWS)].astype(np.float32)
        product = (rows.T @ rows).astype(np.float64)
        if not np.isfinite(product).all():
            raise NotFiniteError("NaN or infinity, or a sum of squares that float32 does not hold")
        scaled = np.ldexp(product, _UPPER)
        upper = np.floor(scaled)
        lower = np.floor(np.ldexp(scaled - upper, _LOWER))
        self._add(upper.astype(np.int64), lower.astype(np.int64), len(rows))

    def merge(self, other: GramMatrix) -> None:
        """See Observer."""
        if other.rows:
            self._add(other._upper, other._lower, other.rows)

    def matrix(self) -> Array:
        """float64[n, n]."""
        return np.asarray(np.ldexp(self._upper + np.ldexp(self._lower.astype(np.float64), -_LOWER), -_UPPER))

    def _add(self, upper: Array, lower: Array, rows: int) -> None:
        self._upper, self._lower = (
            (upper, lower) if not self.rows else (self._upper + upper, self._lower + lower)
        )
        self.rows += rows


# Gram matrices that are held at once: the samples are gone through again for the rest.
_AT_ONCE = 2**30  # bytes
_WORDS = 16  # bytes of one element of a Gram


@dataclass(frozen=True)
class Batch:
    """Weights whose inputs are observed in one pass."""

    # Those, and any whose inputs cannot be watched, in the order of the model.
    plan: tuple[PlannedWeight, ...]
    taps: frozenset[tuple[str, int]]  # what they read: name and axis of the rows

    def grams(
        self, path: Path, params: QuantizeParams, setting: QuantizationInputs
    ) -> Mapping[tuple[str, int], Array]:
        """Return the Gram matrix of each tap over the samples."""
        if not self.taps:
            return {}
        watched: dict[str, tuple[GramMatrix, ...]] = {}
        for name, axis in sorted(self.taps):
            watched[name] = (*watched.get(name, ()), GramMatrix(axis))
        with setting.watch.phase("calibrate"):
            resources = Resources.of(params)
            observed = calibrate(path, watched, setting.calibration, watch=setting.watch, resources=resources)
        grams = [(name, each) for name, observers in observed.items() for each in observers]
        return {(name, each.axis): each.matrix() for name, each in grams if isinstance(each, GramMatrix)}


def split_into_batches(plan: Sequence[PlannedWeight], graph: ir.Graph) -> Iterator[Batch]:
    """Split `plan` into batches whose Gram matrices fit into memory."""
    held: list[PlannedWeight] = []
    taps: set[tuple[str, int]] = set()
    size = 0
    for each in plan:
        tap = find_tap(each, graph)
        needed = _WORDS * each.weight.layout.row**2 if tap and tap not in taps else 0
        if held and size + needed > _AT_ONCE:
            yield Batch(tuple(held), frozenset(taps))
            held, taps, size = [], set(), 0
        held.append(each)
        taps |= {tap} if tap else set()
        size += needed
    yield Batch(tuple(held), frozenset(taps))


def find_tap(planned: PlannedWeight, graph: ir.Graph) -> tuple[str, int] | None:
    """Return the tensor that the first product with the weight reads, and the axis of its rows; None for none."""
    use = planned.weight.uses[0]
    axis = _axis(use)
    source = use.node.inputs[0]
    if axis is None or use.node.graph is not graph:
        return None
    return (source.name, axis) if source is not None and source.name and not source.is_initializer() else None


def _axis(use: Use) -> int | None:
    node = use.node
    if node.op_type == "MatMul":
        return -1 if use.position == 1 and len(use.order) == 2 else None
    if node.op_type == "Gemm":
        return (1, 0)[node.attributes.get_int("transA", 0)] if use.position == 1 else None
    if node.op_type == "Conv" and node.attributes.get_int("group", 1) == 1 and _is_pointwise(node):
        return 1
    return None


def _is_pointwise(node: ir.Node) -> bool:
    """Return whether the filter has size 1, so that it is a product with each pixel's channels."""
    kernel = node.inputs[1]
    return kernel is not None and kernel.shape is not None and all(size == 1 for size in kernel.shape[2:])
