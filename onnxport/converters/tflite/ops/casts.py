"""Cast, also to the small types that TFLite has no tensors of: a wider type holds their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.numbers.integer_arithmetic import reinterpret
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value

# Ops that pass float64 on unchanged.
KEEPS_FLOAT64 = frozenset(
    (
        "Cast Concat Expand Flatten Gather GatherND Identity Reshape Shape Size Slice Split Squeeze Tile Transpose "
        "Unsqueeze Where"
    ).split()
)


@dataclass(frozen=True)
class SmallFloat:
    """A float format of 8 bits."""

    mantissa: int  # number of bits
    smallest: int  # exponent of the smallest normal number
    largest: float
    beyond: float  # the result for larger numbers without saturation
    has_minus_zero: bool = True  # -0 differs from 0


SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(3, -6, 448.0, np.nan),
    "float8_e4m3fnuz": SmallFloat(3, -7, 240.0, np.nan, has_minus_zero=False),
    "float8_e5m2": SmallFloat(2, -14, 57344.0, np.inf),
    "float8_e5m2fnuz": SmallFloat(2, -15, 57344.0, np.nan, has_minus_zero=False),
}
_SMALL_INTEGERS = {"int2": (2, np.int8), "int4": (4, np.int8), "uint2": (2, np.uint8), "uint4": (4, np.uint8)}


@lower("Cast")
def cast(node: TflNode, tfl: TflBuilder) -> None:
    """Element type conversion (ONNX Cast-25)."""
    x, target = node.x, node.output_dtype()
    node.attribute("to")
    node.ignore("round_mode")  # of float8_e8m0 only
    saturate = bool(node.attribute("saturate", 1))
    if target == np.float64 and x.dtype.name in ("int32", "int64", "uint32", "uint64") and not x.is_size:
        _refuse_large_integers(node)
    if target.name in SMALL_FLOATS:
        node.emit(round_to(tfl, tfl.float32(x), SMALL_FLOATS[target.name], saturate=saturate))
    elif target.name in _SMALL_INTEGERS:
        node.emit(_wrap(tfl, x, *_SMALL_INTEGERS[target.name]))
    elif target.kind == "V" and target.name != "bfloat16":
        node.unsupported(f"to {target.name}, which TFLite has no tensors of")
    elif _rounds_twice(node) and x.constant is None:
        # A pair of the model's own, which ONNX Runtime keeps.
        order = tfl.common_order(x)
        node.emit(tfl.value(tfl.round_half(tfl.tensor(x, order)), order))
    else:
        node.emit(tfl.convert(x, target))


def _rounds_twice(node: TflNode) -> bool:
    """Return whether a Cast widens float16 numbers that another Cast made of wider ones."""
    source = node.node.inputs[0]
    before = None if source is None else source.producer()
    if before is None or before.op_type != "Cast" or node.x.dtype != np.float16:
        return False
    return before.inputs[0] is not None and before.inputs[0].dtype != onnx_ir.DataType.FLOAT16


@lower("BitCast")
def bit_cast(node: TflNode, tfl: TflBuilder) -> None:
    """Read the bits as another type of the same width (ONNX BitCast-26)."""
    node.attribute("to")  # shape inference has turned it into the result's type
    node.emit(reinterpret(tfl, node.x, node.output_dtype()))


def _refuse_large_integers(node: TflNode) -> None:
    """Refuse integers that pass through float64 arithmetic: float32 loses those beyond 2^24."""
    waiting = [(value, False) for value in node.node.outputs]
    seen = set(waiting)
    while waiting:
        value, computed = waiting.pop()
        for user, _ in value.uses():
            computes = computed or user.op_type not in KEEPS_FLOAT64
            for result in user.outputs:
                step = (result, computes)
                if computes and result.dtype is not None and not result.dtype.is_floating_point():
                    node.unsupported(
                        f"integers in float64, and {user.op_type} {user.outputs[0].name!r} gives integers again: "
                        "TFLite computes in float32, which holds integers up to 2^24 only"
                    )
                if result.dtype == onnx_ir.DataType.DOUBLE and step not in seen:
                    seen.add(step)
                    waiting.append(step)


def round_to(tfl: TflBuilder, x: Value, kind: SmallFloat, *, saturate: bool) -> Value:
    """Round float32 to the nearest number of a format, ties to even; the result stays float32.

    Every step is exact: the spacing of the format's numbers around x is a power of two. Without saturation ONNX
    Runtime departs from ONNX between the largest number and its double.
    """
    op = tfl.broadcast
    spacing = _spacing(tfl, x, kind)
    result = op("mul", tfl.apply("round", op("div", x, spacing)), spacing)
    above, below = op("greater", result, kind.largest), op("less", result, -kind.largest)
    beyond = kind.largest if saturate else kind.beyond
    result = op("select_v2", below, -beyond, op("select_v2", above, beyond, result))
    if kind.has_minus_zero:
        return result
    return op("select_v2", op("equal", result, 0), 0, result)


def _spacing(tfl: TflBuilder, x: Value, kind: SmallFloat) -> Value:
    """Return the spacing of the format's numbers around x: a float32 with x's exponent and no mantissa."""
    op = tfl.broadcast
    bits = reinterpret(tfl, x, np.uint32)
    exponent = tfl.convert(op("right_shift", bits, 23), np.int32)
    exponent = op("floor_mod", exponent, 256)  # without the sign
    least = op("maximum", exponent, kind.smallest + 127)
    lowered = op("sub", least, kind.mantissa)
    return reinterpret(tfl, op("mul", lowered, 1 << 23), np.float32)


def _wrap(tfl: TflBuilder, x: Value, width: int, dtype: type) -> Value:
    """Wrap integers modulo 2^width as ONNX Runtime does; it rounds floats to the nearest, ties away from zero."""
    op = tfl.broadcast
    if x.dtype.kind not in "iub":
        x = tfl.float32(x)
        whole = tfl.convert(x, np.int32)
        rest = op("sub", x, tfl.convert(whole, np.float32))
        up = tfl.convert(op("greater_equal", rest, 0.5), np.int32)
        down = tfl.convert(op("less_equal", rest, -0.5), np.int32)
        x = op("sub", op("add", whole, up), down)
    x = tfl.convert(x, np.int32)
    lowest = 1 << (width - 1) if dtype is np.int8 else 0
    wrapped = op("floor_mod", op("add", x, lowest), 1 << width)
    return tfl.convert(op("sub", wrapped, lowest), dtype)
