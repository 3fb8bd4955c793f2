"""A sum that cancels keeps the rounding of the number it added; a mask among other constants excuses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from onnxport.formats.artifact import Artifact
from tests.validate.models import parsed, save, verdict


def logits(path: Path, shift: float) -> Artifact:
    """Four columns, of which the last is suppressed as decoders do it."""
    model = parsed("g (float[8, 4] x) => (float[8, 4] y) { p = Mul (x, k) y = Add (p, mask) }")
    mask = np.array([shift, 0, 0, -1e9], np.float32)
    for name, numbers in (("k", np.float32(2)), ("mask", mask)):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(numbers), name))
    return save(model, path)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, "proven"), (0.5, "not equivalent")])
def test_a_mask_does_not_widen_the_tolerance_of_other_columns(
    shift: float, expected: str, tmp_path: Path
) -> None:
    source, candidate = logits(tmp_path / "m.onnx", 0.0), logits(tmp_path / "other.onnx", shift)
    assert verdict(source, candidate).verdict == expected
