"""TFLite's operators as ONNX ones: a function for each, in a table (schema.fbs and kernels/ of LiteRT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.constant_tensors import constant_tensor
from onnxport.validate.translation.graph_writer import NotLifted, data_type
from onnxport.validate.translation.tflite.lift import OperatorView

Lift = Callable[[OperatorView], None]
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_SAME = 0  # Padding


# ---- windows


def _pads(
    op: OperatorView, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return ONNX's pads; SAME puts the odd one behind (kernels/padding.h)."""
    if op.options["padding"] != _SAME:
        return [0, 0, 0, 0]
    before, after = [], []
    for axis in range(2):
        size = op.shape(0)[1 + axis]
        results = -(-size // strides[axis])
        total = max((results - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - size, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return before + after


def _strides(op: OperatorView) -> list[int]:
    return [op.options["strideH"], op.options["strideW"]]


def _bias(op: OperatorView, place: int) -> list[ir.Value]:
    if not op.has(place):
        return []
    shape = op.shape(place)
    return [op.input(place) if len(shape) == 1 else _reshaped(op, op.input(place), [int(np.prod(shape))])]


def _channels_first(op: OperatorView, place: int = 0) -> ir.Value:
    return op.add("Transpose", [op.input(place)], perm=_TO_CHANNELS_FIRST)


def _pictures(op: OperatorView, place: int = 0) -> ir.Value:
    """Return what a convolution reads, channels first."""
    is_pixelwise = op.operator.op == "CONV_2D" and op.shape(1)[1:3] == (1, 1) and _strides(op) == [1, 1]
    axes = (3,) if is_pixelwise else (1, 2, 3)
    return op.add("Transpose", [op.factor(place, 1, axes)], perm=_TO_CHANNELS_FIRST)


def _emit_channels_last(op: OperatorView, value: ir.Value) -> None:
    op.emit(op.add("Transpose", [value], perm=_TO_CHANNELS_LAST))


def _conv(op: OperatorView) -> None:
    """Filters are [output, height, width, input of a group]."""
    _, *kernel, inputs = op.shape(1)
    group = op.shape(0)[3] // inputs
    _convolve(op, op.add("Transpose", [op.input(1)], perm=_TO_CHANNELS_FIRST), kernel, group)


def _depthwise_conv(op: OperatorView) -> None:
    """Filters are [1, height, width, output]."""
    kernel = op.shape(1)[1:3]
    _convolve(op, op.add("Transpose", [op.input(1)], perm=[3, 0, 1, 2]), kernel, op.shape(0)[3])


def _convolve(op: OperatorView, weight: ir.Value, kernel: Sequence[int], group: int) -> None:
    strides, dilations = _strides(op), [op.options["dilationHFactor"], op.options["dilationWFactor"]]
    operands = [_pictures(op), weight, *_bias(op, 2)]
    pads = _pads(op, kernel, strides, dilations)
    found = op.add("Conv", operands, strides=strides, dilations=dilations, pads=pads, group=group)
    _emit_channels_last(op, found)


def _transpose_conv(op: OperatorView) -> None:
    """Inputs are the result's shape, filters [output, height, width, input], the data and a bias."""
    strides, kernel, result = _strides(op), op.shape(1)[1:3], op.result_shape
    before, after, output = [], [], []
    for axis in range(2):
        whole = (op.shape(2)[1 + axis] - 1) * strides[axis] + kernel[axis]
        total = max(whole - result[1 + axis], 0) if op.options["padding"] == _SAME else 0
        before.append(total // 2)
        after.append(total - total // 2)
        output.append(result[1 + axis] - (whole - total))
    if min(output) < 0 or any(each >= stride for each, stride in zip(output, strides, strict=True) if each):
        raise NotLifted("a transposed convolution that cuts off its result")
    weight = op.add("Transpose", [op.input(1)], perm=[3, 0, 1, 2])
    operands = [_pictures(op, 2), weight, *_bias(op, 3)]
    pads = before + after
    found = op.add("ConvTranspose", operands, strides=strides, pads=pads, output_padding=output)
    _emit_channels_last(op, found)


def _pool(name: str, **attributes: Any) -> Lift:
    def lift(op: OperatorView) -> None:
        kernel, strides = [op.options["filterHeight"], op.options["filterWidth"]], _strides(op)
        pads = _pads(op, kernel, strides, (1, 1))
        operands = [_channels_first(op)]
        found = op.add(name, operands, kernel_shape=kernel, strides=strides, pads=pads, **attributes)
        _emit_channels_last(op, found)

    return lift


def _resize(mode: str) -> Lift:
    """Nearest neighbours are those that floor() finds, of pixels' centers too (reference/resize_nearest_neighbor.h)."""

    def lift(op: OperatorView) -> None:
        if op.options["alignCorners"]:
            settings = "align_corners", "round_prefer_ceil"
        elif op.options["halfPixelCenters"]:
            settings = "half_pixel", "round_prefer_ceil"
        else:
            settings = "asymmetric", "floor"
        height, width = op.integers(1)
        batch, _, _, channels = op.shape(0)
        sizes = op.number(np.array([batch, channels, height, width], np.int64))
        nearest: dict[str, Any] = {"nearest_mode": settings[1]} if mode == "nearest" else {}
        found = op.add(
            "Resize",
            [_channels_first(op), None, None, sizes],
            mode=mode,
            coordinate_transformation_mode=settings[0],
            **nearest,
        )
        _emit_channels_last(op, found)

    return lift


# ---- products of matrices


def _fully_connected(op: OperatorView) -> None:
    """Weights are [output, input]."""
    if op.options.get("weightsFormat"):
        raise NotLifted("shuffled weights")
    outputs, depth = op.shape(1)
    data = op.factor(0, 1, (-1,))
    if op.shape(0)[-1:] != (depth,) or (not op.options["keepNumDims"] and len(op.shape(0)) != 2):
        data = _reshaped(op, data, [int(np.prod(op.shape(0))) // depth, depth])
    found = op.add("MatMul", [data, op.add("Transpose", [op.input(1)], perm=[1, 0])])
    if op.has(2):
        found = op.add("Add", [found, op.input(2)])
    kept = (*op.shape(0)[:-1], outputs) if op.options["keepNumDims"] else None
    if op.result_shape not in (kept, (int(np.prod(op.shape(0))) // depth, outputs)):
        raise NotLifted("a fully connected layer of another shape")
    op.emit(found)


def _batch_matmul(op: OperatorView) -> None:
    operands = []
    for place, name in enumerate(("adjX", "adjY")):
        value = op.input(place)
        if op.options.get(name):
            *others, first, second = range(len(op.shape(place)))
            value = op.add("Transpose", [value], perm=[*others, second, first])
        operands.append(value)
    op.emit(op.add("MatMul", operands))


# ---- element by element


def _same(name: str, **attributes: Any) -> Lift:
    """Return the operator that ONNX has under another name."""
    return lambda op: op.emit(op.add(name, [op.input(place) for place in range(op.count)], **attributes))


def _identity(op: OperatorView) -> None:
    op.emit(op.add("Identity", [op.input(0)]))


def _dequantize(op: OperatorView) -> None:
    value = op.input(0)
    if op.dtype(0) in ("float16", "bfloat16"):
        value = op.add("Cast", [value], to=int(data_type(op.result_dtype)))
    op.emit(op.add("Identity", [value]))


def _cast(op: OperatorView) -> None:
    op.emit(op.add("Cast", [op.input(0)], to=int(data_type(op.result_dtype))))


def _leaky_relu(op: OperatorView) -> None:
    op.emit(op.add("LeakyRelu", [op.input(0)], alpha=float(op.options["alpha"])))


def _gelu(op: OperatorView) -> None:
    op.emit(op.add("Gelu", [op.input(0)], approximate="tanh" if op.options["approximate"] else "none"))


def _clip(low: float, high: float) -> Lift:
    def lift(op: OperatorView) -> None:
        op.emit(op.add("Clip", [op.input(0), op.number(np.float32(low)), op.number(np.float32(high))]))

    return lift


def _square(op: OperatorView) -> None:
    op.emit(op.add("Mul", [op.input(0), op.input(0)]))


def _squared_difference(op: OperatorView) -> None:
    difference = op.add("Sub", [op.input(0), op.input(1)])
    op.emit(op.add("Mul", [difference, difference]))


def _rsqrt(op: OperatorView) -> None:
    op.emit(op.add("Reciprocal", [op.add("Sqrt", [op.input(0)])]))


def _not_equal(op: OperatorView) -> None:
    op.emit(op.add("Not", [op.add("Equal", [op.input(0), op.input(1)])]))


def _softmax(op: OperatorView) -> None:
    value = op.input(0)
    if op.options["beta"] != 1.0:
        value = op.add("Mul", [value, op.number(np.float32(op.options["beta"]))])
    op.emit(op.add("Softmax", [value], axis=-1))


def _local_response_norm(op: OperatorView) -> None:
    """TFLite takes a radius, and alpha by the size of the window."""
    size = 2 * int(op.options["radius"]) + 1
    settings: dict[str, Any] = {name: float(op.options[name]) for name in ("alpha", "beta", "bias")}
    settings["alpha"] *= size
    _emit_channels_last(op, op.add("LRN", [_channels_first(op)], size=size, **settings))


def _one_hot(op: OperatorView) -> None:
    """An index below 0 has no place here; ONNX counts it from the end, as a Where in front may do."""
    (depth,) = op.integers(1)
    data, numbers = (
        op.operator.inputs[0],
        [op.lifting.constant(op.operator.inputs[place]) for place in (3, 2)],
    )
    index = _before_wrap(op.lifting.value(data), depth)
    if index is None or any(each is None for each in numbers):
        raise NotLifted("one_hot of indices that may be negative, or of computed values")
    values = op.number(np.stack([each.reshape(()) for each in numbers if each is not None]))
    found = op.add("OneHot", [index, op.number(np.array(depth, np.int64)), values], axis=op.options["axis"])
    op.emit(found)


def _before_wrap(value: ir.Value, size: int) -> ir.Value | None:
    """Return i of `i < 0 ? i + size : i`; None for another index."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value, node = node.inputs[0], node.inputs[0].producer()
    if node is None or node.op_type != "Where":
        return None
    less, moved = (None if each is None else each.producer() for each in node.inputs[:2])
    given = node.inputs[2]
    if less is None or moved is None or (less.op_type, moved.op_type) != ("Less", "Add"):
        return None
    numbers = [None if each.inputs[1] is None else constant_tensor(each.inputs[1]) for each in (less, moved)]
    values = [each.numpy().reshape(-1).tolist() for each in numbers if each is not None]
    is_same = less.inputs[0] is given and moved.inputs[0] is given
    return given if is_same and values == [[0], [size]] else None


# ---- shapes


def _reshaped(op: OperatorView, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    return op.add("Reshape", [value, op.number(np.array(shape, np.int64))], allowzero=1)


def _view(op: OperatorView) -> None:
    """RESHAPE and its like: the result's shape is known."""
    op.emit(_reshaped(op, op.input(0), op.result_shape))


def _transpose(op: OperatorView) -> None:
    op.emit(op.add("Transpose", [op.input(0)], perm=op.integers(1)))


def _concatenation(op: OperatorView) -> None:
    op.emit(op.add("Concat", [op.input(place) for place in range(op.count)], axis=op.options["axis"]))


def _pad(op: OperatorView) -> None:
    pairs = np.array(op.integers(1)).reshape(-1, 2)
    operands = [op.input(0), op.number(pairs.T.reshape(-1).astype(np.int64))]
    if op.has(2):
        operands.append(op.add("Reshape", [op.input(2), op.number(np.zeros(0, np.int64))]))
    op.emit(op.add("Pad", operands, mode="constant"))


def _mirror_pad(op: OperatorView) -> None:
    pads = op.number(np.array(op.integers(1), np.int64).reshape(-1, 2).T.reshape(-1))
    if op.options["mode"] != 0:
        raise NotLifted("symmetric padding")
    op.emit(op.add("Pad", [op.input(0), pads], mode="reflect"))


def _sliced(op: OperatorView, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> ir.Value:
    numbers = [op.number(np.array(each, np.int64)) for each in (starts, ends, range(len(starts)), steps)]
    return op.add("Slice", [op.input(0), *numbers])


def _slice(op: OperatorView) -> None:
    starts, sizes, shape = op.integers(1), op.integers(2), op.shape(0)
    ends = [
        whole if size < 0 else start + size for start, size, whole in zip(starts, sizes, shape, strict=True)
    ]
    op.emit(_sliced(op, starts, ends, [1] * len(starts)))


def _strided_slice(op: OperatorView) -> None:
    """Masks are bits: an axis whose begin or end is left out, or that is taken away."""
    options = op.options
    if options["ellipsisMask"] or options["newAxisMask"] or options.get("offset"):
        raise NotLifted("a slice with new axes")
    starts, ends, steps, shape = op.integers(1), op.integers(2), op.integers(3), op.shape(0)
    for axis, size in enumerate(shape[: len(starts)]):
        if options["beginMask"] >> axis & 1:
            starts[axis] = 0 if steps[axis] > 0 else size - 1
        if options["shrinkAxisMask"] >> axis & 1:
            starts[axis] %= size
            ends[axis], steps[axis] = starts[axis] + 1, 1
        elif options["endMask"] >> axis & 1:
            ends[axis] = size if steps[axis] > 0 else -size - 1
    found = _sliced(op, starts, ends, steps)
    op.emit(_reshaped(op, found, op.result_shape) if options["shrinkAxisMask"] else found)


def _split(place: int) -> Lift:
    """SPLIT has the axis first, SPLIT_V last."""

    def lift(op: OperatorView) -> None:
        (axis,) = op.integers(0 if place else 2)
        data, rank = op.input(place), len(op.shape(place))
        start = 0
        for number, index in enumerate(op.operator.outputs):
            size = op.lifting.shape(index)[axis]
            numbers = [op.number(np.array([each], np.int64)) for each in (start, start + size, axis % rank)]
            op.emit(op.add("Slice", [data, *numbers]), number)
            start += size

    return lift


def _gather(op: OperatorView) -> None:
    if op.options.get("batchDims"):
        raise NotLifted("a gather with batches")
    op.emit(op.add("Gather", [op.input(0), op.input(1)], axis=op.options["axis"]))


def _reduce(name: str) -> Lift:
    def lift(op: OperatorView) -> None:
        axes = op.number(np.array(op.integers(1), np.int64))
        op.emit(op.add(name, [op.input(0), axes], keepdims=int(op.options["keepDims"])))

    return lift


def _index_of_extreme(name: str) -> Lift:
    def lift(op: OperatorView) -> None:
        (axis,) = op.integers(1)
        found = op.add(name, [op.input(0)], axis=axis, keepdims=0)
        op.emit(op.add("Cast", [found], to=int(data_type(op.result_dtype))))

    return lift


def _expand(op: OperatorView) -> None:
    op.emit(op.add("Expand", [op.input(0), op.number(np.array(op.result_shape, np.int64))]))


def _pack(op: OperatorView) -> None:
    axis = op.options["axis"] % len(op.result_shape)
    shape = [1 if place == axis else size for place, size in enumerate(op.result_shape)]
    parts = [_reshaped(op, op.input(place), shape) for place in range(op.count)]
    op.emit(op.add("Concat", parts, axis=axis))


def _tile(op: OperatorView) -> None:
    op.emit(op.add("Tile", [op.input(0), op.number(np.array(op.integers(1), np.int64))]))


def _shape(op: OperatorView) -> None:
    value = op.number(np.array(op.shape(0), op.result_dtype))
    op.emit(op.add("Identity", [value]))


def _blocks(name: str, **attributes: Any) -> Lift:
    def lift(op: OperatorView) -> None:
        found = op.add(name, [_channels_first(op)], blocksize=op.options["blockSize"], **attributes)
        _emit_channels_last(op, found)

    return lift


OPERATORS: Mapping[str, Lift] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise_conv,
    "TRANSPOSE_CONV": _transpose_conv,
    "MAX_POOL_2D": _pool("MaxPool"),
    "AVERAGE_POOL_2D": _pool("AveragePool", count_include_pad=0),
    "RESIZE_BILINEAR": _resize("linear"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("nearest"),
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "QUANTIZE": _identity,
    "DEQUANTIZE": _dequantize,
    "CAST": _cast,
    "LEAKY_RELU": _leaky_relu,
    "GELU": _gelu,
    "RELU": _same("Relu"),
    "RELU6": _clip(0.0, 6.0),
    "RELU_0_TO_1": _clip(0.0, 1.0),
    "RELU_N1_TO_1": _clip(-1.0, 1.0),
    "LOGISTIC": _same("Sigmoid"),
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": _same("LogSoftmax", axis=-1),
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
    "RSQRT": _rsqrt,
    "NOT_EQUAL": _not_equal,
    **{
        tflite: _same(onnx)
        for tflite, onnx in {
            "ABS": "Abs",
            "ADD": "Add",
            "CEIL": "Ceil",
            "COS": "Cos",
            "DIV": "Div",
            "ELU": "Elu",
            "EQUAL": "Equal",
            "EXP": "Exp",
            "FLOOR": "Floor",
            "GREATER": "Greater",
            "GREATER_EQUAL": "GreaterOrEqual",
            "HARD_SWISH": "HardSwish",
            "LESS": "Less",
            "LESS_EQUAL": "LessOrEqual",
            "LOG": "Log",
            "LOGICAL_AND": "And",
            "LOGICAL_NOT": "Not",
            "LOGICAL_OR": "Or",
            "MAXIMUM": "Max",
            "MINIMUM": "Min",
            "MUL": "Mul",
            "NEG": "Neg",
            "POW": "Pow",
            "PRELU": "PRelu",
            "ROUND": "Round",
            "SELECT_V2": "Where",
            "SIGN": "Sign",
            "SIN": "Sin",
            "SQRT": "Sqrt",
            "SUB": "Sub",
            "TANH": "Tanh",
        }.items()
    },
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _view),
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": _split(1),
    "SPLIT_V": _split(0),
    "GATHER": _gather,
    "MEAN": _reduce("ReduceMean"),
    "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "ARG_MAX": _index_of_extreme("ArgMax"),
    "ARG_MIN": _index_of_extreme("ArgMin"),
    "BROADCAST_TO": _expand,
    "PACK": _pack,
    "TILE": _tile,
    "SHAPE": _shape,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response_norm,
    "ONE_HOT": _one_hot,
    "DEPTH_TO_SPACE": _blocks("DepthToSpace", mode="DCR"),
    "SPACE_TO_DEPTH": _blocks("SpaceToDepth"),
}
