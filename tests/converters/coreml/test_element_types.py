"""Every element type that ONNX allows an op that moves elements, at the type's limits or those of 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array
from tests.converters.tflite.test_element_types import (
    OPS,
    SHAPE,
    TYPES,
    Operands,
    fault,
    number,
    small,
    values,
)
from tests.converters.tflite.test_random_operands import FORMS

# Every update of a column goes to its first element, and sums leave the narrow types.
_TWICE = np.zeros(SHAPE, np.int64)


def _updates(dtype: np.dtype[Any]) -> Array:
    return values(dtype) if dtype.itemsize < 4 else small(dtype)


_SUMS: list[tuple[str, Operands, dict[str, Any]]] = [
    ("ScatterElements", lambda t: [small(t), _TWICE, _updates(t)], {"axis": 1, "reduction": "add"}),
    ("ScatterND", lambda t: [small(t), number([[1], [1]]), _updates(t)], {"reduction": "add"}),
]
_INT32 = np.iinfo(np.int32)
_MOVING = (
    "Concat CumSum Expand Gather GatherElements GatherND Identity NonZero OneHot Pad Reshape ScatterElements ScatterND "
    "Shape Size Slice Split Tile TopK Transpose Trilu"
).split()
CASES: list[tuple[str, Operands, dict[str, Any]]] = [
    *((op, *OPS[op]) for op in _MOVING),
    *((op, operands, attributes) for op, attributes, operands in FORMS),
    *_SUMS,
]


def _held(array: Array) -> Array:
    """What Core ML's integers hold of it."""
    wide = array.dtype.name in ("int64", "uint64", "uint32")
    return array.clip(0 if array.dtype.kind == "u" else _INT32.min, _INT32.max) if wide else array


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{op} {i}" for i, (op, *_) in enumerate(CASES)])
def test_accepted_types_compute_what_onnx_says(coreml: CoremlConformance, case: int) -> None:
    op, operands, attributes = CASES[case]
    drawn = [[_held(each) for each in operands(np.dtype(dtype))] for dtype in TYPES]
    faults = [fault(coreml, op, each, attributes) for each in drawn]
    assert not list(filter(None, faults))
