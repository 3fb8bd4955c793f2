"""Open dimensions that shape inference calls unknown but that equal an input's dimension.

ONNX's inference makes up a symbol (unk__7) for an unknown size. Some follow from others: a Slice keeps the axes
that it does not cut, a Range to N has N elements, of two sizes that broadcast one is 1 or both are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import axes_of, is_op, known_dims, number, rank_of
from onnxport.optimizers.shape_arithmetic import TARGETED, Dimensions

_MADE_UP = "unk__"
# The size of a slice up to a symbol: of 512 elements, those before N.
_AT_MOST = "min({},{})"
_ROUNDS = 4
_BROADCASTS = frozenset(
    "Add And BitwiseAnd BitwiseOr Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow PRelu "
    "Sub Sum Where Xor".split()
)


def name_open_dimensions(model: Model) -> None:
    """Replace symbols that inference made up by the dimension they equal, where that follows."""
    own = {dim for value in model.graph.inputs for dim in known_dims(value) or () if isinstance(dim, str)}
    for _ in range(_ROUNDS):
        found: dict[str, Dim] = {}
        for graph in model.ir.graphs():
            _find_sizes(graph, found, own)
        if not found:
            return
        for value in (value for node in model.graph.all_nodes() for value in node.outputs):
            if (dims := known_dims(value)) is not None and not found.keys().isdisjoint(dims):
                value.shape = ir.Shape([found.get(dim, dim) if isinstance(dim, str) else dim for dim in dims])


def _find_sizes(graph: ir.Graph, found: dict[str, Dim], own: set[str]) -> None:
    known = Dimensions(graph)
    for node in graph:
        dims = known_dims(node.outputs[0]) or ()
        made_up = {dim for dim in dims if isinstance(dim, str) and dim.startswith(_MADE_UP)} - own
        inferred = _infer_dims(node, known) if made_up and is_op(node) else None
        if inferred is None or len(dims) != len(inferred):
            continue
        for old, new in zip(dims, inferred, strict=True):
            new = found.get(new, new) if isinstance(new, str) else new
            if isinstance(old, str) and old in made_up and old not in found and new not in (None, old, -1):
                found[old] = new


def _infer_dims(node: ir.Node, known: Dimensions) -> Sequence[Dim] | None:
    """Return the dimensions of a node's result as far as the rules of this module determine them."""
    if node.op_type in TARGETED:
        return known.result_shape(node)
    if node.op_type == "Slice":
        return _sliced_dims(node, known)
    if node.op_type == "Range":
        first, step = number(node.inputs[0]), number(node.inputs[2])
        end = None if node.inputs[1] is None else known.elements(node.inputs[1])
        return [end.item()] if first == 0 and step == 1 and end is not None and end.size == 1 else None
    if node.op_type == "MatMul":
        left, right = (known_dims(value) or () for value in node.inputs)
        if len(left) < 3 or len(right) < 3:
            return None
        return [*_broadcast([left[:-2], right[:-2]]), left[-2], right[-1]]
    if node.op_type in _BROADCASTS:
        operands = [dims for value in node.inputs if (dims := known_dims(value)) is not None]
        return list(_broadcast(operands)) if len(operands) == len(node.inputs) else None
    return None


def _sliced_dims(node: ir.Node, known: Dimensions) -> list[Dim] | None:
    """Return dimensions for axes that are not cut, and for one that is cut behind at a symbol."""
    source, rank = known_dims(node.inputs[0]), rank_of(node.inputs[0])
    axes = axes_of(node, 3)
    if source is None or rank is None or axes is None or len(node.inputs) < 3:
        return None
    starts, ends = (None if value is None else known.elements(value) for value in node.inputs[1:3])
    whole = len(node.inputs) < 5 or node.inputs[4] is None or number(node.inputs[4]) == 1
    result = list(source)
    for index, axis in enumerate(axes or range(0 if starts is None else starts.size)):
        size, result[axis] = result[axis], None
        if whole and starts is not None and ends is not None and starts.flat[index] == 0:
            end = ends.flat[index]
            if isinstance(size, int) and isinstance(end, str):
                result[axis] = _AT_MOST.format(size, end)
    return result


def _broadcast(operands: Sequence[Sequence[Dim]]) -> Iterator[Dim]:
    rank = max(len(dims) for dims in operands)
    for axis in range(-rank, 0):
        sizes = {dims[axis] for dims in operands if len(dims) >= -axis} - {1}
        if not sizes:
            yield 1
            continue
        for symbol in [each for each in sizes if isinstance(each, str)]:
            # If N and min(512, N) broadcast, they are equal; so are N and 1.
            sizes -= {each for each in sizes if isinstance(each, str) and each.endswith(f",{symbol})")}
        yield next(iter(sizes)) if len(sizes) == 1 else None
