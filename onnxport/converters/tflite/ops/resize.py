"""Image resizing: only the sampling rules that TFLite's kernels share with ONNX, anything else is refused."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import channels_last, permuted
from onnxport.converters.tflite.registry import lower

# ONNX coordinate_transformation_mode -> TFLite's (align_corners, half_pixel_centers) for bilinear sampling.
LINEAR = {
    "half_pixel": (False, True),
    "align_corners": (True, False),
    "asymmetric": (False, False),
}


@lower("Resize")
def resize(node: TflNode, tfl: TflBuilder) -> None:
    """Resizes the spatial axes of [N, C, H, W] (ONNX Resize-19), sizes known at conversion."""
    x = node.x
    for index in (1, 2, 3):  # roi, scales, sizes: shape inference has turned them into the result's shape
        if node.has_input(index):
            node.optional(index)
    # The first three concern modes refused below; the inferred shape and scales[-2:] hold for any `axes`.
    node.ignore("cubic_coeff_a", "extrapolation_value", "exclude_outside", "axes")
    if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        node.unsupported("a keep_aspect_ratio_policy; give the final sizes")
    shape = node.output_shape()
    sizes = shape[2:]
    if x.rank != 4 or shape[:2] != x.shape[:2]:
        node.unsupported("resizes other than the last two of four axes")
    if None in sizes or None in x.shape[2:]:
        node.unsupported("an open spatial size; fix the input's size with --shape NAME=...")
    if node.attribute("antialias", 0):
        node.unsupported("antialias; TFLite's resizing has none")
    name, align_corners, half_pixel_centers = _sampling(node, x.shape[2:], sizes)
    order = channels_last(4)
    result = tfl.op(
        name,
        [tfl.tensor(x, order), tfl.int32([dim or 0 for dim in sizes])],
        permuted(shape, order),
        x.dtype,
        align_corners=align_corners,
        half_pixel_centers=half_pixel_centers,
    )
    node.emit(tfl.computed(result, x.dtype, order))


def _sampling(
    node: TflNode, before: tuple[int | None, ...], after: tuple[int | None, ...]
) -> tuple[str, bool, bool]:
    """The TFLite op and its (align_corners, half_pixel_centers), or a refusal."""
    mode = node.attribute("mode", "nearest")
    coordinates = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    _refuse_uneven_scales(node, before, after)
    if mode == "linear":
        if coordinates == "pytorch_half_pixel" and 1 not in after:
            coordinates = "half_pixel"  # they differ for a result of size 1 only
        if coordinates not in LINEAR:
            node.unsupported(f"linear sampling at {coordinates} coordinates")
        return ("resize_bilinear", *LINEAR[coordinates])
    if mode == "nearest":
        whole = all(b and a and a % b == 0 for b, a in zip(before, after, strict=True))
        if coordinates == "asymmetric" and rounding == "floor":
            return "resize_nearest_neighbor", False, False
        # At whole factors every rounding rule below picks floor(i / factor).
        if whole and coordinates in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round"):
            return "resize_nearest_neighbor", False, False
        node.unsupported(f"nearest sampling at {coordinates} coordinates rounded by {rounding}")
    node.unsupported(f"mode {mode}; TFLite resizes by nearest or linear sampling")


def _refuse_uneven_scales(node: TflNode, before: tuple[int | None, ...], after: tuple[int | None, ...]) -> None:
    """ONNX samples by the scale as given, TFLite by the ratio of the sizes: they must agree."""
    scales = node.optional(2)
    if scales is None or scales.constant is None or not scales.constant.size:
        return
    ratios = np.array([(a or 0) / (b or 1) for b, a in zip(before, after, strict=True)])
    if not np.allclose(scales.constant[-2:], ratios, rtol=1e-6):
        node.unsupported("scales that do not give whole sizes; TFLite samples by the ratio of the sizes")
