"""What the documentation of pools, norms, recurrent layers and sampling leaves undefined raises in strict mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.mlprogram.programs import evaluated
from tests.runtimes.mlprogram.undefined import Case, check_refused, each_of

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
STEPS = np.ones((2, 1, 3), np.float32)
HIDDEN = np.zeros((1, 2), np.float32)
POOL = {"x": X, "kernel_sizes": [1, 1], "strides": [1, 3], "pad_type": "custom", "pad": [1, 1, 0, 0]}
WEIGHTS = {"weight_ih": np.ones((6, 3), np.float32), "weight_hh": np.ones((6, 2), np.float32)}
LSTM = {
    "x": STEPS,
    "initial_h": HIDDEN,
    "initial_c": HIDDEN,
    "weight_ih": np.ones((8, 3), np.float32),
    "weight_hh": np.ones((8, 2), np.float32),
}
CROP = {"x": X, "target_height": 2, "target_width": 2}
FAR = {"sampling_mode": "ALIGN_CORNERS"}


def nearest(height: int, width: int, mode: str) -> dict[str, Any]:
    shape = {"shape": np.array([height, width], np.int32), "resized_dims": np.uint32(2)}
    return {"x": X, **shape, "interpolation_mode": "NEAREST_NEIGHBOR", "sampling_mode": mode}


def placed(at: float) -> dict[str, Any]:
    given = {"x": X, "coordinates": np.full((1, 1, 1, 2), at, np.float32), "sampling_mode": "nearest"}
    given |= {"padding_mode": "border", "padding_value": np.float32(0), "align_corners": True}
    return given | {"coordinates_mode": "unnormalized"}


def roi(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(1, 1, 4, 1, 1)


UNDEFINED: list[Case] = [
    ("max_pool", POOL, "iOS17", "entirely in the padding"),
    ("avg_pool", POOL | {"exclude_padding_from_average": True}, "iOS17", "entirely in the padding"),
    ("local_response_norm", {"x": X, "size": 2}, "iOS17", "even number"),
    (
        "rnn",
        {
            "x": STEPS,
            "initial_h": HIDDEN,
            "weight_ih": np.ones((2, 3), np.float32),
            "weight_hh": np.ones((2, 2), np.float32),
            "activation": "scaled_tanh",
        },
        "iOS17",
        "slope and offset",
    ),
    ("lstm", LSTM | {"clip": np.float32(2)}, "iOS17", "clip of 2.0"),
    ("gru", {"x": STEPS, "initial_h": HIDDEN, "reset_after": True, **WEIGHTS}, "iOS18", "`before`"),
    ("resize", nearest(6, 4, "DEFAULT"), "iOS17", "halfway"),
    (
        "resize_nearest_neighbor",
        {"x": X, "target_size_height": 2, "target_size_width": 4},
        "iOS17",
        "integer multiple",
    ),
    (
        "upsample_nearest_neighbor",
        {"x": X, "scale_factor_width": np.float32(1.5)},
        "iOS17",
        "integer multiple",
    ),
    ("resample", placed(0.5), "iOS17", "halfway"),
    ("crop_resize", CROP | FAR | {"roi": roi(0, 0, 3, 3)}, "iOS15", "beyond the image"),
    ("crop_resize", CROP | {"roi": roi(2, 2, 1, 1)}, "iOS16", "before its start"),
    (
        "random_uniform",
        {"shape": np.array([2], np.int32), "low": np.float32(1), "high": np.float32(0)},
        "iOS17",
        "to less",
    ),
    (
        "quantize",
        {"input": np.array([1, np.nan], np.float32), "scale": np.float32(1), "output_dtype": "int8"},
        "iOS17",
        "NaN",
    ),
]


@each_of(UNDEFINED)
def test_strict_mode_raises(
    operator: str, arguments: dict[str, Any], opset: str, words: str, tmp_path: Path
) -> None:
    check_refused(tmp_path, operator, arguments, opset, words)
    evaluated(tmp_path, operator, [arguments], opset, strict=False)


# The same operators where their documentation suffices.
DEFINED: list[tuple[str, dict[str, Any], str]] = [
    ("max_pool", POOL | {"pad": [0, 0, 0, 0]}, "iOS17"),
    ("avg_pool", POOL, "iOS17"),
    ("local_response_norm", {"x": X, "size": 3}, "iOS17"),
    ("lstm", LSTM | {"clip": np.float32(9)}, "iOS17"),
    ("gru", {"x": STEPS, "initial_h": HIDDEN, **WEIGHTS}, "iOS18"),
    ("resize", nearest(6, 4, "UNALIGN_CORNERS"), "iOS17"),
    ("resize_nearest_neighbor", {"x": X, "target_size_height": 9, "target_size_width": 4}, "iOS17"),
    ("resample", placed(0.6), "iOS17"),
    ("crop_resize", CROP | FAR | {"roi": roi(0, 0, 3, 3)}, "iOS16"),
    ("crop_resize", CROP | {"roi": roi(2, 2, 1, 1), "sampling_mode": "STRICT_ALIGN_CORNERS"}, "iOS15"),
]


@pytest.mark.parametrize(("operator", "arguments", "opset"), DEFINED)
def test_what_is_documented_does_not(
    operator: str, arguments: dict[str, Any], opset: str, tmp_path: Path
) -> None:
    ((found, *_),) = evaluated(tmp_path, operator, [arguments], opset)
    assert np.isfinite(found).all()
