"""What the pre-flight's process tells its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Feeds = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Measured:
    """What the samples showed.

    Attributes:
        peaks: name of each float value at the top of the graph to the largest magnitude that it took.
        sets: how many samples were run.
        failure: why none could be run; empty if some were.
    """

    peaks: Mapping[str, float] = field(default_factory=dict)
    sets: int = 0
    failure: str = ""
