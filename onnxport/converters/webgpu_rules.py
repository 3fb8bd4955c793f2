"""The operators for which ONNX Runtime's WebGPU provider has kernels at opset 21, and rewrites of the rest.

Measured with onnxruntime 1.31 and onnxruntime-ep-webgpu 0.4.0 on models of one node, its kernels for int64 switched on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.rewrites.registry import CannotRewrite, NotYet, Rewrite

NEWEST_OPSET = 21

TAKEN = frozenset(
    (
        "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip "
        "Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Elu "
        "Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool "
        "GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Identity If InstanceNormalization LSTM "
        "LayerNormalization LeakyRelu Less LessOrEqual Log MatMul Max MaxPool Min Mul Neg Not PRelu Pad Pow Range "
        "Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare Relu Reshape Resize ScatterElements ScatterND Shape Sigmoid Sin Sinh Slice "
        "Softmax Softplus Split Sqrt Squeeze Sub Tan Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Where"
    ).split()
)

# Taken of numbers, not of bool.
_NOT_OF_BOOL = (
    "Concat Equal GatherElements GatherND Pad Slice Split Squeeze Tile Transpose ScatterElements ScatterND"
).split()

# Added and taken away again, it leaves the nearest whole number of |x| < 2**22, and the even one of two.
_ROUNDING = np.float32(1.5 * 2**23)
# Larger numbers are whole.
_WHOLE = np.float32(2**23)
_STORED = (np.dtype(np.uint8), np.dtype(np.int8))


def _add_up(node: Rewrite) -> ir.Value:
    first, *others = (node.input(index) for index in range(len(node.node.inputs)))
    for each in others:
        first = node.op("Add", first, each)
    return first


def _sum(node: Rewrite) -> None:
    node.emit(_add_up(node))


def _mean(node: Rewrite) -> None:
    total = _add_up(node)
    count = len(node.node.inputs)
    node.emit(node.op("Mul", total, np.float32(1 / count)) if count > 1 else total)


def _or(node: Rewrite) -> None:
    neither = node.op("And", *(node.op("Not", node.input(index)) for index in (0, 1)))
    node.emit(node.op("Not", neither))


def _xor(node: Rewrite) -> None:
    sides = [node.cast(node.input(index), np.int32) for index in (0, 1)]
    node.emit(node.op("Not", node.op("Equal", *sides)))


def _is_nan(node: Rewrite) -> None:
    x = node.input(0)
    node.emit(node.op("Not", node.op("Equal", x, x)))


def _sign(node: Rewrite) -> None:
    x = node.input(0)
    one, zero = np.ones((), node.dtype(x)), np.zeros((), node.dtype(x))
    below = node.op("Where", node.op("Less", x, zero), -one, zero)
    node.emit(node.op("Where", node.op("Greater", x, zero), one, below))


def _round(node: Rewrite) -> None:
    """Round |x| to the nearest, of two to the even one, and give it the sign of x."""
    x = node.input(0)
    if node.dtype(x) != np.float32:
        node.unsupported("WebGPU's rounding is written for float32")
    size = node.op("Abs", x)
    whole = node.op("Sub", node.op("Add", size, _WHOLE), _WHOLE)
    signed = node.op("Where", node.op("Less", x, np.float32(0)), node.op("Neg", whole), whole)
    node.emit(node.op("Where", node.op("Less", size, _WHOLE), signed, x))


def _quantize(node: Rewrite) -> None:
    """Round to uint8 as ONNX does; no float32 is cast to int8 there. What `_dequantize` reads goes with it."""
    grid = _Grid.of(node.node)
    if grid is None or grid.dtype != np.uint8:
        node.unsupported("WebGPU quantizes to uint8, with a scale for all or for each channel")
    node.ignore(*node.node.attributes)  # `of` has read or refused them
    for index in range(1, len(node.node.inputs)):
        node.optional(index)
    whole = grid.round(node, node.input(0))
    node.emit(node.op("Cast", node.op("Add", whole, grid.offset), to=ir.DataType.UINT8))


def _dequantize(node: Rewrite) -> None:
    """Compute in float32 what 8 bits make of float32: ONNX Runtime would move a DequantizeLinear, and quantize anew."""
    source = node.input(0).producer()
    stored, read = None if source is None else _Grid.of(source), _Grid.of(node.node)
    if (
        source is None
        or source.op_type != "QuantizeLinear"
        or source.inputs[0] is None
        or stored is None
        or read is None
    ):
        node.unsupported("it reads no integers that a QuantizeLinear gives")
    node.ignore(*node.node.attributes)  # as in _quantize
    for index in range(1, len(node.node.inputs)):
        node.optional(index)
    whole = stored.round(node, source.inputs[0])
    moved = stored.offset - read.offset
    node.emit(node.op("Mul", node.op("Add", whole, moved) if moved.any() else whole, read.scale))


@dataclass(frozen=True)
class _Grid:
    """The numbers that a QuantizeLinear or DequantizeLinear gives; both arrays broadcast with its data."""

    scale: Array
    offset: Array  # the zero point in float32
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, node: ir.Node) -> _Grid | None:
        """Return None for blocks, other types than 8-bit integers of float32, and what is computed at run time."""
        data = node.inputs[0]
        constants = [each.const_value for each in node.inputs[1:] if each is not None]
        block: int = node.attributes.get_int("block_size", 0)
        if data is None or data.shape is None or block:
            return None
        if len(constants) != 2 or any(each is None for each in constants):
            return None
        scale, zero = (each.numpy() for each in constants if each is not None)
        if zero.dtype not in _STORED or scale.dtype != np.float32 or scale.ndim > 1:
            return None
        rank = len(data.shape)
        axis = node.attributes.get_int("axis", 1) % max(rank, 1)
        row = [-1 if place == axis else 1 for place in range(rank)] if scale.size > 1 else []
        return cls(scale.reshape(row), zero.astype(np.float32).reshape(row), zero.dtype)

    def round(self, node: Rewrite, x: ir.Value) -> ir.Value:
        """Emit the whole numbers of x / scale, of two the even one, before the offset is added."""
        limits = np.iinfo(self.dtype)
        above = node.op("Max", node.op("Div", x, self.scale), np.float32(limits.min) - self.offset)
        inside = node.op("Min", above, np.float32(limits.max) - self.offset)
        return node.op("Sub", node.op("Add", inside, _ROUNDING), _ROUNDING)


_RULES: Mapping[str, Callable[[Rewrite], None]] = {
    "DequantizeLinear": _dequantize,
    "IsNaN": _is_nan,
    "Mean": _mean,
    "Or": _or,
    "QuantizeLinear": _quantize,
    "Round": _round,
    "Sign": _sign,
    "Sum": _sum,
    "Xor": _xor,
}


def lacks(model: Model) -> bool:
    """Return whether nodes of `model` have no kernel there, as far as the tables say."""
    return model.opset > NEWEST_OPSET or any(map(_is_lacking, model.graph.all_nodes()))


def _is_lacking(node: ir.Node) -> bool:
    if node.domain == "com.microsoft":  # it has many of these
        return False
    return bool(node.domain) or node.op_type not in TAKEN or _moves_bool(node)


def _moves_bool(node: ir.Node) -> bool:
    first = node.inputs[0] if node.inputs else None
    return node.op_type in _NOT_OF_BOOL and first is not None and first.dtype == ir.DataType.BOOL


def rewrite(model: Model) -> int:
    """Rewrite the nodes that have a rule, in place; return how many. `model` has the opset 21 and all types."""
    changed = 0
    # From the end, since a DequantizeLinear looks at what made its integers.
    for node in reversed(list(model.graph.all_nodes())):
        if node.domain not in ("", "ai.onnx") or not _is_read(node):
            continue
        rule = _through_integers if _moves_bool(node) else _RULES.get(node.op_type)
        if rule is None:
            continue
        view = Rewrite(model, node)
        try:
            rule(view)
            view.check_consumed()
        except (CannotRewrite, NotYet):  # it stays, and is refused by name where it is asked
            continue
        view.replace()
        changed += 1
    if changed:
        common.RemoveUnusedNodesPass()(model.ir)
        shape_inference.infer(model)
    return changed


def _is_read(node: ir.Node) -> bool:
    return any(value.uses() or value.is_graph_output() for value in node.outputs)


def _through_integers(node: Rewrite) -> None:
    """Do with int32 what the node does with bool."""
    operands = node.inputs()
    for place, each in enumerate(operands):
        if each is not None and each.dtype == ir.DataType.BOOL:
            operands[place] = node.op("Cast", each, to=ir.DataType.INT32)
    attributes = {name: node.attribute(name) for name in node.node.attributes}
    count = len(node.node.outputs)
    made: Any = node.op(node.node.op_type, *operands, outputs=count, **attributes)
    results: list[ir.Value] = [made] if count == 1 else made
    for index, each in enumerate(results):
        is_bool = node.node.op_type == "Equal"
        node.emit(each if is_bool else node.op("Cast", each, to=ir.DataType.BOOL), index)
