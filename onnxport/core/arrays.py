"""Type aliases of NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = Mapping[str, Array]


def median(values: Array) -> float:
    """Return the median of a flat array of at least one value; np.median imports numpy.ma, 20 to 40 ms."""
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] if len(values) % 2 else ordered[middle - 1 : middle + 1].mean())
