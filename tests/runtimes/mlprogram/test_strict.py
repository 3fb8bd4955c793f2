"""What Apple's documentation leaves undefined raises in strict mode, and does something harmless outside of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxport.runtimes.mlprogram.kernels.registry import Failed
from tests.runtimes.mlprogram.programs import evaluated
from tests.runtimes.mlprogram.undefined import Case, check_refused, each_of

X = np.arange(12, dtype=np.float32).reshape(3, 4)
INTEGERS = np.array([[7, -7], [6, 0]], np.int32)


def at(*indices: int) -> Any:
    return np.array(indices, np.int32)


UNDEFINED: list[Case] = [
    ("gather", {"x": X, "indices": at(0, -1), "axis": 0}, "iOS17", "index -1 of 3"),
    ("gather", {"x": X, "indices": at(3), "axis": 0}, "iOS17", "index 3 of 3"),
    ("gather", {"x": X, "indices": at(3), "axis": 0}, "iOS15", "index 3 of 3"),
    ("gather", {"x": X, "indices": at(-4), "axis": 0}, "iOS16", "index -4 of 3"),
    (
        "gather_along_axis",
        {"x": X, "indices": np.full((3, 1), -1, np.int32), "axis": 1},
        "iOS17",
        "index -1 of 4",
    ),
    ("gather_nd", {"x": X, "indices": np.array([[0, 4]], np.int32)}, "iOS17", "index 4"),
    ("scatter", {"data": X, "indices": at(-1), "updates": X[:1], "mode": "add"}, "iOS17", "index -1 of 3"),
    (
        "scatter_along_axis",
        {"data": X, "indices": np.full((3, 1), 9, np.int32), "updates": X[:, :1], "axis": 1},
        "iOS17",
        "index 9 of 4",
    ),
    ("scatter_nd", {"data": X, "indices": np.array([[3]], np.int32), "updates": X[:1]}, "iOS17", "index 3"),
    ("real_div", {"x": INTEGERS, "y": np.full((2, 2), 2, np.int32)}, "iOS17", "quotient of integers"),
    ("real_div", {"x": INTEGERS, "y": np.zeros((2, 2), np.int32)}, "iOS17", "quotient of integers"),
    ("floor_div", {"x": INTEGERS, "y": np.zeros((2, 2), np.int32)}, "iOS17", "divided by zero"),
    ("mod", {"x": INTEGERS, "y": np.zeros((2, 2), np.int32)}, "iOS17", "divided by zero"),
    ("pow", {"x": INTEGERS, "y": np.full((2, 2), -1, np.int32)}, "iOS17", "negative power"),
    ("exp2", {"x": INTEGERS}, "iOS17", "negative power"),
    ("reduce_mean", {"x": INTEGERS, "axes": [0]}, "iOS17", "fraction"),
    ("cast", {"x": np.array([1, np.nan], np.float32), "dtype": "int32"}, "iOS17", "nan"),
    ("cast", {"x": np.array([1, np.inf], np.float32), "dtype": "int32"}, "iOS17", "inf"),
    ("cast", {"x": np.array([1, 2.0**31], np.float32), "dtype": "int32"}, "iOS17", "do not fit into int32"),
    ("cast", {"x": at(-1, 3), "dtype": "uint8"}, "iOS17", "do not fit into uint8"),
    ("one_hot", {"indices": at(0, 3), "one_hot_vector_size": np.int32(3)}, "iOS17", "vectors of 3"),
    (
        "slice_by_size",
        {"x": X, "begin": at(2, 0), "size": at(2, 4)},
        "iOS17",
        "2 elements from 2 on of an axis of 3",
    ),
    (
        "reverse_sequence",
        {"x": X, "lengths": at(5, 1, 1), "seq_axis": 1, "batch_axis": 0},
        "iOS17",
        "sequences of 4",
    ),
    ("pad", {"x": X, "pad": at(0, 0, 4, 0), "mode": "reflect"}, "iOS17", "larger than the tensor"),
]


@each_of(UNDEFINED)
def test_strict_mode_raises(
    operator: str, arguments: dict[str, Any], opset: str, words: str, tmp_path: Path
) -> None:
    check_refused(tmp_path, operator, arguments, opset, words)
    if operator == "slice_by_size":  # its result would have another shape than declared
        return
    evaluated(tmp_path, operator, [arguments], opset, strict=False)


def test_up_to_ios16_negative_indices_count_from_the_end(tmp_path: Path) -> None:
    for opset in ("iOS15", "iOS16"):
        ((found,),) = evaluated(tmp_path, "gather", [{"x": X, "indices": at(-1, -3), "axis": 0}], opset)
        np.testing.assert_array_equal(found, X[[2, 0]])


def test_exact_quotients_of_integers_are_defined(tmp_path: Path) -> None:
    divisors = np.array([[7, -1], [-3, 5]], np.int32)
    ((found,),) = evaluated(tmp_path, "real_div", [{"x": INTEGERS, "y": divisors}], "iOS17")
    np.testing.assert_array_equal(found, [[1, 7], [-2, 0]])


def test_truncated_casts_at_the_edge_are_defined(tmp_path: Path) -> None:
    x = np.array([-0.9, 255.9, 3.5], np.float32)
    ((found,),) = evaluated(tmp_path, "cast", [{"x": x, "dtype": "uint8"}], "iOS17")
    np.testing.assert_array_equal(found, [0, 255, 3])


@pytest.mark.parametrize("strict", [True, False])
def test_validated_indices_fail_in_either_mode(strict: bool, tmp_path: Path) -> None:
    given = {"x": X, "indices": at(0, 3), "axis": 0, "validate_indices": True}
    with pytest.raises(Failed, match="validate_indices"):
        evaluated(tmp_path, "gather", [given], "iOS17", strict=strict)
