"""Resize, GridSample, RoiAlign and DFT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers


@lowers("Resize", version=18)
def resize_axes(node: Node) -> None:
    """Expand sizes and scales of some axes to all axes."""
    if node.attribute("antialias", 0):
        raise NoForm("antialias came with opset 18")
    axes = node.attribute("axes")
    keeps_ratio = node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    if keeps_ratio and node.input(3) is not None:
        raise NoForm("keep_aspect_ratio_policy came with opset 18")
    if axes is not None and node.input(1) is not None:
        raise NoForm("a region for some axes came with opset 18")
    counted = _count_from_front(node, axes or ())
    for name in ("antialias", "axes", "keep_aspect_ratio_policy"):
        node.take(name)
    if axes is None:
        return
    shape, where = node.before("Shape", node.x), node.constant(counted)
    scales, sizes = node.input(2), node.input(3)
    if scales is not None:
        one = ir.tensor(np.ones(1, np.float32))
        ones = node.before("ConstantOfShape", node.before("Shape", shape), value=one)
        node.put_input(2, node.before("ScatterElements", ones, where, scales, axis=0))
    elif sizes is not None:
        node.put_input(3, node.before("ScatterElements", shape, where, sizes, axis=0))


def _count_from_front(node: Node, axes: Sequence[int]) -> list[int]:
    shape = node.shape(node.x)
    if shape is None and min(axes, default=0) < 0:
        raise NoForm("the rank of its input is unknown, and its axes are counted from the back")
    return [axis if axis >= 0 else axis + len(shape or ()) for axis in axes]


@lowers("Resize", version=13)
def resize_inputs(node: Node) -> None:
    """Add empty `roi` and `scales`, which were required."""
    for index in (1, 2):
        if node.input(index) is None:
            node.put_input(index, node.constant([], ir.DataType.FLOAT))


@lowers("GridSample", version=20)
def grid_sample(node: Node) -> None:
    """Rename modes; other than two dimensions are refused."""
    shape = node.shape(node.x)
    if shape is not None and len(shape) != 4:
        raise NoForm(f"it samples {len(shape) - 2} dimensions, and before opset 20 there were two")
    renamed = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.attribute("mode", "linear")
    node.put(mode=renamed.get(mode, mode))


@lowers("RoiAlign", version=16)
def roi_align(node: Node) -> None:
    """Drop the coordinate mode; only the corner-based one has an older form."""
    if node.attribute("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise NoForm("half_pixel coordinates came with opset 16")
    node.take("coordinate_transformation_mode")


@lowers("DFT", version=20)
def dft(node: Node) -> None:
    """Move `axis` back to an attribute; its default was 1, not the last before the complex pair."""
    value = node.input(2)
    axis = np.array(-2) if value is None else node.array(value)
    if axis is None:
        raise NoForm("its axis is computed at run time; before opset 20 it is an attribute")
    node.put(axis=int(axis))
    node.drop_input(2)
