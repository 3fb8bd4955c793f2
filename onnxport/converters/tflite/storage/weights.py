"""Stores the weights of a compiled module in fewer bits, after the compiler has folded and fused.

Weights are float32 constants of at least LEAST elements that products or lookups read:

1. fp16: float16 behind DEQUANTIZE. A constant with a number beyond float16 stays float32.
2. int8-weights, int4-weights: symmetric integers behind DEQUANTIZE, with a scale per output channel. Depthwise filters
   have 8 bits in both: they are few, and 4 bits cost MobileNetV2 1 dB and 1.4 times the latency. What the model itself
   stores in that many bits keeps its integers, as 4: rounded anew, it would lose for nothing.
3. int8-dynamic: the integers themselves if the operator has a hybrid kernel, which quantizes its input at run time;
   else as 2.
4. As in the model: weights that it stores in float16 or in integers of 8 or 4 bits are stored in that form again if
   that is exact. Preparation turned them into float32, and may have transposed and scaled them.

The arithmetic stays float32 except for 3. All other constants stay unchanged, and so do tables whose rows comparisons
of floats choose: a decision tree with rounded thresholds takes other branches, and its leaves are no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.quantized.quantization import emit, is_float
from onnxport.converters.tflite.storage.encodings import (
    Encoded,
    encode_float16,
    encode_float16_exactly,
    encode_integers,
    recover_integers,
)
from onnxport.converters.tflite.storage.source_weights import LEAST, Stored
from onnxport.core.arrays import Array
from onnxport.formats.tflite.tensor_names import INNER

if TYPE_CHECKING:
    from onnxport.converters.params import Precision

# tfl op -> (operand with its weights, axis of their output channels; None if that varies).
_WEIGHTS: Mapping[str, tuple[int, int | None]] = {
    "tfl.batch_matmul": (1, None),
    "tfl.conv_2d": (1, 0),
    "tfl.conv_3d": (1, 4),
    "tfl.conv_3d_transpose": (1, 3),
    "tfl.depthwise_conv_2d": (1, 3),
    "tfl.fully_connected": (1, 0),
    "tfl.gather": (0, None),
    "tfl.transpose_conv": (1, 0),
}
_FLOATS = (ir.F32Type, ir.F16Type)
_COMPARISONS = frozenset(
    f"tfl.{op}" for op in "equal greater greater_equal less less_equal not_equal".split()
)
_CASTS = frozenset(("tfl.cast", "tfl.dequantize"))
# Ops that take float activations and int8 weights, measured in ai-edge-litert 2.3.0 with and without XNNPACK.
_HYBRID = frozenset("tfl.conv_2d tfl.depthwise_conv_2d tfl.fully_connected tfl.transpose_conv".split())

# A recurrent node has the weights of all directions and gates in one.
_PARTS = (1, 2, 3, 4, 6, 8)

# XNNPACK unpacks constants of 8 and 16 bits when it starts, but not those of 4 (measured).
_SLOW = (
    "weights of 4 bits: {}; they make the file small but not fast, since XNNPACK does not read them and their products "
    "run in TFLite's own kernels; --precision int8-dynamic is faster"
)
_UNFIT = (
    "weights of few bits are stored in float32 ({:.1f} MB), since the GPU runtime reads integers of 8 bits with one "
    "scale only; --precision fp16 halves them"
)


def store_weights(
    module: ir.Module, precision: Precision | None, stored: Collection[Stored], *, on_gpu: bool = False
) -> tuple[str, ...]:
    """Rewrite the weights of a compiled module.

    Args:
        on_gpu: whether the GPU runtime has to take the file.

    Returns:
        Notes on constants that stayed float32 although the user asked for fewer bits, and on slow weights.
    """
    stayed, slow, unfit, hybrid = _Unchanged(), 0, 0, precision == "int8-dynamic"
    decided = _find_decided_lookups(module)
    for constant in _float_constants(module):
        if any(use.owner in decided for use in constant.results[0].uses):
            stayed.decided += _size(constant) >= LEAST
            continue
        weight = _find_weight(constant)
        if weight is None:
            stayed.others += [_size(constant)] if _size(constant) >= LEAST else []
        elif weight.array.size < LEAST:
            stayed.small += 1
        elif precision is None or precision in _ENCODINGS:
            encode = _encode_as_stored if precision is None else _ENCODINGS[precision]
            encoded = encode(weight, stored)
            if encoded is None:
                stayed.beyond.append(weight.name)
                continue
            if on_gpu and not _runs_on_gpu(weight, encoded, hybrid=hybrid):
                unfit += weight.array.nbytes
                continue
            _replace(weight, encoded, hybrid=hybrid)
            slow += encoded.bits == 4
    notes = stayed.notes() if precision in _ENCODINGS else ()
    notes = (*notes, _UNFIT.format(unfit / 1e6)) if unfit else notes
    return (*notes, _SLOW.format(slow)) if slow else notes


def _runs_on_gpu(weight: _Weight, encoded: Encoded, *, hybrid: bool) -> bool:
    """Return whether LiteRT's GPU runtime takes an encoding: its DEQUANTIZE has no scale per channel and no 4 bits."""
    is_read_directly = hybrid and all(user.name in _HYBRID for user, _ in weight.users)
    return encoded.bits == 16 or is_read_directly or (encoded.bits == 8 and encoded.axis is None)


_Users: TypeAlias = tuple[tuple[ir.Operation, int], ...]  # operators, and which operand of each


@dataclass(frozen=True)
class _Weight:
    """A constant that only products or lookups read, with the axis of its output channels."""

    made_by: tuple[ir.Operation, ...]  # the constant itself comes last
    array: Array
    users: _Users
    axis: int

    @property
    def is_depthwise(self) -> bool:
        return any(user.name == "tfl.depthwise_conv_2d" for user, _ in self.users)

    @property
    def name(self) -> str:
        names = (user.location.name_str for user, _ in self.users if hasattr(user.location, "name_str"))
        return next((name.removesuffix(INNER) for name in names), "")


_ENCODINGS: Mapping[Precision, Callable[[_Weight, Collection[Stored]], Encoded | None]] = {
    "fp16": lambda weight, _: encode_float16(weight.array),
    "int8-dynamic": lambda weight, _: encode_integers(weight.array, 8, weight.axis),
    "int8-weights": lambda weight, stored: _keep_or_round(weight, stored, 8),
    "int4-weights": lambda weight, stored: _keep_or_round(weight, stored, 8 if weight.is_depthwise else 4),
}


@dataclass
class _Unchanged:
    """The constants that stay float32, by cause."""

    small: int = 0
    decided: int = 0
    others: list[int] = field(default_factory=list)  # sizes
    beyond: list[str] = field(default_factory=list)  # names

    def notes(self) -> tuple[str, ...]:
        parts = []
        if self.small:
            parts.append(f"{_count(self.small, 'weight')} of fewer than {LEAST} elements")
        if self.decided:
            parts.append(f"{_count(self.decided, 'table')} of decision trees")
        if self.others:
            size = f"{4 * sum(self.others) / 1e6:.1f} MB"
            parts.append(f"{_count(len(self.others), 'constant')} ({size}) that not only products read")
        if self.beyond:
            parts.append("weights with numbers beyond the type's range: " + ", ".join(map(repr, self.beyond)))
        return ("stayed float32: " + "; ".join(parts),) if parts else ()


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _float_constants(module: ir.Module) -> list[ir.Operation]:
    """List the constants of float32 and float16."""
    found = []

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if operation.name in ("arith.constant", "tfl.pseudo_const"):
            type_ = operation.results[0].type
            if isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, _FLOATS):
                found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _size(constant: ir.Operation) -> int:
    return prod(ir.RankedTensorType(constant.results[0].type).shape)


def _find_decided_lookups(module: ir.Module) -> set[ir.Operation]:
    """Return the lookups whose indices depend on comparisons of floats."""
    decided, found = set[ir.Value](), set[ir.Operation]()

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "tfl.gather" and operation.operands[1] in decided:
            found.add(operation)
        is_comparison = operation.name in _COMPARISONS and is_float(operation.operands[0])
        if is_comparison or any(operand in decided for operand in operation.operands):
            decided.update(operation.results)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _find_weight(constant: ir.Operation) -> _Weight | None:
    users, widened = _find_users(constant)
    axes = {_axis(user, position) for user, position in users}
    if len(axes) != 1 or None in axes:
        return None
    (axis,) = axes
    assert axis is not None
    array = np.asarray(constant.attributes["value"])
    return _Weight((*widened, constant), array.astype(np.float32, copy=False), users, axis)


def _find_users(constant: ir.Operation) -> tuple[_Users, tuple[ir.Operation, ...]]:
    """Return a constant's users and the casts of a float16 one to float32, whose users these then are."""
    uses = tuple((use.owner, use.operand_number) for use in constant.results[0].uses)
    if all(user.name in _CASTS and is_float(user.results[0]) for user, _ in uses):
        behind = [(use.owner, use.operand_number) for user, _ in uses for use in user.results[0].uses]
        return tuple(behind), tuple(user for user, _ in uses)
    return uses, ()


def _axis(user: ir.Operation, position: int) -> int | None:
    """Return the axis of the output channels if operand `position` of `user` is its weights, else None."""
    place, axis = _WEIGHTS.get(user.name, (-1, None))
    if position != place:
        return None
    if user.name == "tfl.batch_matmul":
        is_transposed = "adj_y" in user.attributes and bool(ir.BoolAttr(user.attributes["adj_y"]).value)
        return int(ir.RankedTensorType(user.operands[1].type).rank) - (2 if is_transposed else 1)
    if user.name == "tfl.gather":
        return int(ir.IntegerAttr(user.attributes["axis"]).value)
    return axis


def _keep_or_round(weight: _Weight, stored: Collection[Stored], bits: int) -> Encoded | None:
    """Keep integers of that many bits that the source stores; round other weights to the nearest."""
    kept = _encode_as_stored(weight, {source for source in stored if source.bits == bits})
    return kept or encode_integers(weight.array, bits, weight.axis)


def _encode_as_stored(weight: _Weight, stored: Collection[Stored]) -> Encoded | None:
    """Encode a weight as the source stores one of its size, or of which it is a part, if that is exact."""
    sources = sorted(source for source in stored if source.size in {n * weight.array.size for n in _PARTS})
    return _first(_encode_exactly(weight, source) for source in sources)


def _first(found: Iterable[Encoded | None]) -> Encoded | None:
    return next((encoded for encoded in found if encoded is not None), None)


def _encode_exactly(weight: _Weight, source: Stored) -> Encoded | None:
    if source.bits == 16:
        return encode_float16_exactly(weight.array)
    if source.block:
        fits = weight.array.shape[-1] % source.block == 0
        return recover_integers(weight.array.reshape(-1, source.block), source.bits, 0) if fits else None
    axes = (None, weight.axis, *(axis for axis in range(weight.array.ndim) if axis != weight.axis))
    return _first(recover_integers(weight.array, source.bits, axis) for axis in axes)


def _replace(weight: _Weight, encoded: Encoded, *, hybrid: bool = False) -> None:
    """Replace the constant by its encoding, behind DEQUANTIZE for users that only take floats."""
    with ir.InsertionPoint(weight.made_by[-1]):
        numbers = _emit_numbers(encoded)
        floats = None
        for user, position in weight.users:
            if hybrid and user.name in _HYBRID:
                user.operands[position] = numbers
                continue
            floats = _emit_dequantize(numbers, weight, encoded) if floats is None else floats
            user.operands[position] = floats
    for operation in weight.made_by:
        operation.erase()  # the exporter also writes unused ones


def _emit_numbers(encoded: Encoded) -> ir.Value:
    shape = encoded.numbers.shape
    if encoded.bits == 16:
        half = ir.RankedTensorType.get(shape, ir.F16Type.get())
        value = ir.DenseElementsAttr.get(encoded.numbers, type=half)
        return emit("arith.constant", [], half, value=value)
    signless = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(encoded.bits))
    quantized = ir.Type.parse(f"tensor<{'x'.join(map(str, shape))}x{_quantized_type(encoded)}>")
    value = ir.DenseElementsAttr.get(encoded.numbers, type=signless)
    return emit("tfl.pseudo_qconst", [], quantized, qtype=ir.TypeAttr.get(quantized), value=value)


def _quantized_type(encoded: Encoded) -> str:
    """Return MLIR's text of the element type, which has no constructor in Python."""
    grids = zip(encoded.scales, encoded.zero_points, strict=True)
    pairs = ",".join(f"{scale:.9e}:{zero_point}" for scale, zero_point in grids)
    if encoded.axis is None:
        return f"!quant.uniform<i{encoded.bits}:f32, {pairs}>"
    return f"!quant.uniform<i{encoded.bits}:f32:{encoded.axis}, {{{pairs}}}>"


def _emit_dequantize(numbers: ir.Value, weight: _Weight, encoded: Encoded) -> ir.Value:
    """Emit the numbers as floats in the weight's own shape."""
    type_ = ir.RankedTensorType.get(weight.array.shape, ir.F32Type.get())
    widened = ir.RankedTensorType.get(encoded.numbers.shape, ir.F32Type.get())
    floats = emit("tfl.dequantize", [numbers], widened)
    if widened == type_:
        return floats
    shape = ir.DenseElementsAttr.get(np.array(weight.array.shape, np.int32))
    return emit("tfl.reshape", [floats, emit("arith.constant", [], shape.type, value=shape)], type_)
