"""Adapters from each operator's old form to the newer one, one per version that changed form or meaning.

`lift` applies them in the order of versions. Changes that only add types or options need none; a test checks that
every change of ONNX's schemas is covered. Where the specification is silent (Resize-10's nearest, Dropout's mask),
ONNX Runtime's answer decides.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, adapts, required

_FLOAT_MAX = float(np.finfo(np.float32).max)
# Adapters that need types or shapes of values.
NEED_TYPES = frozenset(
    [
        ("Dropout", 10),
        ("Clip", 11),
        ("Pad", 11),
        ("Softmax", 13),
        ("LogSoftmax", 13),
        ("Hardmax", 13),
        ("GroupNormalization", 21),
    ]
)


# Attributes that became inputs and kept their meaning: (operator, version): {attribute: index of the input}.
MOVED: dict[tuple[str, int], dict[str, int]] = {
    ("Upsample", 9): {"scales": 1},
    ("Slice", 10): {"starts": 1, "ends": 2, "axes": 3},
    ("TopK", 10): {"k": 1},
    ("Squeeze", 13): {"axes": 1},
    ("Unsqueeze", 13): {"axes": 1},
    ("Split", 13): {"split": 1},
    ("ReduceSum", 13): {"axes": 1},
    **{
        (f"Reduce{kind}", 18): {"axes": 1}
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}


def _moves(op_type: str, version: int, places: dict[str, int]) -> None:
    schema = onnx.defs.get_schema(op_type, version - 1, "")

    @adapts(op_type, version=version)
    def move(node: Node) -> None:
        for name, index in places.items():
            required = schema.attributes[name].required
            values = node.demand(name) if required else node.take(name)
            if values or required:  # an empty optional list means the same as none: all axes
                dtype = ir.DataType.FLOAT if name == "scales" else ir.DataType.INT64
                node.put_input(index, node.constant(np.atleast_1d(values), dtype))


for (_op_type, _version), _places in MOVED.items():
    _moves(_op_type, _version, _places)


@adapts("BatchNormalization", version=9)
def batch_normalization_spatial(node: Node) -> None:
    """Write `spatial=0`, statistics per element, out: (x - mean) / sqrt(var + eps) * scale + b."""
    if node.attribute("spatial", 1) == 1:
        node.take("spatial")
        return
    if any(node.uses_output(index) for index in range(1, 5)):
        raise NoForm("it trains statistics per element (spatial=0); export the model for inference")
    x, scale, bias, mean, variance = (required(value) for value in node.ir.inputs)
    epsilon = node.scalar(node.attribute("epsilon", 1e-5), like=variance)
    deviation = node.before("Sqrt", node.before("Add", variance, epsilon))
    normal = node.before("Div", node.before("Sub", x, mean), deviation)
    node.drop_outputs(1)
    node.become("Add", node.before("Mul", normal, scale), bias)


@adapts("BatchNormalization", version=14)
def batch_normalization_training(node: Node) -> None:
    """Set `training_mode` where there are more outputs than y; saved_mean and saved_var are gone."""
    if any(node.uses_output(index) for index in (3, 4)):
        raise NoForm("its outputs saved_mean and saved_var have readers; opset 14 removed them")
    if any(value.name for value in node.ir.outputs[1:]):
        node.drop_outputs(3)
        node.put(training_mode=1)
    else:
        node.drop_outputs(1)


@adapts("MeanVarianceNormalization", version=9)
def mean_variance_normalization(node: Node) -> None:
    """Convert `across_channels` and `normalize_variance` of the experimental form to `axes`."""
    axes = [0, 1, 2, 3] if node.take("across_channels", 0) else [0, 2, 3]
    if node.take("normalize_variance", 1):
        node.put(axes=axes)
    else:
        node.become("Sub", node.x, node.before("ReduceMean", node.x, axes=axes))


@adapts("Scan", version=9)
def scan_batch(node: Node) -> None:
    """Write the batch of Scan-8 as a Scan over the batch, whose body is the Scan over the sequence."""
    if node.input(0) is not None:
        raise NoForm("its sequence_lens give each batch entry its own length")
    body = node.attribute("body")
    options = {"body": body, "num_scan_inputs": node.attribute("num_scan_inputs")}
    if directions := node.attribute("directions"):
        options["scan_input_directions"] = directions
    entries, results = ([node.twin(value) for value in values] for values in (body.inputs, body.outputs))
    over_sequence = ir.Node(
        "", "Scan", entries, ir.convenience.convert_attributes(options), outputs=results, name=body.name
    )
    over_batch = ir.Graph(entries, results, nodes=[over_sequence], name=f"{body.name}_over_batch")
    values = node.ir.inputs[1:]
    node.become("Scan", *values, body=over_batch, num_scan_inputs=len(values))


@adapts("Dropout", version=10)
def dropout_mask_type(node: Node) -> None:
    """Cast the boolean mask to the data's type, which it had."""
    if not node.uses_output(1):
        node.drop_outputs(1)
        return
    dtype = node.dtype(node.x)
    if dtype is None:
        raise NoForm(f"its mask has a reader and the type of its input {node.x.name!r} is unknown")
    node.after(1, "Cast", to=int(dtype))
    node.ir.outputs[1].type = ir.TensorType(ir.DataType.BOOL)


@adapts("Dropout", version=12)
def dropout_inference(node: Node) -> None:
    """Drop `ratio`, which had no effect; ONNX Runtime's mask was False, and is True since version 12."""
    node.take("ratio")
    if node.uses_output(1):
        shape = node.before("Shape", node.x)
        node.hand_over(1, node.before("ConstantOfShape", shape, value=ir.tensor(np.array([False]))))
    node.drop_outputs(1)


@adapts("Upsample", version=10)
def upsample(node: Node) -> None:
    """Rewrite Upsample as a Resize that never shrinks."""
    node.become("Resize", *node.ir.inputs, mode=node.attribute("mode", "nearest"))
    node.ir.meta[_NEVER_SHRINKS] = True


_NEVER_SHRINKS = "onnxport.opset: scales are 1 or more"


@adapts("Resize", version=11)
def resize_coordinates(node: Node) -> None:
    """Write the fixed rules of version 10 as attributes: asymmetric coordinates; nearest rounds down, up where an
    axis shrinks.

    The rounding is ONNX Runtime's (NearestMode::SIMPLE in upsamplebase.h). A Resize that may shrink some axes and
    grow others becomes two.
    """
    x, scales = node.x, required(node.input(1))
    roi = node.constant([], ir.DataType.FLOAT)
    options = {"mode": node.attribute("mode", "nearest"), "coordinate_transformation_mode": "asymmetric"}
    if options["mode"] == "nearest":
        known = node.array(scales)
        grows = node.ir.meta.pop(_NEVER_SHRINKS, False) or (known is not None and bool((known >= 1).all()))
        shrinks = known is not None and bool((known <= 1).all())
        if not grows and not shrinks:
            one = node.constant(1.0, ir.DataType.FLOAT)
            x = node.before("Resize", x, roi, node.before("Min", scales, one), **options, nearest_mode="ceil")
            scales = node.before("Max", scales, one)
        options["nearest_mode"] = "ceil" if shrinks and not grows else "floor"
    node.become("Resize", x, roi, scales, **options)


@adapts("Resize", version=13)
def resize_optional_inputs(node: Node) -> None:
    """Drop empty `roi`, `scales` and `sizes`; scales beside sizes had to be empty."""
    resize_half_pixel_for_nn(node)
    for index in range(1, len(node.ir.inputs)):
        value, array = node.input(index), node.array(node.input(index))
        if value is not None and array is not None and array.size == 0:
            node.put_input(index, None)
            node.forget(value)
    if node.input(3) is not None and node.input(2) is not None:
        node.put_input(2, None)


@adapts("Resize", version=19)
def resize_half_pixel_for_nn(node: Node) -> None:
    """Rewrite tf_half_pixel_for_nn, which only Resize-11 has, but tf2onnx writes into newer models.

    Its coordinate (i + 0.5) / scale is half_pixel's plus 0.5: floor becomes round_prefer_ceil, and
    round_prefer_floor ceil. The other two rounding modes have no equivalent.
    """
    if node.attribute("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return
    rounding = _HALF_A_PIXEL_BEFORE.get(node.attribute("nearest_mode", "round_prefer_floor"))
    if rounding is None or node.attribute("mode", "nearest") != "nearest":
        raise NoForm("newer opsets have tf_half_pixel_for_nn for floor and round_prefer_floor only")
    node.put(coordinate_transformation_mode="half_pixel", nearest_mode=rounding)


_HALF_A_PIXEL_BEFORE = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


@adapts("Clip", version=11)
def clip(node: Node) -> None:
    """Move bounds to inputs; the old default, the largest float32, means no bound."""
    x = node.x
    for index, (name, no_bound) in enumerate((("min", -_FLOAT_MAX), ("max", _FLOAT_MAX)), start=1):
        bound = node.take(name, no_bound)
        if bound != no_bound:
            node.put_input(index, node.scalar(bound, like=x))


@adapts("Pad", version=11)
def pad(node: Node) -> None:
    """Move `pads` and `value` to inputs; the default padding is zero."""
    node.put_input(1, node.constant(node.demand("pads")))
    if value := node.take("value", 0.0):
        node.put_input(2, node.scalar(value, like=node.x))


@adapts("Scatter", version=11)
def scatter(node: Node) -> None:
    """Rename to ScatterElements."""
    axis = node.attribute("axis", 0)
    node.become("ScatterElements", *node.ir.inputs, axis=axis)


@adapts("Softmax", "LogSoftmax", "Hardmax", version=13)
def softmax(node: Node) -> None:
    """Convert from all axes from `axis` (default 1) on, taken as one, to `axis` (default -1) alone.

    The forms are equal when at most one of those axes is longer than 1. Otherwise the tensor is flattened to two
    dimensions and reshaped back.
    """
    axis = node.attribute("axis", 1)
    shape = node.shape(node.x)
    if shape is not None and -len(shape) <= axis < len(shape):
        first = axis % len(shape)
        long = [index for index in range(first, len(shape)) if shape[index] != 1]
        if len(long) <= 1:
            node.put(axis=long[0] if long else len(shape) - 1)
            return
    if axis == -1:
        return
    original = node.before("Shape", node.x)
    node.put_input(0, node.before("Flatten", node.x, axis=axis))
    node.put(axis=-1)
    node.after(0, "Reshape", original)


@adapts("RoiAlign", version=16)
def roi_align(node: Node) -> None:
    """Set the old default of the coordinate mode: the pixel's corner."""
    node.put(
        coordinate_transformation_mode=node.attribute("coordinate_transformation_mode", "output_half_pixel")
    )


@adapts("Split", version=18)
def split_evenly(node: Node) -> None:
    """Set the number of parts of a split without sizes."""
    if node.input(1) is None:
        node.put(num_outputs=len(node.ir.outputs))


@adapts("GridSample", version=20)
def grid_sample(node: Node) -> None:
    """Rename modes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    if (mode := node.attribute("mode")) in renamed:
        node.put(mode=renamed[mode])


@adapts("DFT", version=20)
def dft(node: Node) -> None:
    """Move `axis` to an input; its default was 1, and is the last before the complex pair."""
    node.put_input(2, node.constant(node.take("axis", 1)))


@adapts("GroupNormalization", version=21)
def group_normalization(node: Node) -> None:
    """Repeat scale and bias, which were per group, for the channels of each group."""
    x, scale, bias = (required(value) for value in node.ir.inputs)
    groups = node.attribute("num_groups")
    shape = node.shape(x)
    if shape is not None and shape[1] is not None:
        target = node.constant([groups, shape[1] // groups])
    else:
        channels = node.before("Shape", x, start=1, end=2)
        each = node.before("Div", channels, node.constant([groups]))
        target = node.before("Concat", node.constant([groups]), each, axis=0)
    last, flat = node.constant([1]), node.constant([-1])
    for index, value in enumerate((scale, bias), start=1):
        repeated = node.before("Expand", node.before("Unsqueeze", value, last), target)
        node.put_input(index, node.before("Reshape", repeated, flat))
