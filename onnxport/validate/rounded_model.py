"""Add a lower precision's roundings to an ONNX model, which then runs in float32.

Weights are rounded where they are stored. If the artefact also computes in the precision, every input and every float
that a node computes goes through a Cast to it and back, so an overflow becomes an infinity as in the artefact. Sums
inside a node stay in float32, as in the kernels that we run. ONNX Runtime keeps such pairs of Casts at every
optimization level (tests/validate/test_rounding.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.samples.value_uses import CARRIERS
from onnxport.validate.report import Precision
from onnxport.validate.rounded_transforms import round_transforms

# The type to round to, and whether to round results as well as weights.
ROUNDINGS: dict[Precision, tuple[ir.DataType, bool]] = {
    "float16": (ir.DataType.FLOAT16, True),
    "bfloat16": (ir.DataType.BFLOAT16, True),
    "float16 weights": (ir.DataType.FLOAT16, False),
    "bfloat16 weights": (ir.DataType.BFLOAT16, False),
}
_NUMPY = {ir.DataType.FLOAT16: np.dtype(np.float16), ir.DataType.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
# Constants of fewer elements are settings and not dithered.
_WEIGHTS = 16
# The opset from which Cast knows the type.
_CASTABLE = {ir.DataType.FLOAT16: 6, ir.DataType.BFLOAT16: 13}
# Operators that pass rounded values on, or choose among them.
_PASS_ON = CARRIERS - {"Cast", "Pad"} | frozenset(
    "Identity MaxPool Max Min Relu Neg Abs Where TopK Constant".split()
)
# ONNX Runtime gives finite results for any inputs of these: their gates clamp their arguments.
_CLAMPING = frozenset("LSTM GRU RNN".split())
# Operands that stay float32 in a float16 model: sizes of a Resize, bounds of a Range, numbers that are folded into the
# weights first (variances of 1e-9 and 1e6 are common, and float16 does not hold them), and scales of quantized biases,
# which are products of two small ones.
_SCALES = {("QuantizeLinear", 1), ("DequantizeLinear", 1)}
_FLOAT32_OPERANDS = (
    _SCALES
    | {("Resize", 1), ("Resize", 2), ("Upsample", 1), *(("Range", i) for i in range(3))}
    | {("BatchNormalization", i) for i in range(1, 5)}
)


def round_model(
    model: Model,
    precision: Precision,
    *,
    dither: int | None = None,
    keep: Collection[str] = (),
    least: int = 0,
) -> Model | None:
    """Copy `model` with the roundings of an artefact in `precision`; None where ONNX has no Cast for it.

    Args:
        model: without model-local functions.
        precision: a key of ROUNDINGS.
        dither: a seed for moving every weight by up to half a step before it is rounded, which gives other roundings of
            the same size; None for the nearest numbers.
        keep: values that stay float32, with their weights, and constants that do; other nodes read them rounded.
        least: elements; smaller constants stay float32.
    """
    dtype, results = ROUNDINGS[precision]
    if results and model.opset < _CASTABLE[dtype]:
        return None
    copy = model.clone()
    if not results:
        rounding = partial(_rounded_weights, dtype=_NUMPY[dtype], dither=dither)
        keep = {*keep, *round_transforms(copy, rounding)}
    for graph in copy.ir.graphs():
        _round_weights(graph, _NUMPY[dtype], dither, keep, least)
    if results:
        # For the element types; files need not declare those of intermediate values.
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(copy.ir)
        for graph in list(copy.ir.graphs()):
            _round_results(graph, dtype, keep)
    return copy


def _round_weights(
    graph: ir.Graph, dtype: np.dtype[np.generic], dither: int | None, keep: Collection[str], least: int
) -> None:
    """Round float32 constants; numbers beyond the type's range become its largest number, as in converters."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and _is_float(tensor, least) and not _kept_float32(value, keep):
            values = _rounded_weights(tensor.numpy(), value.name or "", dtype=dtype, dither=dither)
            value.const_value = ir.tensor(values, name=value.name)
    for node in graph:
        if node.op_type != "Constant" or _kept_float32(node.outputs[0], keep):
            continue
        found = node.attributes.get("value")
        if found is not None and _is_float(found.as_tensor(), least):
            name = node.outputs[0].name or ""
            values = _rounded_weights(found.as_tensor().numpy(), name, dtype=dtype, dither=dither)
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(values))


def _rounded_weights(values: Array, name: str, *, dtype: np.dtype[np.generic], dither: int | None) -> Array:
    return to_dtype(_dither(values, dtype, name, dither), dtype)


def _is_float(tensor: ir.TensorProtocol, least: int) -> bool:
    return tensor.dtype == ir.DataType.FLOAT and tensor.size >= least


def _dither(values: Array, dtype: np.dtype[np.generic], name: str, dither: int | None) -> Array:
    if dither is None or values.size < _WEIGHTS:
        return values
    random = np.random.default_rng([dither, zlib.crc32(name.encode())])
    # Spacing grows where numbers are too small to be normal ones.
    step = np.maximum(np.abs(values), _info(dtype).smallest_normal) * _info(dtype).eps
    return np.asarray((values + step * (random.random(values.shape) - 0.5)).astype(np.float32))


def to_dtype(values: Array, dtype: np.dtype[np.generic]) -> Array:
    """Round float32 values to `dtype` and back; finite ones stay finite, and a single one does not become 0."""
    info = _info(dtype)
    limit, least = float(info.max), float(info.smallest_normal)
    nonzero = values
    if values.size == 1:  # an epsilon that became 0 would divide by it; tiny weights of a tensor may become 0
        nonzero = np.where((values != 0) & (np.abs(values) < least), np.copysign(least, values), values)
    clipped = np.where(np.isfinite(values), np.clip(nonzero, -limit, limit), values)
    return np.asarray(clipped.astype(dtype).astype(np.float32))


def _info(dtype: np.dtype[np.generic]) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _kept_float32(value: ir.Value, keep: Collection[str]) -> bool:
    """Return whether all nodes that read a value need it in float32."""
    uses = value.uses()
    return value.name in keep or (
        bool(uses)
        and all(
            (node.op_type, position) in _FLOAT32_OPERANDS or _is_kept(node, keep) for node, position in uses
        )
    )


def _is_kept(node: ir.Node, keep: Collection[str]) -> bool:
    return bool(keep) and any(value.name in keep for value in node.outputs)


def _round_results(graph: ir.Graph, dtype: ir.DataType, keep: Collection[str]) -> None:
    for value in [
        v for v in graph.inputs if v.dtype == ir.DataType.FLOAT and v.name not in graph.initializers
    ]:
        _round_uses(graph, value, dtype, None, keep)
    for node in list(graph):
        for value in _computed_floats(node):
            _round_uses(graph, value, dtype, node, keep)
    for node in [each for each in graph if each.op_type in _CLAMPING]:
        _propagate_overflow(graph, node)


def _propagate_overflow(graph: ir.Graph, node: ir.Node) -> None:
    """Make a node's results NaN where its input overflowed: add 0 times the input's sum."""
    source = node.inputs[0]
    outputs = [value for value in node.outputs if value.name]
    if source is None or source.dtype != ir.DataType.FLOAT or not outputs:
        return
    zero = ir.node("Constant", [], {"value": ir.AttrTensor("value", ir.tensor(np.zeros((), np.float32)))})
    total = ir.node("ReduceSum", [source], {"keepdims": 0})
    nothing = ir.node("Mul", [total.outputs[0], zero.outputs[0]])
    made = [zero, total, nothing]
    for value in outputs:
        uses = list(value.uses())
        adding = ir.node("Add", [value, nothing.outputs[0]])
        back = adding.outputs[0]
        back.type, back.shape = value.type, value.shape
        for user, position in uses:
            user.replace_input_with(position, back)
        made.append(adding)
    for number, each in enumerate(made):
        each.name = f"{outputs[0].name}/overflow_{number}"
        each.outputs[0].name = each.name
    graph.insert_after(node, made)


def _computed_floats(node: ir.Node) -> Iterator[ir.Value]:
    if node.op_type in _PASS_ON:
        return
    yield from (value for value in node.outputs if value.dtype == ir.DataType.FLOAT and value.name)


def _round_uses(
    graph: ir.Graph, value: ir.Value, dtype: ir.DataType, node: ir.Node | None, keep: Collection[str]
) -> None:
    """Insert a pair of Casts between `value` and its rounded uses; a graph output keeps its name."""
    exact = node is None or _is_kept(node, keep)  # an input, or a value computed in float32
    uses = [(user, position) for user, position in value.uses() if not (exact and _is_kept(user, keep))]
    if exact and not uses:
        return
    down = ir.node("Cast", [value], {"to": int(dtype)}, name=f"{value.name}/rounded")
    up = ir.node("Cast", [down.outputs[0]], {"to": int(ir.DataType.FLOAT)}, name=f"{value.name}/widened")
    down.outputs[0].name = f"{value.name}/rounded"
    back = up.outputs[0]
    back.name, back.type, back.shape = f"{value.name}/widened", value.type, value.shape
    for user, position in uses:
        user.replace_input_with(position, back)
    if node is None:
        graph.insert_before(graph[0], [down, up])
        return
    graph.insert_after(node, [down, up])
    if exact:
        return
    for position, output in enumerate(graph.outputs):
        if output is value:
            name = value.name
            value.name, back.name = f"{name}/exact", name
            graph.outputs[position] = back
