"""How near answers are to those of a reference: a figure beside the others, and no verdict.

One set of inputs was fed, and nothing is asked of its noise; `onnxport validate` judges.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.bench.report import Accuracy
from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.metrics import METRICS, Seen

_SQNR = METRICS["sqnr"]


def accuracy(reference: str, expected: Mapping[str, Array], given: Mapping[str, Array]) -> Accuracy | None:
    """The output of floats that is furthest off; None where the two have none in common.

    Args:
        reference: path of the model that gave `expected`.
        expected, given: outputs by name.
    """
    found: list[tuple[float, str]] = []
    for name, theirs in given.items():
        ours = expected.get(name)
        if ours is None or ours.shape != theirs.shape or not _is_float(name, ours):
            continue
        seen = Seen()
        seen.add(ours, theirs.astype(ours.dtype), 0.0)
        sqnr = _SQNR.value(seen)
        if sqnr is not None:
            found.append((sqnr, name))
    if not found:
        return None
    worst, output = min(found)
    return Accuracy(reference=reference, sqnr=worst, output=output)


def _is_float(name: str, array: Array) -> bool:
    return _SQNR.may(TensorSpec(name, array.dtype.name, array.shape))
