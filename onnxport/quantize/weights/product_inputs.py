"""Inputs of products on the user's samples, for GPTQ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.calibration import Resources, calibrate
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.weights.discovery import Use
from onnxport.quantize.weights.gram_matrix import GramMatrix
from onnxport.quantize.weights.plan import PlannedWeight

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
    if (
        axis is None
        or use.node.graph is not graph
        or source is None
        or source.is_initializer()
        or not source.name
    ):
        return None
    return source.name, axis


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
