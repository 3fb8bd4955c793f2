"""QuantizeLinear and DequantizeLinear moved next to each other, the form in which targets take quantized models.

Exporters and quantizers write the same network in several ways. Each rule keeps every answer bit for bit:

- A node that moves quantized numbers moves floats: Q -> Reshape -> DQ becomes Q -> DQ -> Reshape -> Q -> DQ.
- A quantized result with readers other than DequantizeLinear is quantized again for these.
- Weights moved behind their DequantizeLinear are moved before it, where folding reaches them.
- Quantized graph inputs get Q and DQ behind their DQ, for the integer kernels.
- Operands of a Concat whose result is quantized are quantized on its grid.
- Numbers read on another grid than their own are multiplied and shifted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.patterns import is_op, only_use, producer

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# Operators that move the elements of their first input, whatever they are; of Concat all inputs are moved.
_MOVES = frozenset(
    (
        "Concat DepthToSpace Expand Flatten Gather Identity MaxPool Pad Reshape Slice SpaceToDepth Split Squeeze "
        "Tile Transpose Unsqueeze"
    ).split()
)
_MOVES_CONSTANTS = frozenset("Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())


def canonicalize_quantization(model: Model) -> None:
    """Apply the rules of this module to the main graph."""
    for node in list(model.graph):
        if node.domain == "" and node.op_type in _MOVES and not _move_floats(model.graph, node):
            _move_constant(model.graph, node)
    for node in list(model.graph):
        if is_op(node, _DEQUANTIZE):
            _compute_regrid(model.graph, node)
            _requantize_input(model.graph, node)
    for node in list(model.graph):
        if is_op(node, _QUANTIZE):
            _requantize_for_other_readers(model.graph, node)
            _align_concat(model.graph, node)


# ---- the rules


def _move_floats(graph: ir.Graph, node: ir.Node) -> bool:
    """Rewrite Q -> node -> ... as Q -> DQ -> node -> Q -> ...; return whether it applied."""
    data = list(node.inputs) if node.op_type == "Concat" else [node.inputs[0]]
    sources = [source for value in data if (source := producer(value, _QUANTIZE))]
    if len(sources) < len(data) or (node.op_type == "MaxPool" and len(node.outputs) > 1):  # its indices
        return False
    first = sources[0]
    if not all(_same_parameters(first, source) for source in sources):
        return False
    if not _is_one_grid(first) or (node.op_type == "Pad" and not _dequantize_fill(graph, node, first)):
        return False
    scale, zero_point = _parameters(first)
    for index, value in enumerate(data):
        assert value is not None
        node.replace_input_with(index, _insert_dequantize(graph, node, value, scale, zero_point))
    for result in node.outputs:
        _quantize_result(graph, node, result, scale, zero_point)
    return True


def _move_constant(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite DQ(constant) -> node as DQ(node(constant))."""
    source = producer(node.inputs[0], _DEQUANTIZE) if node.inputs else None
    if source is None or node.op_type not in _MOVES_CONSTANTS:
        return
    constant = source.inputs[0]
    if constant is None or constant.const_value is None or "block_size" in source.attributes:
        return
    attributes = dict(source.attributes)
    if not _is_one_grid(source):
        if node.op_type != "Transpose":
            return
        rank = len(constant.const_value.shape)
        permutation = list(node.attributes.get_ints("perm", ())) or list(reversed(range(rank)))
        axis = source.attributes.get_int("axis", 1)
        attributes["axis"] = ir.AttrInt64("axis", permutation.index(axis % rank))
    moved = ir.node(node.op_type, [constant, *node.inputs[1:]], dict(node.attributes), name=node.name)
    moved.outputs[0].name = f"{node.outputs[0].name}.quantized"
    moved.outputs[0].shape, moved.outputs[0].type = node.outputs[0].shape, constant.type
    floats = ir.node(_DEQUANTIZE, [moved.outputs[0], *source.inputs[1:]], attributes)
    graph.insert_before(node, [moved, floats])
    result, other = node.outputs[0], floats.outputs[0]
    other.shape, other.type = result.shape, result.type
    other.name, result.name = result.name, None
    result.replace_all_uses_with(other, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _requantize_for_other_readers(graph: ir.Graph, node: ir.Node) -> None:
    """For a Q with readers other than DQ, give these a second Q of the dequantized values."""
    result = node.outputs[0]
    others = [(user, index) for user, index in result.uses() if index or not is_op(user, _DEQUANTIZE)]
    if not others and not result.is_graph_output():
        return
    if len(others) == len(result.uses()):
        source = node.inputs[0]
        maker = None if source is None else source.producer()
        if maker is None or is_op(maker, _DEQUANTIZE):
            return
        if not any(producer(value, _DEQUANTIZE) for value in maker.inputs):
            return
    along = {name: a for name, a in node.attributes.items() if name in ("axis", "block_size")}
    floats = _insert_dequantize(graph, node, result, *_parameters(node), after=True, along=along)
    maker = floats.producer()
    assert maker is not None
    again = ir.node(_QUANTIZE, [floats, *node.inputs[1:]], dict(node.attributes))
    graph.insert_after(maker, again)
    numbers = again.outputs[0]
    numbers.shape, numbers.type = result.shape, result.type
    for user, index in others:
        user.replace_input_with(index, numbers)
    if result.is_graph_output():
        name = result.name
        result.name, numbers.name = f"{name}.grid", name
        for index, output in enumerate(graph.outputs):
            if output is result:
                graph.outputs[index] = numbers
    else:
        numbers.name = f"{result.name}.numbers"


def _requantize_input(graph: ir.Graph, node: ir.Node) -> None:
    """Insert Q and DQ of the same grid behind a DQ of integers from no Q, if a Q reads on."""
    numbers, floats = node.inputs[0], node.outputs[0]
    if numbers is None or numbers.const_value is not None or not _is_one_grid(node):
        return
    users = list(floats.uses())
    if producer(numbers, _QUANTIZE) or not any(_is_quantized(user) for user, _ in users):
        return
    again = ir.node(_QUANTIZE, [floats, *node.inputs[1:]])
    again.outputs[0].name = f"{floats.name}.grid"
    again.outputs[0].shape, again.outputs[0].type = numbers.shape, numbers.type
    graph.insert_after(node, again)
    on_grid = _insert_dequantize(graph, again, again.outputs[0], *_parameters(node), after=True)
    for user, index in users:
        user.replace_input_with(index, on_grid)


def _compute_regrid(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite Q -> DQ of another grid as Q -> DQ -> Mul -> Add -> Q -> DQ, whose rounding changes nothing."""
    numbers, floats = node.inputs[0], node.outputs[0]
    source = producer(numbers, _QUANTIZE)
    if numbers is None or source is None:
        return
    if not (_is_one_grid(node) and _is_one_grid(source)) or len(node.inputs) != len(source.inputs):
        return
    before, after = (_array(_parameters(each)[0]) for each in (source, node))
    points = [
        0 if each is None else int(_array(each).item()) for each in (*source.inputs[2:], *node.inputs[2:])
    ]
    moved = points[0] - points[1] if points else 0
    if (before == after and not moved) or before.dtype != np.float32 or after.dtype != np.float32:
        return
    value = _insert_dequantize(graph, node, numbers, *_parameters(source))
    if before != after:
        value = _insert_binary(graph, node, "Mul", value, (after / before).item())
    if moved:
        value = _insert_binary(graph, node, "Add", value, (after * np.float32(moved)).item())
    again = ir.node(_QUANTIZE, [value, *node.inputs[1:]])
    again.outputs[0].name = f"{floats.name}.regridded"
    again.outputs[0].shape, again.outputs[0].type = numbers.shape, numbers.type
    graph.insert_before(node, again)
    node.replace_input_with(0, again.outputs[0])


def _insert_binary(graph: ir.Graph, node: ir.Node, op: str, value: ir.Value, number: float) -> ir.Value:
    """Insert `op` of a value and a number before `node`; the number is 1 or -1 on a grid of its own."""
    name = f"{node.outputs[0].name}.{op}"
    scale = add_initializer(graph, f"{name}.scale", np.asarray(abs(number), np.float32))
    one, zero = (
        add_initializer(graph, f"{name}.{each}", np.array(each, np.int8))
        for each in (1 if number > 0 else -1, 0)
    )
    factor = _insert_dequantize(graph, node, one, scale, zero)
    made = ir.node(op, [value, factor])
    made.outputs[0].name = name
    made.outputs[0].shape, made.outputs[0].type = value.shape, value.type
    graph.insert_before(node, made)
    return made.outputs[0]


def _array(value: ir.Value | None) -> np.ndarray:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def _align_concat(graph: ir.Graph, node: ir.Node) -> None:
    """For Concat -> Q, quantize each operand as the result is."""
    concat = producer(node.inputs[0], "Concat")
    if concat is None or not only_use(concat.outputs[0]) or not _is_one_grid(node):
        return
    scale, zero_point = _parameters(node)
    for index, value in enumerate(concat.inputs):
        source = producer(value, _DEQUANTIZE)
        if value is None or (source is not None and _same_parameters(source, node)):
            continue
        quantize = ir.node(_QUANTIZE, [value, *node.inputs[1:]], dict(node.attributes))
        quantize.outputs[0].name = f"{concat.outputs[0].name}.{index}.quantized"
        quantize.outputs[0].shape, quantize.outputs[0].type = value.shape, node.outputs[0].type
        graph.insert_before(concat, quantize)
        floats = _insert_dequantize(graph, concat, quantize.outputs[0], scale, zero_point)
        concat.replace_input_with(index, floats)


# ---- what they are made of


def _parameters(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    return node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None


def _is_one_grid(node: ir.Node) -> bool:
    """Return whether scale and zero point are constants, one for the tensor."""
    scale, zero_point = _parameters(node)
    constants = [value.const_value for value in (scale, zero_point) if value is not None]
    return all(constant is not None and constant.size == 1 for constant in constants)


def _same_parameters(a: ir.Node, b: ir.Node) -> bool:
    """Return whether scales and zero points are the same values, or equal constants."""

    def is_equal(x: ir.Value | None, y: ir.Value | None) -> bool:
        if x is y:
            return True
        if x is None or y is None or x.const_value is None or y.const_value is None:
            return False
        return x.dtype == y.dtype and np.array_equal(x.const_value.numpy(), y.const_value.numpy())

    return all(map(is_equal, _parameters(a), _parameters(b)))


def _is_quantized(node: ir.Node) -> bool:
    """Return whether QuantizeLinear is the only reader of a node's results."""
    users = [user for value in node.outputs for user in value.consumers()]
    return bool(users) and not is_op(node, _QUANTIZE) and all(is_op(user, _QUANTIZE) for user in users)


def _dequantize_fill(graph: ir.Graph, pad: ir.Node, source: ir.Node) -> bool:
    """Dequantize the fill value of a Pad of integers; return False if it is known at run time only."""
    if pad.attributes.get_string("mode", "constant") != "constant":
        return True
    given = pad.inputs[2] if len(pad.inputs) > 2 else None
    scale, zero_point = (None if value is None else value.const_value for value in _parameters(source))
    if scale is None or (given is not None and given.const_value is None):
        return False
    fill = 0 if given is None or given.const_value is None else int(given.const_value.numpy().item())
    point = 0 if zero_point is None else int(zero_point.numpy().item())
    floats = np.array((fill - point) * scale.numpy().item(), scale.numpy().dtype)
    pad.resize_inputs(max(3, len(pad.inputs)))
    pad.replace_input_with(2, add_initializer(graph, f"{pad.outputs[0].name}.fill", floats))
    return True


def _insert_dequantize(
    graph: ir.Graph,
    place: ir.Node,
    value: ir.Value,
    scale: ir.Value | None,
    zero_point: ir.Value | None,
    *,
    after: bool = False,
    along: Mapping[str, ir.Attr] = {},
) -> ir.Value:
    """Insert a DequantizeLinear of `value` before or after the node `place`; return its result."""
    node = ir.node(_DEQUANTIZE, [value, scale, *([] if zero_point is None else [zero_point])], dict(along))
    floats = node.outputs[0]
    floats.name = f"{value.name}.{place.name or place.op_type}.floats"
    floats.shape, floats.type = value.shape, scale.type if scale is not None else None
    if after:
        graph.insert_after(place, node)
    else:
        graph.insert_before(place, node)
    return floats


def _quantize_result(
    graph: ir.Graph, node: ir.Node, result: ir.Value, scale: ir.Value | None, zero_point: ir.Value | None
) -> None:
    """Insert a QuantizeLinear behind a result that has become float."""
    quantize = ir.node(_QUANTIZE, [result, scale, *([] if zero_point is None else [zero_point])])
    numbers = quantize.outputs[0]
    numbers.shape, numbers.type = result.shape, result.type
    uses = list(result.uses())
    graph.insert_after(node, quantize)
    for user, index in uses:
        if user is not quantize:
            user.replace_input_with(index, numbers)
    name, result.name = result.name, f"{result.name}.floats"
    numbers.name = name
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = numbers
    result.type = scale.type if scale is not None else None
