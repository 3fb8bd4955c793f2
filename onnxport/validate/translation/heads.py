"""Normal forms of a graph's values, in which folding, fusion and quantization no longer show.

A value is a core and what follows it element by element:

    value = clamp(scale * core + shift, low, high)

Identity, Cast between floats, Relu, Clip, HardSigmoid, BatchNormalization and arithmetic with constants are part of the
right-hand side, and so is a pair of QuantizeLinear and DequantizeLinear: it divides and multiplies by its scale, and
clips at the ends of its grid. The core is an operator with operands. Of a product with a constant weight (Conv,
ConvTranspose, Gemm, MatMul) scale and shift are folded into weight and bias, whatever shares them out in the file:

    scale * (W x + b) + shift = (scale W) x + (scale b + shift)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.samples.domain import without_functions
from onnxport.validate.translation.constants import Constants, broadcast_along
from onnxport.validate.translation.expansion import expand
from onnxport.validate.translation.forms import Core, Grid, Head
from onnxport.validate.translation.formulas import rewrite_formulas
from onnxport.validate.translation.labels import is_exact_cast
from onnxport.validate.translation.layouts.rules import normalize_layouts
from onnxport.validate.translation.layouts.sizes import fix_sizes, known_sizes
from onnxport.validate.translation.layouts.views import Axes, Shape
from onnxport.validate.translation.old_opsets import without_old_operators
from onnxport.validate.translation.operators import Operand, normalize
from onnxport.validate.translation.rounding_bounds import NOTHING, ONE, Rounded

_FLOAT_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# Product -> the axis of its result's channels.
PRODUCTS: Mapping[str, int] = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}


# The domain of functions that stand for a part of another form (tflite/stand_ins.py): they are nodes of their own.
PARTS = "part"


class Graph:
    """A model whose values have normal forms.

    Args:
        model: is not changed.
        sizes: of the inputs; then the order of axes shows no more (layouts.py).
        rounding: the float type of 16 bits that an artefact may round each constant to; empty for none.

    Attributes:
        layouts: name of a value to the sizes of its base, and its axes there.
        shapes: name of a value to its own sizes in the model; only with `sizes`.
    """

    def __init__(
        self, model: Model, sizes: Mapping[str, Sequence[int]] | None = None, rounding: str = ""
    ) -> None:
        self.rounding = rounding
        copy = without_old_operators(without_functions(model, keep=PARTS)).clone()
        expand(copy.graph)
        common.RemoveUnusedNodesPass()(copy.ir)
        self.layouts: Mapping[str, tuple[Shape, Axes]] = {}
        self.shapes: Mapping[str, Shape] = {}
        if sizes is None:
            common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(copy.ir)
        else:
            fix_sizes(copy.ir, copy.opset, sizes)
            self.shapes = known_sizes(copy.graph)
            rewrite_formulas(copy.graph, copy.opset)
            fix_sizes(copy.ir, copy.opset, sizes)
            self.layouts = normalize_layouts(copy.graph, copy.opset)
            common.RemoveUnusedNodesPass()(copy.ir)
        self.model = copy
        self.constants = Constants(copy.opset, rounding)
        self._heads: dict[ir.Value, Head] = {}

    @property
    def outputs(self) -> dict[str, ir.Value]:
        return {value.name or "": value for value in self.model.graph.outputs}

    def head(self, value: ir.Value, multiple: float = 1.0) -> Head:
        """Return the normal form of `value`, or of `multiple` times it."""
        found = self._heads.get(value)
        if found is None:
            found = self._heads[value] = self._fold(self._chain(value))
        return found if multiple == 1.0 else self._fold(found.stretched(Rounded.number(multiple)))

    def unfolded(self, value: ir.Value) -> Head:
        """Return the normal form with scale and shift left out of a product's weight and bias."""
        return self._chain(value, uses_known=False)

    def relative(self, value: ir.Value, origin: ir.Value) -> Head | None:
        """Return `value` as a function of `origin`, element by element; None where it is none."""
        head = self._chain(value, origin)
        return head if head.core.op == "Origin" else None

    def setting(self, number: float) -> Rounded:
        """Return an attribute's number, which an artefact may hold as a constant."""
        found = Rounded.number(number)
        return found.spread(self.rounding) if self.rounding and number != 1.0 else found

    def source(self, value: ir.Value) -> ir.Value:
        """Return the value before pairs of QuantizeLinear and DequantizeLinear, and before identities."""
        while (node := value.producer()) is not None:
            if node.op_type not in _TRANSPARENT or node.domain:
                break
            if node.inputs[0] is None or self.constants.get(value) is not None:
                break
            value = node.inputs[0]
        return value

    # ---- chains of element-wise functions

    def _chain(self, value: ir.Value, origin: ir.Value | None = None, *, uses_known: bool = True) -> Head:
        """Walk from `value` up to its core, and apply what lies between in order."""
        steps: list[Callable[[Head], Head]] = []
        stop = None if origin is None else self.source(origin)
        while True:
            if stop is not None and self.source(value) is stop:
                head = Head(Core(stop, "Origin", {}), rank=_rank(stop))
                break
            node = value.producer()
            known = self._heads.get(value) if origin is None and uses_known else None
            if known is not None:
                head = known
                break
            step = None if node is None or self.constants.get(value) is not None else self._step(node, value)
            if step is None:
                head = self._core(value)
                break
            value, function = step
            steps.append(function)
        for function in reversed(steps):
            head = function(head)
        return head

    def _step(self, node: ir.Node, value: ir.Value) -> tuple[ir.Value, Callable[[Head], Head]] | None:
        """Return the operand of an element-wise function of one operand, and the function; None for other nodes."""
        read = _STEPS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if read is None or value is not node.outputs[0]:
            return None
        if value.dtype not in (*_FLOAT_TYPES, None, *_CODES) and node.op_type not in _OF_ANY_TYPE:
            return None
        return read(self, node)

    # ---- cores

    def _core(self, value: ir.Value) -> Head:
        constant = self.constants.get(value)
        if constant is not None:
            return Head(Core(value, "Constant", {}, (constant,)), rank=constant.values.ndim)
        node = value.producer()
        if node is None:
            return Head(Core(value, "Input", {"name": value.name}), rank=_rank(value))
        product = self._product(node, value) if node.op_type in PRODUCTS and not node.domain else None
        if product is not None:
            return Head(product, rank=_rank_of_product(product, value))
        op, attributes, operands = self._generic(node, value)
        return Head(Core(value, op, attributes, operands), rank=_rank(value))

    def _product(self, node: ir.Node, value: ir.Value) -> Core | None:
        """Return a product of one computed operand and a constant weight."""
        data, weight = node.inputs[0], self.constants.get(node.inputs[1])
        if data is None or weight is None or not weight.is_float or self.constants.get(data) is not None:
            return None
        given = self.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        if len(node.inputs) > 2 and node.inputs[2] is not None and given is None:
            return None
        if node.op_type in ("Gemm", "MatMul"):
            return self._matrix_product(node, value, data, weight, given)
        groups = node.attributes.get_int("group", 1)
        channels = weight.values.shape[0 if node.op_type == "Conv" else 1]
        if node.op_type == "ConvTranspose":
            channels *= groups
        bias = Rounded(np.zeros(channels)) if given is None else given
        attributes = _window_attributes(node, weight.values.ndim - 2) | {"group": groups}
        return Core(value, node.op_type, attributes, (data,), weight, bias)

    def _matrix_product(
        self, node: ir.Node, value: ir.Value, data: ir.Value, weight: Rounded, given: Rounded | None
    ) -> Core | None:
        """Return x W + b of a Gemm or MatMul, with alpha, beta and transB folded; None for stacks of weights."""
        attributes = node.attributes
        if weight.values.ndim != 2 or _is_set(node, "transA"):
            return None
        if node.op_type == "Gemm":
            if _is_set(node, "transB"):
                weight = weight.moved(np.transpose)
            weight = weight.times(self.setting(attributes.get_float("alpha", 1.0)))
        channels = weight.values.shape[1]
        bias = Rounded(np.zeros(channels))
        if given is not None:
            if given.values.size not in (1, channels):
                return None
            flat = given.moved(lambda values: np.broadcast_to(values.reshape(-1), (channels,)))
            bias = flat.times(self.setting(attributes.get_float("beta", 1.0)))
        return Core(value, "MatMul", {}, (data,), weight, bias)

    def _generic(self, node: ir.Node, value: ir.Value) -> tuple[str, Mapping[str, Any], tuple[Operand, ...]]:
        operands = tuple(self._operand(each) for each in node.inputs)
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        return normalize(name, node, operands, value, self.model.opset)

    def _operand(self, value: ir.Value | None) -> Operand:
        constant = self.constants.get(value)
        return value if constant is None else constant

    def _fold(self, head: Head) -> Head:
        """Fold scale and shift into a product's weight and bias."""
        core = head.core
        if core.weight is None or core.bias is None or (head.scale is ONE and head.shift is NOTHING):
            return head
        rank = head.rank or max(head.scale.values.ndim, head.shift.values.ndim, 1)
        axis = PRODUCTS[core.op] % rank
        channels = len(core.bias.values)
        scale, shift = (_by_channel(each, axis, rank, channels) for each in (head.scale, head.shift))
        if scale is None or shift is None:
            return _unfold(head, channels, rank - 1 - axis)
        weight = _times_channels(core, scale)
        if weight is None:
            return head
        folded = replace(core, weight=weight, bias=core.bias.times(scale).plus(shift))
        return replace(head, core=folded, scale=ONE, shift=NOTHING)


def _unfold(head: Head, channels: int, axes_behind: int) -> Head:
    """Add a product's bias to a shift that varies within channels: an artefact stores the sum of the two."""
    bias = head.core.bias
    if bias is None or head.shift is NOTHING or not bias.values.any():
        return head
    spread = bias.moved(lambda values: values.reshape(channels, *[1] * axes_behind))
    core = replace(head.core, bias=Rounded.exact(np.zeros(channels, np.float32)))
    return replace(head, core=core, shift=spread.times(head.scale).plus(head.shift))


# An end of a Slice behind every last element: exporters write this or the largest int64.
_BEYOND = 2**31 - 1
# Share of a deviation that rounding its variance may be off by.
_MOST_OF_VARIANCE = 2.0**-7
# They are the same for integers.
_OF_ANY_TYPE = frozenset("Identity Cast Reshape Flatten Squeeze Unsqueeze Slice".split())
_TRANSPARENT = frozenset({"Identity", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_CODES = (
    *(ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16),
    *(ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2, ir.DataType.INT32),
)


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _rank_of_product(core: Core, value: ir.Value) -> int | None:
    return core.weight.values.ndim if core.op.startswith("Conv") and core.weight is not None else _rank(value)


def _by_channel(constant: Rounded, axis: int, rank: int, channels: int) -> Rounded | None:
    """Return a constant as [channels]; None where it varies along other axes."""
    shape = constant.values.shape
    if len(shape) > rank:
        return None
    full = (1,) * (rank - len(shape)) + shape
    if any(size != 1 for place, size in enumerate(full) if place != axis):
        return None
    if full[axis] not in (1, channels):
        return None
    return constant.moved(lambda values: np.broadcast_to(values.reshape(-1), (channels,)))


def _times_channels(core: Core, scale: Rounded) -> Rounded | None:
    """Return a product's weight with its output channels stretched."""
    assert core.weight is not None
    weight = core.weight
    if core.op == "Conv":
        return weight.times(scale.moved(lambda each: each.reshape((-1,) + (1,) * (weight.values.ndim - 1))))
    if core.op == "ConvTranspose":
        if core.attributes["group"] != 1:
            return None if not (scale.values == scale.values[0]).all() else weight.times(_first(scale))
        return weight.times(scale.moved(lambda each: each.reshape((1, -1) + (1,) * (weight.values.ndim - 2))))
    return weight.times(scale)


def _is_set(node: ir.Node, attribute: str) -> bool:
    return bool(node.attributes.get_int(attribute, 0))


def _first(constant: Rounded) -> Rounded:
    return constant.moved(lambda values: values.reshape(-1)[:1].reshape(()))


def _window_attributes(node: ir.Node, axes: int) -> dict[str, Any]:
    """Return the attributes of a convolution, with ONNX's defaults."""
    attributes = node.attributes
    padding = attributes.get_string("auto_pad", "NOTSET")
    found: dict[str, Any] = {
        "strides": tuple(attributes.get_ints("strides", (1,) * axes)),
        "dilations": tuple(attributes.get_ints("dilations", (1,) * axes)),
        "auto_pad": "NOTSET" if padding == "VALID" else padding,
        "pads": tuple(attributes.get_ints("pads", (0,) * 2 * axes)),
    }
    if node.op_type == "ConvTranspose":
        found["output_padding"] = tuple(attributes.get_ints("output_padding", (0,) * axes))
        found["output_shape"] = tuple(attributes.get_ints("output_shape", ()))
    return found


# ---- element-wise functions of one operand

_Step = tuple[ir.Value, Callable[[Head], Head]]


def _only(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _identity(graph: Graph, node: ir.Node) -> _Step | None:
    return _only(node), lambda head: head


def _same_shape(graph: Graph, node: ir.Node) -> _Step | None:
    """Reshape and its like to the shape that there is: all sizes but one are known and equal, so that one is, too."""
    before, after = _only(node).shape, node.outputs[0].shape
    if before is None or after is None or len(before) != len(after):
        return None
    known = [ours for ours, theirs in zip(before, after, strict=True) if ours == theirs]
    return _identity(graph, node) if len(known) >= len(before) - 1 and _are_known(known) else None


def _are_known(dims: Sequence[Any]) -> bool:
    """Return whether no size is a dimension without a name, which equals nothing."""
    return all(isinstance(each, int) or each.value is not None for each in dims)


def _dropout(graph: Graph, node: ir.Node) -> _Step | None:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None and graph.constants.number(training) != 0:
        return None
    return _identity(graph, node)


def _whole_slice(graph: Graph, node: ir.Node) -> _Step | None:
    """Slice that leaves nothing out."""
    numbers = [graph.constants.get(each) for each in node.inputs[1:]]
    if len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
        return None
    starts, ends = numbers[0].values, numbers[1].values
    steps = numbers[3].values if len(numbers) > 3 and numbers[3] is not None else np.ones(1)
    is_whole = not starts.any() and (ends >= _BEYOND).all() and (steps == 1).all()
    return _identity(graph, node) if is_whole else None


def _cast(graph: Graph, node: ir.Node) -> _Step | None:
    source, target = _only(node), ir.DataType(node.attributes.get_int("to", 1))
    if source.dtype == target or is_exact_cast(graph.constants, source, target):
        return _identity(graph, node)
    if source.dtype not in _FLOAT_TYPES or target not in _FLOAT_TYPES:
        return None
    if target in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        return source, lambda head: replace(head, casts=(*head.casts, target.name.lower()))
    return _identity(graph, node)


def _unless_nan(graph: Graph, node: ir.Node) -> _Step | None:
    """Where(IsNaN(x), other, x): x for every number."""
    condition, _, value = node.inputs
    test = None if condition is None else condition.producer()
    if value is None or test is None or test.op_type != "IsNaN" or test.inputs[0] is not value:
        return None
    return value, lambda head: head


def _relu(graph: Graph, node: ir.Node) -> _Step | None:
    return _only(node), lambda head: head.clamped(0.0, np.inf)


def _clip(graph: Graph, node: ir.Node) -> _Step | None:
    low, high = node.attributes.get_float("min", -np.inf), node.attributes.get_float("max", np.inf)
    bounds = [low, high]
    for place in (1, 2):
        if place < len(node.inputs) and node.inputs[place] is not None:
            number = graph.constants.number(node.inputs[place])
            if number is None:
                return None
            bounds[place - 1] = number
    return _only(node), lambda head: head.clamped(bounds[0], bounds[1])


def _hard_sigmoid(graph: Graph, node: ir.Node) -> _Step | None:
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    factor, offset = (graph.setting(each) for each in (alpha, beta))
    return _only(node), lambda head: head.stretched(factor, offset).clamped(0.0, 1.0)


def _negative(graph: Graph, node: ir.Node) -> _Step | None:
    return _only(node), lambda head: head.stretched(Rounded.number(-1))


def _arithmetic(graph: Graph, node: ir.Node) -> _Step | None:
    """Add, Sub, Mul and Div with a constant."""
    first, second = node.inputs
    assert first is not None
    assert second is not None
    ours, theirs = graph.constants.get(first), graph.constants.get(second)
    constant, data, is_first = (ours, second, True) if theirs is None else (theirs, first, False)
    if constant is None or not constant.is_float or not _broadcasts(graph, constant, data):
        return None
    minus = Rounded.number(-1)
    if node.op_type == "Add":
        return data, lambda head: head.stretched(ONE, constant)
    if node.op_type == "Mul":
        return data, lambda head: head.stretched(constant)
    if node.op_type == "Sub":
        if is_first:
            return data, lambda head: head.stretched(minus, constant)
        return data, lambda head: head.stretched(ONE, constant.times(minus))
    if is_first or not constant.values.all():
        return None
    return data, lambda head: head.stretched(constant.inverse())


def _channels_behind(graph: Graph, data: ir.Value) -> int:
    """Return the size of the last axis of a value of unknown shape, if a matrix product makes it; else 1."""
    core = graph.head(data).core
    return len(core.bias.values) if core.op == "MatMul" and core.bias is not None else 1


def _broadcasts(graph: Graph, constant: Rounded, data: ir.Value) -> bool:
    """Return whether arithmetic with `constant` keeps the shape of `data`."""
    if constant.is_scalar and constant.values.ndim == 0:
        return True
    if data.shape is None:
        return constant.values.size in (1, _channels_behind(graph, data)) and constant.values.ndim <= 1
    if constant.values.ndim > len(data.shape):
        return False
    paired = zip(constant.values.shape[::-1], tuple(data.shape)[::-1], strict=False)
    return all(size == 1 or size == dim for size, dim in paired)


def _batch_normalization(graph: Graph, node: ir.Node) -> _Step | None:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias (ONNX BatchNormalization-15)."""
    operands = [graph.constants.get(each) for each in node.inputs[1:5]]
    data = _only(node)
    if any(each is None for each in operands) or _is_set(node, "training_mode"):
        return None
    rank = _rank(data)
    producer = data.producer()
    if rank is None and producer is not None and producer.op_type.startswith("Conv"):
        weight = graph.constants.get(producer.inputs[1])
        rank = None if weight is None else weight.values.ndim
    if rank is None or rank < 2:
        return None
    scale, bias, mean, variance = (each for each in operands if each is not None)
    radicand = variance.values + node.attributes.get_float("epsilon", 1e-5)
    deviation = np.sqrt(radicand)
    # Float16 has no numbers near the smallest variances: no right file rounds these.
    share = np.minimum(variance.half / radicand / 2, _MOST_OF_VARIANCE)
    factor = scale.times(Rounded(1 / deviation, share / deviation))
    offset = bias.plus(mean.times(factor).times(Rounded.number(-1)))
    shape = (-1,) + (1,) * (rank - 2)
    stretch, shift = (each.moved(lambda values: values.reshape(shape)) for each in (factor, offset))
    return data, lambda head: head.stretched(stretch, shift)


def _quantize(graph: Graph, node: ir.Node) -> _Step | None:
    """x / scale + zero point, clipped to the integers' range (ONNX QuantizeLinear-13)."""
    found = _grid_numbers(graph, node)
    dtype = node.outputs[0].dtype
    if found is None or dtype is None or not (found[0] > 0).all():
        return None
    scale, zero = found
    if dtype not in _CODES:
        return None
    bits = dtype.bitwidth
    limits = (0, 2**bits - 1) if dtype.name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    codes = node.outputs[0]
    factor, offset = Rounded(1 / scale), Rounded(zero)

    def apply(head: Head) -> Head:
        ends = [np.asarray(scale * (limit - zero)) for limit in limits]
        grid = Grid(codes, scale, zero, limits, ends[0], ends[1], scale, *_PLAIN)
        return replace(head, grids=(*head.grids, grid)).stretched(factor, offset)

    return _only(node), apply


_PLAIN = (np.asarray(1.0), np.asarray(0.0))


def _dequantize(graph: Graph, node: ir.Node) -> _Step | None:
    maker = _only(node).producer()
    if maker is not None and maker.op_type == "DynamicQuantizeLinear" and _undoes(node, maker):
        return _only(maker), lambda head: head
    found = _grid_numbers(graph, node)
    if found is None:
        return None
    scale, zero = found
    factor, offset = Rounded(scale), Rounded(-scale * zero)
    return _only(node), lambda head: head.stretched(factor, offset)


def _undoes(node: ir.Node, maker: ir.Node) -> bool:
    """Return whether a DequantizeLinear has all that a DynamicQuantizeLinear gives."""
    return len(node.inputs) == 3 and all(
        ours is theirs for ours, theirs in zip(node.inputs, maker.outputs, strict=True)
    )


def _grid_numbers(graph: Graph, node: ir.Node) -> tuple[Array, Array] | None:
    """Return scale and zero point of a QuantizeLinear or DequantizeLinear, so that they broadcast with what it reads.

    None where they are computed, or lie in blocks.
    """
    scale = graph.constants.get(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    zero = Rounded(np.zeros(())) if given is None else graph.constants.get(given)
    if scale is None or zero is None or _is_set(node, "block_size"):
        return None
    numbers = scale.values, zero.values.astype(np.float64)
    if scale.is_scalar:
        return numbers[0].reshape(()), numbers[1].reshape(-1)[:1].reshape(())
    rank = _rank(_only(node)) or _rank(node.outputs[0])
    if rank is None:
        return None
    axis = node.attributes.get_int("axis", 1)
    return broadcast_along(numbers[0], axis, rank), broadcast_along(numbers[1], axis, rank)


def _leaky_relu(graph: Graph, node: ir.Node) -> _Step | None:
    """Of slope 1 it does nothing, of slope 0 it is a Relu."""
    alpha = node.attributes.get_float("alpha", 0.01)
    if alpha not in (0.0, 1.0):
        return None
    return _identity(graph, node) if alpha else _relu(graph, node)


def _bound(graph: Graph, node: ir.Node) -> _Step | None:
    """Max and Min with a number."""
    if len(node.inputs) != 2:
        return None
    for data, other in (node.inputs, node.inputs[::-1]):
        number = graph.constants.number(other)
        if number is not None and data is not None and graph.constants.get(data) is None:
            low, high = (number, np.inf) if node.op_type == "Max" else (-np.inf, number)
            return data, partial(Head.clamped, low=low, high=high)
    return None


_STEPS: Mapping[str, Callable[[Graph, ir.Node], _Step | None]] = {
    "Identity": _identity,
    "Dropout": _dropout,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _same_shape),
    "Slice": _whole_slice,
    "Cast": _cast,
    "Where": _unless_nan,
    "Relu": _relu,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    **dict.fromkeys(("Max", "Min"), _bound),
    "Neg": _negative,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "BatchNormalization": _batch_normalization,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
