"""Random nodes that sample, window or detect, against ONNX Runtime: all operands at run time, and all but one bound.

Each family draws a node that ONNX Runtime accepts, as in test_random_nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.core.errors import CannotConvertError
from tests.conformance.harness import Array, Harness, difference
from tests.conformance.tflite import Conformance
from tests.converters.tflite.models import model_of, run_onnx

SEEDS, MORE_SEEDS = 4, 40  # per family and way; hundreds were run when the families were written


class Drawn:
    """One node under construction and its operands, the first of which is always fed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.operands: dict[str, Array] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: list[str] = []
        self.open_axes: dict[str, dict[int, str]] = {}
        self.atol = 1e-5

    def floats(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype(np.float32)

    def size(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        return [self.size(low, high) for _ in range(count)]

    def choice(self, *options: Any) -> Any:
        return options[self.size(0, len(options) - 1)]

    def operand(self, array: Array, **open_axes: int) -> str:
        """A new operand; the axes named stay open when it is fed."""
        name = f"x{len(self.operands)}"
        self.operands[name] = array
        self.open_axes[name] = {axis: symbol for symbol, axis in open_axes.items()}
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> None:
        self.outputs = [f"y{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), self.outputs, op, **attributes))


def resize(draw: Drawn) -> None:
    shape = [1, draw.size(1, 2), *draw.sizes(2, 2, 6)]
    mode = draw.choice("nearest", "linear", "cubic")
    coordinates = draw.choice(
        *"half_pixel asymmetric align_corners pytorch_half_pixel half_pixel_symmetric tf_crop_and_resize".split()
    )
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = draw.choice("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    elif coordinates in ("half_pixel", "asymmetric") and draw.choice(True, False):
        attributes["antialias"] = 1
    if mode == "cubic":
        attributes |= {"exclude_outside": draw.size(0, 1), "cubic_coeff_a": draw.choice(-0.5, -0.75)}
    axes = draw.choice([0, 1, 2, 3], [2, 3], [3, 2])
    spatial = [axis for axis in axes if axis > 1]
    if len(axes) == 2:
        attributes["axes"] = axes
    x = draw.operand(draw.floats(*shape), h=2, w=3)
    roi = ""
    if coordinates == "tf_crop_and_resize":
        attributes["extrapolation_value"] = 7.0
        bounds = np.array([[draw.choice(0.0, 0.2, -0.3), draw.choice(1.0, 0.7, 1.4)] for _ in spatial])
        whole = np.array([[0.0, 1.0]] * (len(axes) - 2) + bounds.tolist())
        roi = draw.operand(whole.T.reshape(-1).astype(np.float32))
    if draw.choice(True, False):
        factors = [1.0 if axis < 2 else draw.choice(0.5, 0.6, 1.0, 1.5, 2.0, 3.0) for axis in axes]
        draw.node("Resize", x, roi, draw.operand(np.array(factors, np.float32)), **attributes)
        return
    wanted = [shape[axis] if axis < 2 else draw.size(1, 9) for axis in axes]
    if len(axes) == 2 and coordinates != "tf_crop_and_resize":
        attributes["keep_aspect_ratio_policy"] = draw.choice("stretch", "not_larger", "not_smaller")
    draw.node("Resize", x, roi, "", draw.operand(np.array(wanted, np.int64)), **attributes)


def grid_sample(draw: Drawn) -> None:
    spatial = draw.choice(2, 2, 3)
    batch, channels = draw.sizes(2, 1, 3)
    x = draw.operand(draw.floats(batch, channels, *draw.sizes(spatial, 1, 5)), n=0, h=2)
    grid = draw.random.uniform(-1.6, 1.6, (batch, *draw.sizes(spatial, 1, 4), spatial)).astype(np.float32)
    draw.node(
        "GridSample",
        x,
        draw.operand(grid, n=0, wide=2),
        mode=draw.choice("linear", "nearest", *["cubic"] * (spatial == 2)),
        padding_mode=draw.choice("zeros", "border", "reflection"),
        align_corners=draw.size(0, 1),
    )


def affine_grid(draw: Drawn) -> None:
    spatial, batch = draw.choice(2, 3), draw.size(1, 3)
    theta = draw.operand(draw.floats(batch, spatial, spatial + 1))
    size = np.array([batch, draw.size(1, 3), *draw.sizes(spatial, 1, 4)], np.int64)
    draw.node("AffineGrid", theta, draw.operand(size), align_corners=draw.size(0, 1))


def non_max_suppression(draw: Drawn) -> None:
    images, classes, count = draw.size(1, 2), draw.size(1, 3), draw.size(1, 12)
    # On a coarse grid boxes coincide, have no area, and overlap by exactly the threshold; scores tie.
    coarse = draw.choice(True, False)
    corners = draw.random.integers(0, 5, (images, count, 4)) if coarse else draw.floats(images, count, 4)
    scores = draw.random.random((images, classes, count))
    if draw.choice(True, False):
        scores = np.round(scores, 1)
    boxes = draw.operand(corners.astype(np.float32), n=1)
    operands = [
        draw.operand(scores.astype(np.float32), n=2),
        draw.operand(np.array([draw.choice(0, 1, 3, 100, 2**62)], np.int64)),
        draw.operand(np.array([draw.choice(0.0, 0.25, 0.5, 1.0)], np.float32)),
    ]
    if draw.choice(True, False):
        operands.append(draw.operand(np.array([draw.choice(0.0, 0.3, 0.5)], np.float32)))
    draw.node("NonMaxSuppression", boxes, *operands, center_point_box=draw.size(0, 1))


def pad(draw: Drawn) -> None:
    rank = draw.size(1, 4)
    shape = draw.sizes(rank, 2, 4)
    mode = draw.choice("constant", "reflect", "edge", "wrap")
    dtype = draw.choice(np.float32, np.int32, np.int64, np.uint8, bool)
    x = draw.operand((draw.floats(*shape) * 9).astype(dtype), a=0)
    axes = sorted(draw.random.permutation(rank)[: draw.size(1, rank)].tolist())
    low = draw.choice(0, -1) if mode == "constant" else 0
    count = draw.choice(len(axes), rank)
    amounts = np.array(draw.sizes(2 * count, low, min(shape) - 1), np.int64)
    fill = [draw.operand(np.array(1, dtype))] if mode == "constant" and draw.choice(True, False) else [""]
    signed = np.array([axis - draw.choice(0, rank) for axis in axes], np.int64)
    which = [draw.operand(signed)] if count == len(axes) else []
    draw.node("Pad", x, draw.operand(amounts), *fill, *which, mode=mode)


def center_crop_pad(draw: Drawn) -> None:
    rank = draw.size(1, 4)
    axes = draw.random.permutation(rank)[: draw.size(1, rank)].tolist()
    x = draw.operand(draw.floats(*draw.sizes(rank, 1, 6)), a=0)
    attributes = {"axes": [axis - draw.choice(0, rank) for axis in axes]} if draw.choice(True, False) else {}
    wanted = np.array(draw.sizes(len(axes) if attributes else rank, 1, 7), np.int64)
    draw.node("CenterCropPad", x, draw.operand(wanted), **attributes)


def col2im(draw: Drawn) -> None:
    spatial = draw.choice(1, 2, 2, 3)
    block, strides, dilations = (draw.sizes(spatial, 1, 2) for _ in range(3))
    pads = draw.sizes(2 * spatial, 0, 1)
    counts = draw.sizes(spatial, 1, 3)
    image = [
        (counts[i] - 1) * strides[i] + (block[i] - 1) * dilations[i] + 1 - pads[i] - pads[spatial + i]
        for i in range(spatial)
    ]
    x = draw.operand(
        draw.floats(draw.size(1, 2), draw.size(1, 3) * int(np.prod(block)), int(np.prod(counts)))
    )
    sizes = [draw.operand(np.array(each, np.int64)) for each in (image, block)]
    draw.node("Col2Im", x, *sizes, strides=strides, dilations=dilations, pads=pads)


def pooled(draw: Drawn, **more: Any) -> dict[str, Any]:
    spatial = draw.choice(1, 2, 2, 3)
    kernel = draw.sizes(spatial, 1, 3)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": draw.sizes(spatial, 1, 3), **more}
    if draw.choice(True, False):
        attributes["pads"] = [min(draw.size(0, 2), k - 1) for k in kernel * 2]
    return attributes


def max_pool(draw: Drawn) -> None:
    attributes = pooled(draw, storage_order=draw.size(0, 1), ceil_mode=draw.size(0, 1))
    spatial = len(attributes["kernel_shape"])
    if draw.choice(True, False):
        attributes["dilations"] = draw.sizes(spatial, 1, 2)
    elif draw.choice(True, False):
        attributes.pop("pads", None)
        attributes["auto_pad"] = draw.choice("SAME_UPPER", "SAME_LOWER", "VALID")
    x = draw.floats(draw.size(1, 2), draw.size(1, 3), *draw.sizes(spatial, 6, 9))
    x = np.round(x, draw.choice(0, 6)).astype(np.float32)
    draw.node("MaxPool", draw.operand(x, n=0, h=2), outputs=2, **attributes)


def max_unpool(draw: Drawn) -> None:
    attributes = pooled(draw)
    x = draw.operand(draw.floats(draw.size(1, 2), 2, *draw.sizes(len(attributes["kernel_shape"]), 6, 9)))
    draw.node("MaxPool", x, outputs=2, **attributes)
    draw.nodes.append(helper.make_node("MaxUnpool", list(draw.outputs), ["z"], "MaxUnpool", **attributes))
    draw.outputs = ["z"]


def roi_align(draw: Drawn) -> None:
    images, regions = draw.size(1, 2), draw.size(1, 4)
    x = draw.operand(draw.floats(images, draw.size(1, 3), *draw.sizes(2, 2, 8)), h=2)
    corners = draw.random.uniform(-4, 12, (regions, 2))
    rois = np.concatenate([corners, corners + draw.random.uniform(-1, 9, (regions, 2))], axis=1)
    draw.node(
        "RoiAlign",
        x,
        draw.operand(rois.astype(np.float32), r=0),
        draw.operand(draw.random.integers(0, images, regions), r=0),
        output_height=draw.size(1, 3),
        output_width=draw.size(1, 3),
        sampling_ratio=draw.choice(0, 1, 2),
        spatial_scale=draw.choice(1.0, 0.5),
        coordinate_transformation_mode=draw.choice("half_pixel", "output_half_pixel"),
    )


def max_roi_pool(draw: Drawn) -> None:
    images, regions = draw.size(1, 2), draw.size(1, 4)
    x = draw.operand(draw.floats(images, draw.size(1, 3), *draw.sizes(2, 2, 8)), h=2)
    corners = draw.random.uniform(-2, 9, (regions, 2))
    ends = corners + draw.random.uniform(-1, 7, (regions, 2))
    batch = draw.random.integers(0, images, (regions, 1))
    rois = np.concatenate([batch, corners, ends], axis=1).astype(np.float32)
    shape = draw.sizes(2, 1, 4)
    draw.node(
        "MaxRoiPool", x, draw.operand(rois, r=0), pooled_shape=shape, spatial_scale=draw.choice(1.0, 0.5)
    )


def deform_conv(draw: Drawn) -> None:
    groups, offset_groups = draw.choice(1, 1, 2), draw.choice(1, 1, 2)
    inner, outer = 2 * draw.size(1, 2), groups * draw.size(1, 2)
    batch, kernel, strides, dilations = draw.size(1, 2), *(draw.sizes(2, 1, n) for n in (3, 2, 2))
    pads, size = draw.sizes(4, 0, 1), draw.sizes(2, 5, 7)
    result = [
        (size[i] + pads[i] + pads[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    taps = offset_groups * kernel[0] * kernel[1]
    x = draw.operand(draw.floats(batch, inner, *size), n=0)
    operands = [
        draw.operand(draw.floats(outer, inner // groups, *kernel)),
        draw.operand(draw.floats(batch, 2 * taps, *result), n=0),
        draw.operand(draw.floats(outer)) if draw.choice(True, False) else "",
        *([draw.operand(draw.floats(batch, taps, *result), n=0)] if draw.choice(True, False) else []),
    ]
    draw.node(
        "DeformConv",
        x,
        *operands,
        group=groups,
        offset_group=offset_groups,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )


def det(draw: Drawn) -> None:
    size = draw.size(1, 6)
    x = draw.floats(*draw.sizes(draw.size(0, 2), 1, 3), size, size)
    draw.node("Det", draw.operand(np.round(x) if draw.choice(True, False) else x, n=0))


def batch_normalization(draw: Drawn) -> None:
    channels = draw.size(1, 4)
    x = draw.operand(draw.floats(draw.size(2, 3), channels, *draw.sizes(draw.size(0, 3), 2, 4)), n=0)
    operands = [draw.operand(np.abs(draw.floats(channels))) for _ in range(4)]
    momentum = draw.choice(0.9, 0.5)
    draw.node("BatchNormalization", x, *operands, outputs=3, training_mode=1, momentum=momentum)


def conv(draw: Drawn) -> None:
    spatial, groups = draw.choice(1, 2, 3), draw.choice(1, 2, 4)
    inner, outer = groups * draw.size(1, 2), groups * draw.size(1, 2)
    kernel = draw.sizes(spatial, 1, 3)
    x = draw.operand(draw.floats(draw.size(1, 2), inner, *draw.sizes(spatial, 5, 7)), n=0, h=2)
    weights = draw.operand(draw.floats(outer, inner // groups, *kernel))
    bias = [draw.operand(draw.floats(outer))] if draw.choice(True, False) else []
    strides, dilations = (draw.sizes(spatial, 1, 2) for _ in range(2))
    pads = [draw.size(0, k - 1) for k in kernel * 2]
    draw.node("Conv", x, weights, *bias, group=groups, strides=strides, dilations=dilations, pads=pads)


def conv_transpose(draw: Drawn) -> None:
    spatial, groups = draw.choice(1, 2, 2, 3), draw.choice(1, 1, 2)
    inner, outer = groups * draw.size(1, 2), draw.size(1, 2)
    kernel, strides = draw.sizes(spatial, 1, 3), draw.sizes(spatial, 1, 3)
    attributes: dict[str, Any] = {"strides": strides, "kernel_shape": kernel, "group": groups}
    if draw.choice(True, False):
        attributes["dilations"] = draw.sizes(spatial, 1, 2)
    size = draw.sizes(spatial, 2, 4)
    how = draw.choice("none", "pads", "SAME_UPPER", "SAME_LOWER", "output_shape")
    if how == "pads":
        attributes["pads"] = [draw.size(0, k - 1) for k in kernel * 2]
    elif how == "output_shape":
        attributes["output_shape"] = [
            (n - 1) * s + draw.size(1, 5) for n, s in zip(size, strides, strict=True)
        ]
    elif how != "none":
        attributes["auto_pad"] = how
    if how in ("none", "pads") and draw.choice(True, False):
        attributes["output_padding"] = [draw.size(0, s - 1) for s in strides]
    x = draw.operand(draw.floats(draw.size(1, 2), inner, *size), n=0, h=2)
    weights = draw.operand(draw.floats(inner, outer, *kernel))
    bias = [draw.operand(draw.floats(outer * groups))] if draw.choice(True, False) else []
    draw.node("ConvTranspose", x, weights, *bias, **attributes)


def pool(draw: Drawn) -> None:
    op = draw.choice("MaxPool", "AveragePool", "LpPool")
    attributes = pooled(draw, ceil_mode=draw.size(0, 1))
    spatial = len(attributes["kernel_shape"])
    attributes["dilations"] = draw.sizes(spatial, 1, 2)
    if op == "LpPool":
        attributes["p"] = draw.size(1, 3)
    x = draw.floats(draw.size(1, 2), draw.size(1, 3), *draw.sizes(spatial, 6, 9))
    draw.node(op, draw.operand(x, n=0, h=2), **attributes)


FAMILIES: dict[str, Callable[[Drawn], None]] = {
    "affine_grid": affine_grid,
    "batch_normalization": batch_normalization,
    "deform_conv": deform_conv,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "pool": pool,
    "det": det,
    "max_roi_pool": max_roi_pool,
    "roi_align": roi_align,
    "center_crop_pad": center_crop_pad,
    "col2im": col2im,
    "max_pool": max_pool,
    "max_unpool": max_unpool,
    "grid_sample": grid_sample,
    "non_max_suppression": non_max_suppression,
    "pad": pad,
    "resize": resize,
}


@pytest.mark.parametrize("way", ["fed", "bound", "open"])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_nodes_compute_what_onnx_runtime_does(conformance: Conformance, family: str, way: str) -> None:
    faults = [fault for seed in range(SEEDS) if (fault := check(conformance, family, seed, way)[1])]
    assert not faults


def check(conformance: Harness, family: str, seed: int, way: str) -> tuple[str, str]:
    """Return what became of the drawn node, and how its answers differ from ONNX Runtime's if they do."""
    draw = Drawn(seed)
    FAMILIES[family](draw)
    feeds = dict(draw.operands)
    if way == "bound":
        feeds = {"x0": feeds["x0"]}
    bound = [numpy_helper.from_array(a, name) for name, a in draw.operands.items() if name not in feeds]
    dims = {
        name: [draw.open_axes[name].get(axis, size) for axis, size in enumerate(array.shape)]
        for name, array in feeds.items()
        if way == "open"
    }
    model = model_of(draw.nodes, feeds, bound, outputs=draw.outputs, open_dims=dims)
    try:
        expected = run_onnx(model, feeds)
    except Exception as error:
        return f"not taken by ONNX Runtime: {str(error)[:200]}", ""
    shapes = {name: array.shape for name, array in draw.operands.items()}
    what = f"{family} {seed} {way}: {helper.printable_node(draw.nodes[-1])} {shapes}"
    try:
        (answer,) = conformance.convert_and_run(model, [feeds])
    except CannotConvertError as error:
        return f"refused: {error}", ""
    except Exception as error:
        return "crash", f"{what}: {error}"
    found = [difference(value, answer[name], atol=draw.atol) for name, value in expected.items()]
    return "right", "".join(f"{what}: {fault}" for fault in found if fault)
