"""MIL's operators as ONNX ones: a function for each, in a table (coremltools, MIL ops reference)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.constant_tensors import constant_tensor
from onnxport.validate.translation.graph_writer import NotLifted, data_type
from onnxport.validate.translation.mlpackage.lift import OperatorView
from onnxport.validate.translation.mlpackage.sizes import OF_SIZES

Lift = Callable[[OperatorView], None]
# No finite float16 lies beyond it.
_LARGE = 65504.0


# ---- windows


def _window(op: OperatorView, axes: int) -> dict[str, Any]:
    """Return strides and padding; pairs of begin and end for each axis become ONNX's pads."""
    kind = str(op.constant("pad_type", "valid"))
    found: dict[str, Any] = {"strides": op.integers("strides", [1] * axes)}
    if kind == "custom":
        pairs = op.integers("pad")
        found["pads"] = pairs[::2] + pairs[1::2]
    elif kind in ("same", "same_lower"):
        found["auto_pad"] = "SAME_LOWER" if kind == "same_lower" else "SAME_UPPER"
    return found


def _bias(op: OperatorView) -> list[ir.Value]:
    return [op.value("bias")] if op.has("bias") else []


def _conv(op: OperatorView) -> None:
    axes = len(op.shape("weight")) - 2
    operands = [op.value("x"), op.value("weight"), *_bias(op)]
    group = int(op.constant("groups", 1))
    dilations = op.integers("dilations", [1] * axes)
    op.emit(op.add("Conv", operands, group=group, dilations=dilations, **_window(op, axes)))


def _conv_transpose(op: OperatorView) -> None:
    axes = len(op.shape("weight")) - 2
    operands = [op.value("x"), op.value("weight"), *_bias(op)]
    settings = _window(op, axes)
    dilations = op.integers("dilations", [1] * axes)
    if op.has("output_shape"):
        sizes, data = op.integers("output_shape")[2:], op.shape("x")[2:]
        pads = settings.get("pads", [0] * 2 * axes)
        whole = [
            (int(size or 0) - 1) * stride + dilation * (kernel - 1) + 1
            for size, stride, dilation, kernel in zip(
                data,
                settings["strides"],
                dilations,
                [int(each or 0) for each in op.shape("weight")[2:]],
                strict=True,
            )
        ]
        more = [
            size - (full - pads[i] - pads[axes + i])
            for i, (size, full) in enumerate(zip(sizes, whole, strict=True))
        ]
        if "auto_pad" in settings or min(more) < 0:
            raise NotLifted("a transposed convolution that cuts off its result")
        settings["output_padding"] = more
    group = int(op.constant("groups", 1))
    op.emit(op.add("ConvTranspose", operands, group=group, dilations=dilations, **settings))


def _pool(name: str) -> Lift:
    def lift(op: OperatorView) -> None:
        kernel = op.integers("kernel_sizes")
        settings = _window(op, len(kernel)) | {"ceil_mode": int(op.constant("ceil_mode", False))}
        if name == "AveragePool":
            settings["count_include_pad"] = int(not op.constant("exclude_padding_from_average", False))
        op.emit(op.add(name, [op.value("x")], kernel_shape=kernel, **settings))

    return lift


def _scaled(mode: str, settings: Mapping[str, str]) -> Lift:
    """Upsampling by factors, of the last two axes."""

    def lift(op: OperatorView) -> None:
        factors = [float(op.constant(f"scale_factor_{each}", 1.0)) for each in ("height", "width")]
        scales = op.number(np.array([1.0] * (op.rank - 2) + factors, np.float32))
        chosen: dict[str, Any] = dict(settings)
        if mode == "linear" and op.constant("align_corners", True):
            chosen["coordinate_transformation_mode"] = "align_corners"
        op.emit(op.add("Resize", [op.value("x"), None, scales], mode=mode, **chosen))

    return lift


# MIL's sampling_mode -> ONNX's coordinate_transformation_mode (coremltools, resize_bilinear).
_SAMPLING = {
    "UNALIGN_CORNERS": "half_pixel",
    "STRICT_ALIGN_CORNERS": "align_corners",
    "DEFAULT": "asymmetric",
}


def _resize(op: OperatorView) -> None:
    """resize and resize_bilinear: linearly, the last axes, to the declared sizes."""
    mode = str(op.constant("interpolation_mode", "LINEAR")).upper()
    sampling = str(op.constant("sampling_mode", "DEFAULT")).upper()
    shape = op.operation.outputs[0][1].shape
    if mode not in ("LINEAR", "BILINEAR") or sampling not in _SAMPLING or shape is None or None in shape:
        raise NotLifted(f"{op.operation.type} of mode {mode}, {sampling}")
    sizes = op.number(np.array(shape, np.int64))
    settings: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": _SAMPLING[sampling]}
    op.emit(op.add("Resize", [op.value("x"), None, None, sizes], **settings))


# ---- products of matrices


def _linear(op: OperatorView) -> None:
    """Weights are [output, input]."""
    found = op.add("MatMul", [op.value("x"), op.add("Transpose", [op.value("weight")], perm=[1, 0])])
    op.emit(op.add("Add", [found, *_bias(op)]) if op.has("bias") else found)


def _matmul(op: OperatorView) -> None:
    operands = []
    for name in ("x", "y"):
        value = op.value(name)
        if op.constant(f"transpose_{name}", False):
            *others, first, second = range(len(op.shape(name)))
            value = op.add("Transpose", [value], perm=[*others, second, first])
        operands.append(value)
    op.emit(op.add("MatMul", operands))


# ---- element by element


def _same(name: str, *parameters: str, **attributes: Any) -> Lift:
    """Return the operator that ONNX has under another name."""
    return lambda op: op.emit(op.add(name, [op.value(each) for each in parameters or ("x",)], **attributes))


def _select(op: OperatorView) -> None:
    """Leave out what only gives a choice the condition's sizes (converters/coreml/builder.py)."""
    op.emit(op.add("Where", [op.value("cond"), *(_without_spread(op.value(each)) for each in ("a", "b"))]))


def _without_spread(value: ir.Value) -> ir.Value:
    """Return c of flags * 0 + c, and 0 of flags * 0: flags are finite."""
    node = _before_casts(value).producer()
    if node is not None and node.op_type == "Add":
        first, second = node.inputs
        return second if first is not None and second is not None and _zeros(first) else value
    return _zeros(value) or value


def _zeros(value: ir.Value) -> ir.Value | None:
    """Return the constant 0 that flags are multiplied by; None for another value."""
    node = _before_casts(value).producer()
    if node is None or node.op_type != "Mul":
        return None
    flags, factor = node.inputs
    if flags is None or factor is None:
        return None
    source = _before_casts(flags)
    tensor = constant_tensor(_before_casts(factor))
    is_flag = source is not flags and source.dtype == ir.DataType.BOOL
    return factor if is_flag and tensor is not None and not tensor.numpy().any() else None


def _before_casts(value: ir.Value) -> ir.Value:
    node = value.producer()
    while node is not None and node.op_type in ("Cast", "Identity") and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _identity(op: OperatorView) -> None:
    op.emit(op.add("Identity", [op.value("x")]))


def _cast(op: OperatorView) -> None:
    """Floats stay float32; integers become what they are declared as, of a value kept from infinity as well."""
    dtype = {"fp16": "float32", "fp32": "float32"}.get(kind := str(op.constant("dtype")), kind)
    value = op.value("x")
    clip = _before_casts(value).producer()
    if dtype.startswith(("int", "uint")) and clip is not None and clip.op_type == "Clip":
        low, high = (constant_tensor(each) for each in clip.inputs[1:3])
        if clip.inputs[0] and low and high and low.numpy() <= -_LARGE and high.numpy() >= _LARGE:
            value = clip.inputs[0]
    op.emit(op.add("Cast", [value], to=int(data_type(dtype))))


def _clip(low: float | str, high: float | str) -> Lift:
    def lift(op: OperatorView) -> None:
        ends = [float(op.constant(each)) if isinstance(each, str) else each for each in (low, high)]
        numbers = [op.number(np.float32(each)) for each in ends]
        op.emit(op.add("Clip", [op.value("x"), *numbers]))

    return lift


def _with_alpha(name: str, default: float) -> Lift:
    return lambda op: op.emit(op.add(name, [op.value("x")], alpha=float(op.constant("alpha", default))))


def _sigmoid_hard(op: OperatorView) -> None:
    alpha, beta = float(op.constant("alpha", 0.2)), float(op.constant("beta", 0.5))
    op.emit(op.add("HardSigmoid", [op.value("x")], alpha=alpha, beta=beta))


def _prelu(op: OperatorView) -> None:
    shape = op.number(np.array([-1] + [1] * (op.rank - 2), np.int64))
    op.emit(op.add("PRelu", [op.value("x"), op.add("Reshape", [op.value("alpha"), shape])]))


def _gelu(op: OperatorView) -> None:
    mode = str(op.constant("mode", "EXACT"))
    if mode not in ("EXACT", "TANH_APPROXIMATION"):
        raise NotLifted(f"gelu of mode {mode}")
    op.emit(op.add("Gelu", [op.value("x")], approximate="none" if mode == "EXACT" else "tanh"))


def _silu(op: OperatorView) -> None:
    op.emit(op.add("Mul", [op.value("x"), op.add("Sigmoid", [op.value("x")])]))


def _square(op: OperatorView) -> None:
    op.emit(op.add("Mul", [op.value("x"), op.value("x")]))


def _rsqrt(op: OperatorView) -> None:
    op.emit(op.add("Reciprocal", [op.add("Sqrt", [_above(op, 1e-12)])]))


def _inverse(op: OperatorView) -> None:
    op.emit(op.add("Reciprocal", [_above(op, 1e-4)]))


def _log(op: OperatorView) -> None:
    op.emit(op.add("Log", [_above(op, 1e-45)]))


def _above(op: OperatorView, default: float) -> ir.Value:
    """Return the operand with the epsilon of an operator added."""
    epsilon = float(op.constant("epsilon", default))
    return op.add("Add", [op.value("x"), op.number(np.float32(epsilon))]) if epsilon else op.value("x")


def _not_equal(op: OperatorView) -> None:
    op.emit(op.add("Not", [op.add("Equal", [op.value("x"), op.value("y")])]))


def _softmax(op: OperatorView) -> None:
    op.emit(op.add("Softmax", [op.value("x")], axis=int(op.constant("axis", -1))))


# ---- norms


def _batch_norm(op: OperatorView) -> None:
    ones, zeros = (op.number(np.full(len(op.array("mean")), each, np.float32)) for each in (1, 0))
    scale = op.value("gamma") if op.has("gamma") else ones
    bias = op.value("beta") if op.has("beta") else zeros
    operands = [op.value("x"), scale, bias, op.value("mean"), op.value("variance")]
    op.emit(op.add("BatchNormalization", operands, epsilon=float(op.constant("epsilon", 1e-5))))


def _instance_norm(op: OperatorView) -> None:
    if not (op.has("gamma") and op.has("beta")):
        raise NotLifted("instance_norm without gamma or beta")
    scale, bias = op.value("gamma"), op.value("beta")
    epsilon = float(op.constant("epsilon", 1e-5))
    op.emit(op.add("InstanceNormalization", [op.value("x"), scale, bias], epsilon=epsilon))


def _layer_norm(op: OperatorView) -> None:
    axes = sorted(each % op.rank for each in op.integers("axes", range(op.rank)))
    if axes != list(range(axes[0], op.rank)):
        raise NotLifted("layer_norm over other axes than the last")
    epsilon = float(op.constant("epsilon", 1e-5))
    scale = op.value("gamma") if op.has("gamma") else op.number(np.float32(1))
    operands = [op.value("x"), scale, *([op.value("beta")] if op.has("beta") else [])]
    op.emit(op.add("LayerNormalization", operands, axis=axes[0] - op.rank, epsilon=epsilon))


def _local_response_norm(op: OperatorView) -> None:
    settings: dict[str, Any] = {
        name: float(op.constant(mil, default))
        for name, mil, default in (("alpha", "alpha", 1e-4), ("beta", "beta", 0.75), ("bias", "k", 1.0))
    }
    op.emit(op.add("LRN", [op.value("x")], size=int(op.constant("size")), **settings))


def _lstm(op: OperatorView) -> None:
    """MIL has the gates i, f, o, g where ONNX has i, o, f, g, and one bias."""
    names = ("recurrent_activation", "sigmoid"), ("cell_activation", "tanh"), ("activation", "tanh")
    direction = str(op.constant("direction", "forward"))
    is_plain = all(str(op.constant(name, usual)) == usual for name, usual in names)
    if not is_plain or direction not in ("forward", "reverse") or op.has("peephole") or op.has("clip"):
        raise NotLifted("lstm of other activations, with peepholes or a clip, or of two directions")
    size = op.array("weight_hh").shape[1]
    order = op.number(np.arange(4 * size).reshape(4, size)[[0, 2, 1, 3]].reshape(-1))
    first, second = (op.number(np.array([each], np.int64)) for each in (0, 1))

    def whole(name: str) -> ir.Value:
        return op.add("Unsqueeze", [op.add("Gather", [op.value(name), order], axis=0), first])

    biases: list[ir.Value | None] = [None]
    if op.has("bias"):
        biases = [op.add("Concat", [whole("bias"), op.number(np.zeros((1, 4 * size), np.float32))], axis=1)]
    states = [op.add("Unsqueeze", [op.value(name), first]) for name in ("initial_h", "initial_c")]
    operands = [op.value("x"), whole("weight_ih"), whole("weight_hh"), *biases, None, *states]
    sequence, hidden, cell = op.lifting.add_all(
        "LSTM", operands, outputs=3, hidden_size=size, direction=direction
    )
    is_sequence = bool(op.constant("output_sequence", False))
    op.emit(op.add("Squeeze", [sequence, second]) if is_sequence else op.add("Identity", [hidden]))
    for place, value in ((1, hidden), (2, cell)):
        op.emit(op.add("Squeeze", [value, first]), place)


# ---- shapes


def _reshape(op: OperatorView) -> None:
    shape = op.add("Cast", [op.value("shape")], to=int(ir.DataType.INT64))
    op.emit(op.add("Reshape", [op.value("x"), shape]))


def _axes(name: str) -> Lift:
    def lift(op: OperatorView) -> None:
        axes = [op.number(np.array(op.integers("axes"), np.int64))] if op.has("axes") else []
        op.emit(op.add(name, [op.value("x"), *axes]))

    return lift


def _transpose(op: OperatorView) -> None:
    op.emit(op.add("Transpose", [op.value("x")], perm=[each % op.rank for each in op.integers("perm")]))


def _concat(op: OperatorView) -> None:
    if op.constant("interleave", False):
        raise NotLifted("concat that interleaves")
    op.emit(op.add("Concat", op.values("values"), axis=int(op.constant("axis"))))


def _pad(op: OperatorView) -> None:
    """Pairs of the last axes."""
    pairs, rank = op.integers("pad"), op.rank
    pairs = [0] * (2 * rank - len(pairs)) + pairs
    mode = str(op.constant("mode", "constant"))
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    pads = op.number(np.array(pairs[::2] + pairs[1::2], np.int64))
    value = [op.number(np.float32(op.constant("constant_val", 0.0)))] if mode == "constant" else []
    op.emit(op.add("Pad", [op.value("x"), pads, *value], mode=modes[mode]))


def _slice_by_index(op: OperatorView) -> None:
    begin, end = op.integers("begin"), op.integers("end")
    steps = op.integers("stride", [1] * len(begin))
    masks = {
        name: [bool(each) for each in np.asarray(op.constant(f"{name}_mask", [False] * len(begin)))]
        for name in ("begin", "end", "squeeze")
    }
    starts, ends = [], []
    for axis, step in enumerate(steps):
        starts.append((0 if step > 0 else 2**31 - 1) if masks["begin"][axis] else begin[axis])
        ends.append((2**31 - 1 if step > 0 else -(2**31)) if masks["end"][axis] else end[axis])
        if masks["squeeze"][axis]:
            ends[-1] = starts[-1] + 1 or 2**31 - 1
    numbers = [op.number(np.array(each, np.int64)) for each in (starts, ends, range(len(begin)), steps)]
    found = op.add("Slice", [op.value("x"), *numbers])
    if any(masks["squeeze"]):
        squeezed = [axis for axis, each in enumerate(masks["squeeze"]) if each]
        found = op.add("Squeeze", [found, op.number(np.array(squeezed, np.int64))])
    op.emit(found)


def _split(op: OperatorView) -> None:
    axis, count = int(op.constant("axis")), len(op.operation.outputs)
    sizes = op.integers("split_sizes") if op.has("split_sizes") else []
    if not sizes:
        whole = op.shape("x")[axis]
        if whole is None:
            raise NotLifted("split of an open axis")
        sizes = [whole // count] * count
    start = 0
    for place, size in enumerate(sizes):
        numbers = [op.number(np.array([each], np.int64)) for each in (start, start + size, axis)]
        op.emit(op.add("Slice", [op.value("x"), *numbers]), place)
        start += size


def _gather(op: OperatorView) -> None:
    if op.constant("batch_dims", 0):
        raise NotLifted("gather with batches")
    op.emit(op.add("Gather", [op.value("x"), op.value("indices")], axis=int(op.constant("axis", 0))))


def _reduce(name: str) -> Lift:
    def lift(op: OperatorView) -> None:
        axes = op.integers("axes", range(len(op.shape("x"))))
        keeps = int(bool(op.constant("keep_dims", False)))
        op.emit(op.add(name, [op.value("x"), op.number(np.array(axes, np.int64))], keepdims=keeps))

    return lift


def _stack(op: OperatorView) -> None:
    axis = int(op.constant("axis")) % op.rank
    wide = [
        op.add("Unsqueeze", [each, op.number(np.array([axis], np.int64))]) for each in op.values("values")
    ]
    op.emit(op.add("Concat", wide, axis=axis))


def _slice_by_size(op: OperatorView) -> None:
    begin, sizes = op.integers("begin"), op.integers("size")
    ends = [2**31 - 1 if size < 0 else start + size for start, size in zip(begin, sizes, strict=True)]
    numbers = [op.number(np.array(each, np.int64)) for each in (begin, ends, range(len(begin)))]
    op.emit(op.add("Slice", [op.value("x"), *numbers]))


def _blocks(name: str, parameter: str, **attributes: Any) -> Lift:
    def lift(op: OperatorView) -> None:
        op.emit(op.add(name, [op.value("x")], blocksize=int(op.constant(parameter)), **attributes))

    return lift


# ---- grids


def _grid(op: OperatorView, dtype: Any) -> tuple[list[ir.Value], dict[str, int]]:
    """Return scale and zero point of quantize and dequantize, and their axis."""
    scale = op.array("scale")
    zero = op.array("zero_point") if op.has("zero_point") else np.zeros(scale.shape)
    held = op.number(np.broadcast_to(zero, scale.shape).astype(dtype))
    return [op.value("scale"), held], {"axis": int(op.constant("axis", 0))} if scale.size > 1 else {}


def _quantize(op: OperatorView) -> None:
    dtype = np.dtype(str(op.constant("output_dtype")))
    operands, along = _grid(op, dtype)
    op.emit(op.add("QuantizeLinear", [op.value("input"), *operands], **along))
    op.lifting.grids[op.result] = dtype


def _dequantize(op: OperatorView) -> None:
    operands, along = _grid(op, np.dtype(op.dtype("input")))
    op.emit(op.add("DequantizeLinear", [op.value("input"), *operands], **along))


def _affine(op: OperatorView) -> None:
    """constexpr_affine_dequantize."""
    codes = op.array("quantized_data")
    operands, along = _grid(op, codes.dtype)
    op.emit(op.add("DequantizeLinear", [op.number(codes, "codes"), *operands], **along))


def _blockwise(op: OperatorView) -> None:
    """constexpr_blockwise_shift_scale: blocks along one axis, or a scale for each index of some."""
    codes, scale = op.codes("data"), op.array("scale")
    offset = op.array("offset") if op.has("offset") else np.zeros(scale.shape)
    blocked = [
        axis
        for axis, (size, count) in enumerate(zip(codes.shape, scale.shape, strict=True))
        if 1 < count < size
    ]
    if len(blocked) > 1:
        raise NotLifted("a grid in blocks along several axes")
    axis = blocked[0] if blocked else int(np.argmax(codes.shape))
    shape = tuple(count if each == axis else codes.shape[each] for each, count in enumerate(scale.shape))
    operands = [
        np.broadcast_to(each, shape) for each in (scale.astype(np.float32), offset.astype(codes.dtype))
    ]
    numbers = [op.number(each, "grid") for each in (codes, *operands)]
    op.emit(op.add("DequantizeLinear", numbers, axis=axis, block_size=codes.shape[axis] // shape[axis]))


OPERATORS: Mapping[str, Lift] = {
    **OF_SIZES,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AveragePool"),
    "upsample_nearest_neighbor": _scaled(
        "nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    ),
    "upsample_bilinear": _scaled("linear", {"coordinate_transformation_mode": "half_pixel"}),
    "resize": _resize,
    "resize_bilinear": _resize,
    "linear": _linear,
    "matmul": _matmul,
    "cast": _cast,
    "identity": _identity,
    "relu6": _clip(0.0, 6.0),
    "clip": _clip("alpha", "beta"),
    "leaky_relu": _with_alpha("LeakyRelu", 0.01),
    "elu": _with_alpha("Elu", 1.0),
    "sigmoid_hard": _sigmoid_hard,
    "prelu": _prelu,
    "gelu": _gelu,
    "silu": _silu,
    "square": _square,
    "rsqrt": _rsqrt,
    "inverse": _inverse,
    "log": _log,
    "not_equal": _not_equal,
    "softmax": _softmax,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "local_response_norm": _local_response_norm,
    "lstm": _lstm,
    "reshape": _reshape,
    "squeeze": _axes("Squeeze"),
    "expand_dims": _axes("Unsqueeze"),
    "transpose": _transpose,
    "concat": _concat,
    "pad": _pad,
    "slice_by_index": _slice_by_index,
    "split": _split,
    "gather": _gather,
    "stack": _stack,
    "slice_by_size": _slice_by_size,
    "pixel_shuffle": _blocks("DepthToSpace", "upscale_factor", mode="CRD"),
    "depth_to_space": _blocks("DepthToSpace", "block_size", mode="DCR"),
    "space_to_depth": _blocks("SpaceToDepth", "block_size"),
    "quantize": _quantize,
    "dequantize": _dequantize,
    "constexpr_affine_dequantize": _affine,
    "constexpr_blockwise_shift_scale": _blockwise,
    "select": _select,
    **{f"reduce_{name.lower()}": _reduce(f"Reduce{name}") for name in ("Mean", "Sum", "Max", "Min", "Prod")},
    **{
        mil: _same(onnx, "x", "y")
        for mil, onnx in {
            "add": "Add",
            "sub": "Sub",
            "mul": "Mul",
            "real_div": "Div",
            "pow": "Pow",
            "maximum": "Max",
            "minimum": "Min",
            "less": "Less",
            "greater": "Greater",
            "greater_equal": "GreaterOrEqual",
            "less_equal": "LessOrEqual",
            "logical_xor": "Xor",
            "equal": "Equal",
            "logical_and": "And",
            "logical_or": "Or",
        }.items()
    },
    **{
        mil: _same(onnx)
        for mil, onnx in {
            "relu": "Relu",
            "sigmoid": "Sigmoid",
            "tanh": "Tanh",
            "erf": "Erf",
            "exp": "Exp",
            "sqrt": "Sqrt",
            "abs": "Abs",
            "sin": "Sin",
            "cos": "Cos",
            "floor": "Floor",
            "ceil": "Ceil",
            "round": "Round",
            "sign": "Sign",
            "logical_not": "Not",
            "softplus": "Softplus",
            "softsign": "Softsign",
        }.items()
    },
}
