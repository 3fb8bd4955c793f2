"""Operators on integers, written as DequantizeLinear, the float operator and QuantizeLinear.

    Given   QLinearConv(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b)
    Result  QuantizeLinear(Conv(DequantizeLinear(x, ...), DequantizeLinear(w, ...), b * x_scale * w_scale), ...)

    Given   MatMulInteger(DynamicQuantizeLinear(x), w) -> Cast -> Mul(Mul(x_scale, w_scale))
    Result  MatMul(DequantizeLinear(DynamicQuantizeLinear(x)), DequantizeLinear(w, w_scale, ...))

Both are the same numbers by the definitions of these operators (ONNX QLinearConv-10, MatMulInteger-10; ONNX Runtime,
docs/ContribOperators.md). Integers keep their names, so that the graph can be cut at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.validate.translation.constants import Constants
from onnxport.validate.translation.fusions import FUSIONS, MICROSOFT, channels_first, channels_last
from onnxport.validate.translation.rewrite import Rewrite

# They move integers, and say the same of the floats that these stand for.
_MOVES = frozenset(
    (
        "MaxPool ReduceMax ReduceMin Reshape Transpose Flatten Squeeze Unsqueeze Slice Gather Split Identity "
        "DepthToSpace SpaceToDepth"
    ).split()
)


def expand(graph: ir.Graph) -> None:
    """Rewrite a graph in place."""
    for node in list(graph):
        rule = _RULES.get(node.op_type)
        if rule is not None and node.domain in ("", "ai.onnx", MICROSOFT) and node.graph is graph:
            rule(Rewrite(graph, node))
    _move_dequantization(graph)


def _conv(place: Rewrite) -> None:
    weight, data = place.constant(3), place.floats(0)
    is_last = place.node.attributes.get_int("channels_last", 0) and weight is not None
    rank = 0 if weight is None else weight.ndim
    if is_last:
        data = channels_first(place, data, rank)
    operands: list[ir.Value | None] = [data, place.floats(3, axis=0)]
    if place.input(8) is not None:
        operands.append(place.bias(8, 1, 4))
    product = found = place.add("Conv", operands, **place.attributes("channels_last"))
    if is_last:
        found = channels_last(place, product, rank)
    place.finish(found, 6, named=product)


def _matrix_product(place: Rewrite) -> None:
    place.finish(place.add("MatMul", [place.floats(0), place.floats(3, axis=-1)]), 6)


def _gemm(place: Rewrite) -> None:
    transposed = place.node.attributes.get_int("transB", 0)
    operands: list[ir.Value | None] = [place.floats(0), place.floats(3, axis=0 if transposed else 1)]
    if place.input(6) is not None:
        operands.append(place.bias(6, 1, 4))
    result = place.add("Gemm", operands, **place.attributes())
    place.finish(result, 7 if place.input(7) is not None else None)


def _gemm_of_two_results(place: Rewrite) -> None:
    """A Gemm that adds a computed matrix, as MatMul and Add."""
    attributes = place.node.attributes
    factors = (attributes.get_float("alpha", 1.0), attributes.get_float("beta", 1.0))
    is_plain = factors == (1.0, 1.0) and attributes.get_int("transA", 0) == 0
    if not is_plain or not _is_computed(place.input(2)):
        return
    weight = place.input(1)
    if attributes.get_int("transB", 0):
        weight = place.add("Transpose", [weight], perm=[1, 0])
    product = place.add("MatMul", [place.input(0), weight])
    place.finish(place.add("Add", [product, place.input(2)]), None, named=product)


def _is_computed(value: ir.Value | None) -> bool:
    """Return whether a value depends on an input of the graph."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        each = pending.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        node = each.producer()
        if each.is_graph_input():
            return True
        pending += () if node is None else node.inputs
    return False


def _cast_to_floats(place: Rewrite) -> None:
    """Integers become floats without wider integers on the way, and floats of 16 bits by way of float32."""
    target, value = ir.DataType(place.node.attributes.get_int("to", 1)), place.input(0)
    if value is None or value.dtype is None or not target.is_floating_point():
        return
    if (narrow := _before_widening(value)) is not None:
        place.node.replace_input_with(0, narrow)
        value = narrow
    is_narrow = target in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if is_narrow and value.dtype is not None and not value.dtype.is_floating_point():
        wide = place.add("Cast", [value], to=int(ir.DataType.FLOAT))
        wide.type = ir.TensorType(ir.DataType.FLOAT)
        place.node.replace_input_with(0, wide)


def _before_widening(value: ir.Value) -> ir.Value | None:
    """Return the integers that a Cast to a type with all their numbers reads; None for another value."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    if source is None or source.dtype is None or value.dtype is None:
        return None
    if not (source.dtype.is_integer() and value.dtype.is_integer()):
        return None
    return source if np.can_cast(source.dtype.numpy(), value.dtype.numpy(), "safe") else None


def _of_two(op: str) -> Callable[[Rewrite], None]:
    return lambda place: place.finish(place.add(op, [place.floats(0), place.floats(3)]), 6)


def _of_one(op: str, *left_out: str) -> Callable[[Rewrite], None]:
    def rewrite(place: Rewrite) -> None:
        value, data, rank = place.floats(0), place.input(0), 0
        if place.node.attributes.get_int("channels_last", 0):
            rank = 0 if data is None or data.shape is None else len(data.shape)
            if not rank:
                return
            value = channels_first(place, value, rank)
        found = result = place.add(op, [value], **place.attributes(*left_out, "channels_last"))
        if rank:
            result = channels_last(place, found, rank)
        place.finish(result, 3, named=found)

    return rewrite


def _concat(place: Rewrite) -> None:
    operands = [place.floats(each) for each in range(2, len(place.node.inputs), 3)]
    place.finish(place.add("Concat", operands, **place.attributes()), 0)


# ---- scales that are found at run time


def _integer_product(place: Rewrite) -> None:
    """MatMulInteger or ConvInteger between DynamicQuantizeLinear and a multiplication by both scales."""
    data, scale_of_data = place.input(0), None
    source = None if data is None else data.producer()
    if source is None or source.op_type != "DynamicQuantizeLinear":
        return
    scale_of_data = source.outputs[1]
    end = _multiplied(place.node, scale_of_data)
    if end is None:
        return
    mul, scale = end
    place.at = mul
    floats = place.add("DequantizeLinear", [data, scale_of_data, source.outputs[2]])
    weight, zero = place.input(1), place.input(3)
    is_matrix = place.node.op_type == "MatMulInteger"
    tensor, along = constant_tensor(scale), {}
    if tensor is None:  # the weight's own DynamicQuantizeLinear gives it
        stored = scale
    else:
        steps = tensor.numpy()
        known = place.constant(3)
        if steps.size > 1 and known is not None and known.size == 1:
            zero = place.store(np.full(steps.reshape(-1).shape, known.reshape(-1)[0], known.dtype), "zero")
        flat = steps.reshape(-1) if steps.size > 1 else steps.reshape(())
        stored = place.store(flat.astype(np.float32), "weight.scale")
        along = {"axis": -1 if is_matrix else 0} if steps.size > 1 else {}
    dequantized = place.add("DequantizeLinear", [weight, stored, zero], **along)
    operands = [floats, dequantized]
    result = place.add("MatMul" if is_matrix else "Conv", operands, **place.attributes())
    place.finish(result, None, keep=mul)


def _multiplied(product: ir.Node, scale: ir.Value) -> tuple[ir.Node, ir.Value] | None:
    """Return the Mul behind a product and its Cast, and the scale that it has beside `scale`."""
    casts = [user for user, _ in product.outputs[0].uses()]
    if len(casts) != 1 or casts[0].op_type != "Cast":
        return None
    users = [user for user, _ in casts[0].outputs[0].uses()]
    if len(users) != 1 or users[0].op_type != "Mul":
        return None
    other = next((each for each in users[0].inputs if each is not casts[0].outputs[0]), None)
    scales = None if other is None else other.producer()
    if scales is None or scales.op_type != "Mul" or scale not in scales.inputs:
        return None
    beside = next((each for each in scales.inputs if each is not scale), None)
    return None if beside is None else (users[0], beside)


# The opsets that gave DequantizeLinear a scale for each channel, and for each block.
_GRIDS = {"axis": 13, "block_size": 21}


def with_old_grids(model: Model) -> Model:
    """Return an expanded model that its own opset allows: constants on grids that came later are stored as floats."""
    newer = [name for name, opset in _GRIDS.items() if model.opset < opset]
    if not newer:
        return model
    copy, constants = model.clone(), Constants(model.opset)
    for node in list(copy.graph):
        if node.op_type != "DequantizeLinear" or not any(name in node.attributes for name in newer):
            continue
        value = node.outputs[0]
        if (found := constants.get(value)) is not None:
            stored = add_initializer(copy.graph, f"{value.name}/floats", found.values.astype(np.float32))
            value.replace_all_uses_with(stored)
            copy.graph.remove(node, safe=True)
    return copy


# ---- weights in blocks


def _block_product(place: Rewrite) -> None:
    """MatMulNBits: codes of 4 bits, two in a byte, or of 8, in blocks along the depth."""
    attributes = place.node.attributes
    depth, channels = attributes.get_int("K", 0), attributes.get_int("N", 0)
    bits, block = attributes.get_int("bits", 4), attributes.get_int("block_size", 32)
    packed, scales = place.constant(1), place.constant(2)
    if packed is None or scales is None or bits not in (4, 8) or place.input(4) is not None:
        return
    blocks = -(-depth // block)
    codes = _unpacked(packed.reshape(channels, -1), bits)[:, :depth]
    zero = place.constant(3)
    if zero is not None and zero.dtype != np.uint8:
        return
    zeros = (
        np.full((channels, blocks), 1 << (bits - 1), np.uint8)
        if zero is None
        else _unpacked(zero.reshape(channels, -1), bits)[:, :blocks]
    )
    stored = [
        place.store(_narrow(codes, bits), "codes"),
        place.store(scales.reshape(channels, blocks), "scales"),
        place.store(_narrow(zeros, bits), "zeros"),
    ]
    weight = place.add("DequantizeLinear", stored, axis=1, block_size=block)
    result = place.add("MatMul", [place.input(0), place.add("Transpose", [weight], perm=[1, 0])])
    if place.input(5) is not None:
        result = place.add("Add", [result, place.input(5)])
    place.finish(result, None)


def _unpacked(packed: Array, bits: int) -> Array:
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def _narrow(codes: Array, bits: int) -> Array:
    return codes.astype(ml_dtypes.uint4) if bits == 4 else codes


# ---- rows of a table


def _table(place: Rewrite) -> None:
    """Mul(Cast(Gather(codes, rows)), Gather(scales, rows)): rows of a table, each with a scale of its own."""
    makers = [None if each is None else each.producer() for each in (place.input(0), place.input(1))]
    if makers[0] is not None and makers[0].op_type != "Cast":
        makers.reverse()
    rows, other = makers
    if rows is None or other is None or rows.op_type != "Cast":
        return
    while rows is not None and rows.op_type == "Cast":
        rows = None if rows.inputs[0] is None else rows.inputs[0].producer()
    if rows is None or rows.op_type != "Gather" or other.op_type != "Gather":
        return
    if rows.inputs[1] is not other.inputs[1] or any(
        each.attributes.get_int("axis", 0) for each in (rows, other)
    ):
        return
    stored = _plain_codes(rows.inputs[0])
    codes, scales = (constant_tensor(each) for each in (stored, other.inputs[0]))
    if codes is None or scales is None or codes.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return
    steps = scales.numpy()
    if steps.size != len(codes.numpy()):
        return
    scale = place.store(steps.reshape(-1).astype(np.float32), "rows.scale")
    table = place.add("DequantizeLinear", [stored, scale], axis=0)
    place.finish(place.add("Gather", [table, rows.inputs[1]], axis=0), None)


def _plain_codes(value: ir.Value | None) -> ir.Value | None:
    """Return the integers of a table that is stored as them, or as what they are de-quantized to with a scale of 1."""
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return value
    numbers = [constant_tensor(each) for each in maker.inputs[1:]]
    is_plain = all(
        each is not None and bool((each.numpy() == wanted).all())
        for each, wanted in zip(numbers, (1, 0), strict=False)
    )
    return maker.inputs[0] if is_plain else None


# ---- integers that are only moved


def _is_move(node: ir.Node) -> bool:
    """Return whether a node gives some of the numbers that it reads, unchanged."""
    if node.op_type == "Resize" and not node.domain:
        return node.attributes.get_string("mode", "nearest") == "nearest"
    return node.op_type in _MOVES and not node.domain and len(node.outputs) == 1


def _move_dequantization(graph: ir.Graph) -> None:
    """Put each DequantizeLinear before the nodes that only move the integers which it reads."""
    for node in reversed(list(graph)):
        if node.op_type != "DequantizeLinear" or node.graph is not graph:
            continue
        while (value := node.inputs[0]) is not None and (mover := value.producer()) is not None:
            scale = node.inputs[1]
            is_uniform = scale is not None and scale.const_value is not None and scale.const_value.size == 1
            if not (is_uniform and _is_move(mover)):
                break
            moved = ir.node("DequantizeLinear", [mover.inputs[0], *node.inputs[1:]])
            after = ir.node(mover.op_type, [moved.outputs[0], *mover.inputs[1:]], dict(mover.attributes))
            moved.name = moved.outputs[0].name = f"{node.outputs[0].name}/before"
            after.name, name = mover.name, node.outputs[0].name
            for each in (moved, after):
                each.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
            graph.insert_before(node, [moved, after])
            old = node.outputs[0]
            old.name, after.outputs[0].name = f"{name}/replaced", name
            after.outputs[0].shape = old.shape
            old.replace_all_uses_with(after.outputs[0], replace_graph_outputs=True)
            node = moved


_RULES: Mapping[str, Callable[[Rewrite], None]] = {
    **FUSIONS,
    "QLinearConv": _conv,
    "QLinearMatMul": _matrix_product,
    "QGemm": _gemm,
    "Gemm": _gemm_of_two_results,
    "Cast": _cast_to_floats,
    "QLinearAdd": _of_two("Add"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearLeakyRelu": _of_one("LeakyRelu"),
    "QLinearSoftmax": _of_one("Softmax", "opset"),
    "QLinearAveragePool": _of_one("AveragePool"),
    "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
    "QLinearConcat": _concat,
    "MatMulInteger": _integer_product,
    "ConvInteger": _integer_product,
    "MatMulNBits": _block_product,
    "Mul": _table,
}
