"""The sizes of all values of a graph, at those of one set of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats import onnx_inference
from onnxport.formats.initializers import add_initializer
from onnxport.validate.translation.constants import Constants, find_constants

# Operators whose results' sizes hang on what their bodies do; those that a model gives them are kept.
BLOCKS = frozenset({"If", "Loop", "Scan"})
_SMALL = 4096  # elements of integers that are folded
_ROUNDS = 64


def fix_sizes(model: ir.Model, opset: int, sizes: Mapping[str, Sequence[int]], *, folds: bool = True) -> None:
    """Give inputs these sizes, and find those of all values as far as integers tell them.

    An input that has none of them and is stored, too, is the constant that it defaults to.

    Args:
        folds: whether integers that follow from constants are stored even where all sizes are known without them.
    """
    for value in [
        each for each in model.graph.inputs if each.const_value is not None and each.name not in sizes
    ]:
        model.graph.inputs.remove(value)
    for value in model.graph.inputs:
        if value.name is not None and value.name in sizes:
            value.shape = ir.Shape(list(sizes[value.name]))
    for node in model.graph:
        is_block = node.op_type in BLOCKS
        for value in node.outputs if node.domain in ("", "ai.onnx") else ():
            value.shape = value.shape if is_block and static_sizes(value) is not None else None
    for value in model.graph.outputs:
        value.shape = None
    described = {
        name: model.functions.pop(name) for name in list(model.functions) if _calls_have_sizes(model, name)
    }
    known = -1
    for _ in range(_ROUNDS):
        onnx_inference.infer(model)
        if not folds and all(static_sizes(value) is not None for value in _results(model.graph)):
            break
        _fold_integers(model.graph, opset)
        results = _results(model.graph)
        count = sum(static_sizes(value) is not None for value in results)
        if count in (known, len(results)):
            break
        known = count
    common.RemoveUnusedNodesPass()(model)
    model.functions.update(described)


def _results(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


def _calls_have_sizes(model: ir.Model, function: ir.OperatorIdentifier) -> bool:
    """Return whether what a function gives has sizes wherever it is called: inference need not read its weights."""
    return all(
        static_sizes(value) is not None
        for node in model.graph
        if node.op_identifier() == function
        for value in node.outputs
    )


def _fold_integers(graph: ir.Graph, opset: int) -> None:
    """Store the integers that follow from constants, and the sizes of other constants."""
    constants = Constants(opset)
    for value in list(find_constants(graph)):
        is_float = value.dtype is not None and value.dtype.is_floating_point()
        if value.is_graph_output() or not value.uses() or (is_float and static_sizes(value) is not None):
            continue
        found = constants.get(value)
        if found is None:
            continue
        if static_sizes(value) is None:
            value.shape = ir.Shape(found.values.shape)
        if found.values.dtype.kind in "iub" and found.values.size <= _SMALL:
            array = np.ascontiguousarray(found.values).reshape(found.values.shape)
            value.replace_all_uses_with(add_initializer(graph, f"{value.name}/folded", array))


def static_sizes(value: ir.Value) -> tuple[int, ...] | None:
    if value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(each) for each in value.shape.numpy())


def known_sizes(graph: ir.Graph) -> dict[str, tuple[int, ...]]:
    """Return the sizes of every named value that has known ones."""
    found = ((value.name, static_sizes(value)) for node in graph for value in node.outputs)
    return {name: sizes for name, sizes in found if name and sizes is not None}
