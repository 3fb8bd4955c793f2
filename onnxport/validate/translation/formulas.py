"""Operators that are written in two ways, in one: a norm as its parts, a square as a product, a quotient as a product.

    Given   LayerNormalization(x) and its like         Result  (x - mean) / deviation * scale + bias (norms.py)
    Given   Pow(x, 2)                          Result  x * x
    Given   Div(x, y)                          Result  x * Reciprocal(y)
    Given   Gelu(x)                            Result  x * (1 + erf(x / sqrt(2))) / 2
    Given   Sum(x, y, z)                       Result  x + y + z
    Given   Tile(x) of axes of one element     Result  Expand(x)
    Given   Where(x < 0, x * slope, x)         Result  PRelu(x, slope)
    Given   Conv(x), auto_pad of SAME_UPPER    Result  Conv(x), pads of the sizes that it has
    Given   a quotient of polynomials of x             Result  Erf(x) (approximations.py)
    Given   Gather(x, i < 0 ? i + size : i)    Result  Gather(x, i)
    Given   DepthToSpace(x), mode CRD          Result  DepthToSpace(channels of x in another order), mode DCR
    Given   Einsum(x, y)                       Result  MatMul(x, y) with other axes (contractions.py)
    Given   ArrayFeatureExtractor(table, index)        Result  Gather(table, index) (labels.py)
    Given   LinearClassifier(x), Normalizer(x)         Result  x W + b, its label and softmax (classifiers.py)
    Given   the first place of the largest element     Result  ArgMax(x) (labels.py)
    Given   LSTM(x), GRU(x)                    Result  their steps (recurrences.py)

All by the definitions of these operators (ONNX Gelu-20, PRelu-16, Conv-11, Gather-13,
DepthToSpace-13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.approximations import erf_operand
from onnxport.validate.translation.classifiers import (
    rewrite_linear_classifier,
    rewrite_log_sum_exp,
    rewrite_normalizer,
)
from onnxport.validate.translation.constants import Constants, find_constants
from onnxport.validate.translation.contractions import rewrite_einsum
from onnxport.validate.translation.labels import DOMAIN as MACHINE_LEARNING
from onnxport.validate.translation.labels import rewrite_extractor, rewrite_index_of_extreme
from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.norms import (
    rewrite_group_normalization,
    rewrite_instance_normalization,
    rewrite_layer_normalization,
)
from onnxport.validate.translation.place import Place, before_casts
from onnxport.validate.translation.recurrences import rewrite_recurrence


def rewrite_formulas(graph: ir.Graph, opset: int) -> None:
    """Rewrite a graph in place."""
    constants, known = Constants(opset), find_constants(graph)
    for node in list(graph):
        rule = _RULES.get(node.op_type)
        if (
            rule is not None
            and node.domain in ("", "ai.onnx", MACHINE_LEARNING)
            and node.outputs[0] not in known
        ):
            rule(Place(graph, node, constants, opset, known))


def _power(place: Place) -> None:
    if place.constant(place.input(1)) == 2:
        place.finish(place.add("Mul", [place.input(0), place.input(0)]))


def _quotient(place: Place) -> None:
    operand = erf_operand(place.node.outputs[0], place.constant)
    if operand is not None:
        place.finish(place.add("Erf", [operand]))
        return
    result, divisor = place.node.outputs[0], place.input(1)
    dtypes = [None if each is None else each.dtype for each in (result, divisor)]
    if all(each in (None, ir.DataType.FLOAT) for each in dtypes) and not place.is_constant(divisor):
        place.finish(place.add("Mul", [place.input(0), place.add("Reciprocal", [divisor])]))


def _clip(place: Place) -> None:
    """Bounds that an error function does not reach."""
    value = place.input(0)
    maker = None if value is None else value.producer()
    low, high = (place.constant(place.input(each)) for each in (1, 2))
    is_idle = low is not None and high is not None and low <= -1 and high >= 1
    if is_idle and maker is not None and maker.op_type == "Erf":
        place.finish(place.add("Identity", [value]))


def _gelu(place: Place) -> None:
    if place.node.attributes.get_string("approximate", "none") != "none":
        return
    inner = place.add("Erf", [place.add("Mul", [place.input(0), place.number(0.5**0.5)])])
    gate = place.add("Mul", [place.add("Add", [inner, place.number(1.0)]), place.number(0.5)])
    place.finish(place.add("Mul", [place.input(0), gate]))


def _gather(place: Place) -> None:
    """Take away what ONNX's Gather does itself."""
    index, data = place.input(1), place.input(0)
    axis = place.node.attributes.get_int("axis", 0)
    maker = None if index is None else index.producer()
    if maker is None or maker.op_type != "Where" or data is None or data.shape is None:
        return
    less, wrapped = (None if each is None else each.producer() for each in maker.inputs[:2])
    given = maker.inputs[2]
    if less is None or wrapped is None or (less.op_type, wrapped.op_type) != ("Less", "Add"):
        return
    size = data.shape[axis]
    if less.inputs[0] is not given or wrapped.inputs[0] is not given:
        return
    numbers = [place.constant(each.inputs[1]) for each in (less, wrapped)]
    if isinstance(size, int) and numbers == [0, size]:
        place.node.replace_input_with(1, given)


def _tile(place: Place) -> None:
    """Repetitions of single elements, as Expand has them."""
    data, shape = place.input(0), static_sizes(place.node.outputs[0])
    sizes = None if data is None else static_sizes(data)
    if (
        shape is None
        or sizes is None
        or any(size not in (1, wide) for size, wide in zip(sizes, shape, strict=True))
    ):
        return
    place.finish(place.add("Expand", [data, place.integers(shape)]))


def _sum(place: Place) -> None:
    first, *others = place.node.inputs
    for each in others:
        first = place.add("Add", [first, each])
    if others and first is not None:
        place.finish(first)


def _where(place: Place) -> None:
    condition, below, above = (before_casts(place.input(each)) for each in range(3))
    less, product = (None if each is None else each.producer() for each in (condition, below))
    if above is None or less is None or product is None or (less.op_type, product.op_type) != ("Less", "Mul"):
        return
    read, factors = before_casts(less.inputs[0]), [before_casts(each) for each in product.inputs]
    if read is not above or place.constant(less.inputs[1]) != 0 or above not in factors:
        return
    slope = next((each for each in product.inputs if before_casts(each) is not above), None)
    if place.is_constant(slope):
        place.finish(place.add("PRelu", [place.input(2), slope]))


def _padding(place: Place) -> None:
    """The odd pixel lies behind the data, or in front of it (SAME_LOWER)."""
    node, attributes = place.node, place.node.attributes
    mode = attributes.get_string("auto_pad", "NOTSET")
    shapes = [None if each is None else static_sizes(each) for each in (*node.inputs[:2], node.outputs[0])]
    if mode not in ("SAME_UPPER", "SAME_LOWER") or shapes[0] is None or shapes[-1] is None:
        return
    kernel = attributes.get_ints("kernel_shape", None) or (shapes[1] or ())[2:]
    axes = len(shapes[0]) - 2
    if len(kernel) != axes:
        return
    strides, dilations = (attributes.get_ints(each, (1,) * axes) for each in ("strides", "dilations"))
    whole = [
        max((after - 1) * stride + (size - 1) * dilation + 1 - before, 0)
        for before, after, size, stride, dilation in zip(
            shapes[0][2:], shapes[-1][2:], kernel, strides, dilations, strict=True
        )
    ]
    less, more = [each // 2 for each in whole], [each - each // 2 for each in whole]
    del attributes["auto_pad"]
    attributes["pads"] = ir.AttrInt64s("pads", less + more if mode == "SAME_UPPER" else more + less)


def _concatenated_zeros(place: Place) -> None:
    """A value between zeros is one that is padded; between nothing it is itself."""
    node = place.node
    data = [each for each in node.inputs if not place.is_zero(each)]
    shapes = [None if each is None else static_sizes(each) for each in node.inputs]
    if len(data) != 1 or place.is_constant(data[0]) or None in shapes:
        return
    rank, axis, at = len(shapes[0] or ()), node.attributes.get_int("axis", 0), node.inputs.index(data[0])
    lengths = [(shape or ())[axis] for shape in shapes]
    pads = np.zeros((2, rank), np.int64)
    pads[:, axis] = sum(lengths[:at]), sum(lengths[at + 1 :])
    if not pads.any():
        place.finish(place.add("Identity", [data[0]]))
        return
    place.finish(place.add("Pad", [data[0], place.store(pads.reshape(-1))]))


def _blocks(place: Place) -> None:
    """Channels that are counted before blocks, as channels that are counted behind them."""
    attributes, data = place.node.attributes, place.input(0)
    shape = None if data is None else static_sizes(data)
    if attributes.get_string("mode", "DCR") != "CRD" or shape is None:
        return
    size = attributes.get_int("blocksize", 1)
    order = np.arange(shape[1]).reshape(-1, size, size).transpose(1, 2, 0).reshape(-1)
    moved = place.add("Gather", [data, place.store(order.astype(np.int64))], axis=1)
    place.finish(place.add("DepthToSpace", [moved], blocksize=size, mode="DCR"))


_RULES: Mapping[str, Callable[[Place], None]] = {
    "LayerNormalization": rewrite_layer_normalization,
    "InstanceNormalization": rewrite_instance_normalization,
    "GroupNormalization": rewrite_group_normalization,
    "Pow": _power,
    "Div": _quotient,
    "Clip": _clip,
    "Gelu": _gelu,
    "Gather": _gather,
    **dict.fromkeys(("ReduceMin", "ReduceMax"), rewrite_index_of_extreme),
    "ArrayFeatureExtractor": rewrite_extractor,
    "LinearClassifier": rewrite_linear_classifier,
    "Normalizer": rewrite_normalizer,
    "ReduceLogSumExp": rewrite_log_sum_exp,
    "Sum": _sum,
    "Tile": _tile,
    "Where": _where,
    "DepthToSpace": _blocks,
    "Concat": _concatenated_zeros,
    "Einsum": rewrite_einsum,
    **dict.fromkeys(("LSTM", "GRU"), rewrite_recurrence),
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool"), _padding),
}
