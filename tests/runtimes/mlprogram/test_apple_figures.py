"""Figures that Apple gives: in its documentation, and in coremltools' tests, which ran on a Mac.

Sources, in coremltools/converters/mil/mil/ops: docs = defs/, tests = tests/ (iOS14 to iOS18, of the operator's name).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.mlprogram.programs import evaluated

PIXELS = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
FOUR = np.array([11, 22, 33, 44], np.float32).reshape(1, 1, 2, 2)
PAIR = np.array([0, 1], np.float32).reshape(1, 1, 2)
PLACES = np.array([-1, -2, -3.7, -1, 0, 0, 3.5, 1.2], np.float32).reshape(1, 2, 2, 2)
SMALL = {"target_height": 2, "target_width": 2, "sampling_mode": "ALIGN_CORNERS"}


def box(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(1, 1, -1, 1, 1)


def placed(sampling: str, padding: str, value: float, mode: str, aligned: bool) -> dict[str, Any]:
    return {
        "x": FOUR,
        "coordinates": PLACES,
        "sampling_mode": sampling,
        "padding_mode": padding,
        "padding_value": np.float32(value),
        "coordinates_mode": mode,
        "align_corners": aligned,
    }


def turned(height: int, width: int) -> dict[str, Any]:
    return {
        "x": FOUR,
        "transform_matrix": np.array([[-1, -2, -3.7, -1, 3.5, 1.2]], np.float32),
        "output_height": height,
        "output_width": width,
        "sampling_mode": "bilinear",
        "padding_mode": "constant",
        "padding_value": np.float32(0),
        "coordinates_mode": "normalized_minus_one_to_one",
        "align_corners": True,
    }


def grown(width: int, mode: str) -> dict[str, Any]:
    return {"x": PAIR, "target_size_height": 1, "target_size_width": width, "sampling_mode": mode}


def upsampled(aligned: bool, halves: bool | None) -> dict[str, Any]:
    given = {"x": PAIR[:, :, None] + 1, "scale_factor_height": 1, "scale_factor_width": 3}
    return given | {"align_corners": aligned} | ({} if halves is None else {"half_pixel_centers": halves})


NORMALIZED = np.array([[0.1, 0.3, 1.3, 1.0], [0.5, 1.8, 1.0, 0.3], [0.0, 0.4, 0.6, 0.7]], np.float32)
BOXES = {"x": PIXELS, "boxes": NORMALIZED, "box_indices": np.zeros(3, np.int32), "pad_value": np.float32(10)}

# Operator, opset, arguments, what it gives.
FIGURES: list[tuple[str, str, dict[str, Any], list[float]]] = [
    # docs: resize_bilinear, rounded there to two digits
    ("resize_bilinear", "iOS15", grown(5, "UNALIGN_CORNERS"), [0, 0.1, 0.5, 0.9, 1]),
    ("resize_bilinear", "iOS15", grown(5, "STRICT_ALIGN_CORNERS"), [0, 0.25, 0.5, 0.75, 1]),
    ("resize_bilinear", "iOS15", grown(5, "ALIGN_CORNERS"), [0, 0.25, 0.5, 0.75, 1]),
    ("resize_bilinear", "iOS15", grown(5, "DEFAULT"), [0, 0.4, 0.8, 1, 1]),
    ("resize_bilinear", "iOS15", grown(5, "OFFSET_CORNERS"), [0.1, 0.3, 0.5, 0.7, 0.9]),
    ("resize_bilinear", "iOS15", grown(6, "UNALIGN_CORNERS"), [0, 0, 1 / 3, 2 / 3, 1, 1]),
    ("resize_bilinear", "iOS15", grown(6, "DEFAULT"), [0, 1 / 3, 2 / 3, 1, 1, 1]),
    ("resize_bilinear", "iOS15", grown(6, "OFFSET_CORNERS"), [1 / 12, 0.25, 5 / 12, 7 / 12, 0.75, 11 / 12]),
    ("resize_bilinear", "iOS15", grown(1, "ALIGN_CORNERS"), [0.5]),
    # tests: upsample_bilinear (iOS16)
    ("upsample_bilinear", "iOS16", upsampled(True, None), [1, 1.2, 1.4, 1.6, 1.8, 2]),
    ("upsample_bilinear", "iOS16", upsampled(False, True), [1, 1, 4 / 3, 5 / 3, 2, 2]),
    ("upsample_bilinear", "iOS16", upsampled(False, None), [1, 1, 4 / 3, 5 / 3, 2, 2]),
    ("upsample_bilinear", "iOS16", upsampled(False, False), [1, 4 / 3, 5 / 3, 2, 2, 2]),
    # tests: resize (iOS17); the nearest pixel is that by rounding, not by cutting off
    (
        "resize",
        "iOS17",
        {
            "x": np.array([-6.174, 9.371], np.float32).reshape(1, 1, 2, 1),
            "shape": np.array([1, 1, 3, 2], np.int32),
            "resized_dims": np.uint32(2),
            "interpolation_mode": "NEAREST_NEIGHBOR",
        },
        [-6.174, -6.174, 9.371, 9.371, 9.371, 9.371],
    ),
    # tests: crop_resize (iOS14, iOS17)
    ("crop_resize", "iOS15", {"x": PIXELS, "roi": box(1, 1, 2, 2), **SMALL}, [6, 7, 10, 11]),
    ("crop_resize", "iOS15", {"x": PIXELS, "roi": box(2, 2, 1, 1), **SMALL}, [11, 10, 7, 6]),
    ("crop_resize", "iOS15", {"x": PIXELS, "roi": box(1, 1, 2, 2), "sampling_mode": "ALIGN_CORNERS"}, [8.5]),
    (
        "crop_resize",
        "iOS15",
        {"x": PIXELS, "roi": box(0, 0, 0, 1 / 3, 1 / 3), "normalized_coordinates": True, **SMALL},
        [1, 2, 5, 6],
    ),
    (
        "crop_resize",
        "iOS17",
        BOXES | {"normalized_coordinates": True, **SMALL},
        [3.1, 5.2, 10, 10, 10, 7.9, 10, 13.9, 2.2, 3.1, 9.4, 10.3],
    ),
    # tests: resample (iOS15)
    (
        "resample",
        "iOS15",
        placed("bilinear", "constant", 6.17, "normalized_minus_one_to_one", True),
        [8.585, 6.17, 27.5, 6.17],
    ),
    ("resample", "iOS15", placed("nearest", "border", -1, "unnormalized", False), [11, 11, 11, 44]),
    (
        "resample",
        "iOS15",
        placed("bilinear", "reflection", -1, "normalized_zero_to_one", True),
        [22, 36.3, 11, 34.1],
    ),
    # Halves among the places; the runtime takes the even pixel, as NumPy does.
    (
        "resample",
        "iOS15",
        placed("nearest", "symmetric", -1, "normalized_zero_to_one", False),
        [22, 33, 11, 33],
    ),
    # tests: affine (iOS15)
    ("affine", "iOS15", turned(3, 3), [10.7525, 2.5025, 0, 1.98, 0, 0, 0, 0, 0]),
    ("affine", "iOS15", turned(2, 5), [10.7525, 5.94, 2.5025, 0.44, 0, 0, 0, 0, 0, 0]),
    # tests: upsample_nearest_neighbor (iOS15)
    (
        "upsample_nearest_neighbor",
        "iOS15",
        {
            "x": np.array([1.5, -2.5, 3.5], np.float32).reshape(1, 1, 1, 3),
            "scale_factor_height": np.float32(3.17),
            "scale_factor_width": np.float32(0.67),
        },
        [1.5, -2.5] * 3,
    ),
    # tests: l2_pool (iOS14)
    (
        "l2_pool",
        "iOS16",
        {
            "x": np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2),
            "kernel_sizes": [2, 2],
            "pad_type": "same_lower",
        },
        [1, 5**0.5, 10**0.5, 30**0.5],
    ),
]
# What is undefined in strict mode, though a Mac gave it.
LENIENT = {("resample", "symmetric"), ("upsample_nearest_neighbor", "")}


@pytest.mark.parametrize(("operator", "opset", "arguments", "expected"), FIGURES)
def test_figures(
    operator: str, opset: str, arguments: dict[str, Any], expected: list[float], tmp_path: Path
) -> None:
    strict = (operator, arguments.get("padding_mode", "")) not in LENIENT
    ((found,),) = evaluated(tmp_path, operator, [arguments], opset, strict=strict)
    np.testing.assert_allclose(found.ravel(), expected, 2e-6, 2e-6)


@pytest.mark.parametrize("opset", ["iOS15", "iOS17"])
def test_suppression(opset: str, tmp_path: Path) -> None:
    """Boxes in corners that do not touch; the newest form has neither a threshold nor a count."""
    boxes = np.repeat(np.arange(4, dtype=np.float32), 4).reshape(1, 4, 4)
    scores = np.array([-3.5, 9.4, 2.3, 0.7], np.float32).reshape(1, 4, 1)
    given: dict[str, Any] = {"iou_threshold": np.float32(0.2), "max_boxes": 2, "per_class_suppression": True}
    given |= {"boxes": boxes, "scores": scores, "score_threshold": np.float32(0.4)}
    if opset == "iOS17":
        given |= {"boxes": boxes.swapaxes(1, 2), "scores": scores.swapaxes(1, 2)}
        del given["score_threshold"]
    ((chosen, best, indices, *count),) = evaluated(tmp_path, "non_maximum_suppression", [given], opset)
    np.testing.assert_array_equal(chosen.reshape(2, 4).sum(), 12)
    np.testing.assert_allclose(best.ravel(), [9.4, 2.3])
    np.testing.assert_array_equal(indices, [[1, 2]])
    assert [each.tolist() for each in count] == ([[2]] if opset == "iOS15" else [])
