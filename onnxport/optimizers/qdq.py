"""QuantizeLinear and DequantizeLinear moved next to each other, the form in which targets take quantized models.

Exporters and quantizers write the same network in several ways. Each rule keeps every answer bit for bit:

- A node that moves quantized numbers moves floats instead: Q -> Reshape -> DQ becomes Q -> DQ -> Reshape -> Q ->
  DQ.
- A quantized result with readers other than DequantizeLinear is quantized again for these.
- Weights moved behind their DequantizeLinear are moved before it, where folding reaches them.
- Quantized graph inputs get Q and DQ behind their DQ, for the integer kernels.
- Operands of a Concat whose result is quantized are quantized on its grid.
- Numbers read on another grid than their own are multiplied and shifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model

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
        if _is_op(node, _DEQUANTIZE):
            _compute_regrid(model.graph, node)
            _requantize_input(model.graph, node)
    for node in list(model.graph):
        if _is_op(node, _QUANTIZE):
            _requantize_for_other_readers(model.graph, node)
            _align_concat(model.graph, node)


# ---- the rules


def _move_floats(graph: ir.Graph, node: ir.Node) -> bool:
    """Rewrite Q -> node -> ... as Q -> DQ -> node -> Q -> ...; return whether it applied."""
    data = list(node.inputs) if node.op_type == "Concat" else [node.inputs[0]]
    sources = [None if value is None else value.producer() for value in data]
    if not all(source is not None and _is_op(source, _QUANTIZE) for source in sources):
        return False
    if node.op_type == "MaxPool" and len(node.outputs) > 1:
        return False  # its indices
    first = sources[0]
    assert first is not None
    if any(not _same_parameters(first, source) for source in sources if source is not None):
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
    source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    if source is None or not _is_op(source, _DEQUANTIZE) or node.op_type not in _MOVES_CONSTANTS:
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
    _replace(graph, node, floats)


def _requantize_for_other_readers(graph: ir.Graph, node: ir.Node) -> None:
    """For a Q with readers other than DQ, give these a second Q of the dequantized values."""
    result = node.outputs[0]
    others = [
        (user, index) for user, index in result.uses() if not (_is_op(user, _DEQUANTIZE) and index == 0)
    ]
    inside = len(others) < len(list(result.uses()))
    if not (others or result.is_graph_output()) or not (
        inside or _is_computed_from_dequantized(node.inputs[0])
    ):
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
    source = numbers.producer()
    users = list(floats.uses())
    if (source is not None and _is_op(source, _QUANTIZE)) or not any(
        _is_quantized(user) for user, _ in users
    ):
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
    source = None if numbers is None else numbers.producer()
    if numbers is None or source is None or not _is_op(source, _QUANTIZE):
        return
    if not (_is_one_grid(node) and _is_one_grid(source)) or len(node.inputs) != len(source.inputs):
        return
    before, after = (_array(_parameters(each)[0]) for each in (source, node))
    moved = 0 if len(node.inputs) < 3 else _number(source.inputs[2]) - _number(node.inputs[2])
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
    scale = _constant(graph, f"{name}.scale", np.asarray(abs(number), np.float32))
    one, zero = (
        _constant(graph, f"{name}.{each}", np.array(each, np.int8)) for each in (1 if number > 0 else -1, 0)
    )
    factor = _insert_dequantize(graph, node, one, scale, zero)
    made = ir.node(op, [value, factor])
    made.outputs[0].name = name
    made.outputs[0].shape, made.outputs[0].type = value.shape, value.type
    graph.insert_before(node, made)
    return made.outputs[0]


def _number(value: ir.Value | None) -> int:
    return 0 if value is None else int(_array(value).item())


def _array(value: ir.Value | None) -> np.ndarray:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def _constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    value = ir.val(name, const_value=ir.Tensor(array))
    graph.register_initializer(value)
    return value


def _is_quantized(node: ir.Node) -> bool:
    """Return whether QuantizeLinear is the only reader of a node's results."""
    users = [user for value in node.outputs for user in value.consumers()]
    return bool(users) and not _is_op(node, _QUANTIZE) and all(_is_op(user, _QUANTIZE) for user in users)


def _is_computed_from_dequantized(value: ir.Value | None) -> bool:
    """Return whether a value is computed from a DequantizeLinear's result."""
    node = None if value is None else value.producer()
    if node is None or _is_op(node, _DEQUANTIZE):
        return False
    makers = [operand.producer() for operand in node.inputs if operand is not None]
    return any(maker is not None and _is_op(maker, _DEQUANTIZE) for maker in makers)


def _align_concat(graph: ir.Graph, node: ir.Node) -> None:
    """For Concat -> Q, quantize each operand as the result is."""
    joined = node.inputs[0]
    concat = None if joined is None else joined.producer()
    if concat is None or not _is_op(concat, "Concat") or not _is_one_grid(node):
        return
    if len(list(concat.outputs[0].uses())) != 1 or concat.outputs[0].is_graph_output():
        return
    scale, zero_point = _parameters(node)
    for index, value in enumerate(concat.inputs):
        source = None if value is None else value.producer()
        if value is None or (
            source is not None and _is_op(source, _DEQUANTIZE) and _same_parameters(source, node)
        ):
            continue
        quantize = ir.node(_QUANTIZE, [value, *node.inputs[1:]], dict(node.attributes))
        quantize.outputs[0].name = f"{concat.outputs[0].name}.{index}.quantized"
        quantize.outputs[0].shape, quantize.outputs[0].type = value.shape, node.outputs[0].type
        graph.insert_before(concat, quantize)
        concat.replace_input_with(
            index, _insert_dequantize(graph, concat, quantize.outputs[0], scale, zero_point)
        )


# ---- what they are made of


def _is_op(node: ir.Node, op: str) -> bool:
    return node.op_type == op and node.domain == ""


def _parameters(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    return node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None


def _is_one_grid(node: ir.Node) -> bool:
    """Return whether scale and zero point are constants, one for the tensor."""
    scale, zero_point = _parameters(node)
    constants = [value.const_value for value in (scale, zero_point) if value is not None]
    return all(constant is not None and constant.size == 1 for constant in constants)


def _same_parameters(a: ir.Node, b: ir.Node) -> bool:
    return all(_equal(x, y) for x, y in zip(_parameters(a), _parameters(b), strict=True))


def _equal(a: ir.Value | None, b: ir.Value | None) -> bool:
    if a is b:
        return True
    if a is None or b is None or a.const_value is None or b.const_value is None:
        return False
    return a.dtype == b.dtype and np.array_equal(a.const_value.numpy(), b.const_value.numpy())


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
    pad.replace_input_with(2, _constant(graph, f"{pad.outputs[0].name}.fill", floats))
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
    inputs: Sequence[ir.Value | None] = [value, scale] if zero_point is None else [value, scale, zero_point]
    node = ir.node(_DEQUANTIZE, inputs, dict(along))
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
    inputs: Sequence[ir.Value | None] = [result, scale] if zero_point is None else [result, scale, zero_point]
    quantize = ir.node(_QUANTIZE, inputs)
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


def _replace(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    """Replace one node's result by another's."""
    result, other = old.outputs[0], new.outputs[0]
    other.shape, other.type = result.shape, result.type
    name, result.name = result.name, None
    other.name = name
    result.replace_all_uses_with(other, replace_graph_outputs=True)
    graph.remove(old, safe=True)
