"""Axes of Squeeze nodes that name none, where open sizes leave them to run time.

The declared rank of a graph output, or the rank that a reader takes, says which axes go: PyTorch exports `x.squeeze()`
without axes, and declares the rank that it saw.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.patterns import integers

# Operators whose result has the rank of their only operand that is no scalar.
_KEEP_RANK = frozenset(
    "Abs Add Cast Ceil Clip Cos Div Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Log Mul Neg Pow Reciprocal "
    "Relu Round Sigmoid Sign Sin Softplus Softsign Sqrt Sub Tanh".split()
)
# Op -> the rank of its operands.
_TAKES_RANK = {"Range": 0, "Gemm": 2, "GRU": 3, "LSTM": 3, "RNN": 3}


def read_output_ranks(model: Model) -> dict[str, int]:
    """Return the ranks that the file declares for its outputs."""
    return {value.name or "": len(value.shape) for value in model.graph.outputs if value.shape is not None}


def name_squeezed_axes(model: Model, ranks: Mapping[str, int]) -> list[str]:
    """Give axes to each Squeeze without any whose rank leaves one choice: all open axes go, or all stay.

    They stay where a reader fails at a lower rank: the model then runs at no size at which one of them is 1. They
    stay as well where each reader is a Reshape to sizes that copy none: it returns the same either way.

    Args:
        ranks: of the graph's outputs, as the file declares them.

    Returns:
        A sentence for each.
    """
    notes = []
    outputs = {value: ranks[value.name or ""] for value in model.graph.outputs if value.name in ranks}
    symbols = {dim for value in model.graph.inputs for dim in dims_of(value)}
    for node in list(model.graph.all_nodes()):
        source = node.inputs[0] if node.op_type == "Squeeze" and node.domain == "" else None
        if source is None or source.shape is None or (len(node.inputs) > 1 and node.inputs[1] is not None):
            continue
        dims = dims_of(source)
        opened = [axis for axis, dim in enumerate(dims) if not isinstance(dim, int)]
        gone = [axis for axis, dim in enumerate(dims) if dim == 1 or axis in opened]
        wanted = _rank_of(node.outputs[0], outputs)
        stay = len(dims) - len(gone) + len(opened)
        squeezed = node.outputs[0]
        if opened and (_least_rank(squeezed) == stay or _is_only_reshaped(squeezed)):
            _set_axes(model, node, [axis for axis in gone if axis not in opened])
            continue
        if not opened or wanted is None or wanted != len(dims) - len(gone):
            continue
        _set_axes(model, node, gone)
        sizes = " and ".join(str(dims[axis]) if dims[axis] in symbols else f"axis {axis}" for axis in opened)
        dimensions = f"{wanted} dimension{'s' * (wanted != 1)}"
        notes.append(
            f"Squeeze {node.name or node.outputs[0].name!r} must leave {dimensions}, so {sizes} is taken to be 1; "
            "the artefact fails at other sizes"
        )
    return notes


def _rank_of(value: ir.Value, outputs: Mapping[ir.Value, int]) -> int | None:
    """Return the rank that the outputs and readers behind `value` agree on; None if they say nothing."""
    found: set[int] = set()
    waiting, seen = [value], {value}
    while waiting:
        each = waiting.pop()
        if each in outputs:
            found.add(outputs[each])
        for reader, _ in each.uses():
            if reader.op_type in _TAKES_RANK:
                found.add(_TAKES_RANK[reader.op_type])
            elif reader.op_type in _KEEP_RANK and _others_are_scalars(reader, each):
                waiting += {reader.outputs[0]} - seen
                seen.add(reader.outputs[0])
    return found.pop() if len(found) == 1 else None


def _least_rank(value: ir.Value) -> int:
    """Return the least rank at which the readers run."""
    least = 0
    for reader, index in value.uses():
        axes = reader.inputs[1] if reader.op_type == "Unsqueeze" and len(reader.inputs) > 1 else None
        if index == 0 and axes is not None and axes.const_value is not None:
            added = axes.const_value.numpy().ravel()
            # An axis lies inside the result, whose rank is higher by their number.
            inside = max(int(added.max(initial=-1)) + 1, -int(added.min(initial=0)))
            least = max(least, inside - added.size)
        elif index == 0 and reader.op_type == "Transpose" and "perm" in reader.attributes:
            least = max(least, len(reader.attributes["perm"].as_ints()))
    return least


def _is_only_reshaped(value: ir.Value) -> bool:
    """Return whether all readers are Reshapes whose constant sizes copy no size of the value."""
    targets = [
        integers(reader.inputs[1]) if reader.op_type == "Reshape" and index == 0 else None
        for reader, index in value.uses()
    ]
    return not value.is_graph_output() and bool(targets) and all(each and 0 not in each for each in targets)


def _others_are_scalars(node: ir.Node, operand: ir.Value) -> bool:
    others = (value for value in node.inputs if value is not None and value is not operand)
    return all(other.shape is not None and len(other.shape) == 0 for other in others)


def _set_axes(model: Model, node: ir.Node, axes: list[int]) -> None:
    constant = add_initializer(model.graph, f"{node.outputs[0].name}.axes", np.array(axes, np.int64))
    node.resize_inputs(2)
    node.replace_input_with(1, constant)
