"""What makes a model a classifier: the label of the greatest probability, and all of them by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import kernel


@kernel("classify")
def classify(probabilities: Array, classes: Array | Sequence[Any]) -> tuple[Any, dict[Any, float]]:
    numbers = np.ravel(probabilities)
    labels = [each.item() if hasattr(each, "item") else each for each in classes]
    return labels[int(numbers.argmax())], dict(zip(labels, map(float, numbers), strict=True))
