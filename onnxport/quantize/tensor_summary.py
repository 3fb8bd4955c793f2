"""Statistics of one tensor over the samples, in a form that stays true when its channels are divided.

So one pass over the samples serves the plan before and after channels are scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from onnxport.core.arrays import Array
from onnxport.quantize.accuracy.rows import RowSample, from_upper_half, round_to_upper_half
from onnxport.quantize.calibration.observers import ChannelExtremes, ChannelMeans, Histogram, Observer


@dataclass(frozen=True)
class TensorSummary:
    """Statistics of a tensor, as its observers found them.

    Attributes:
        low, high: the extremes.
        histogram: None where only extremes were asked for, and of divided channels, which have other values.
        halves: uint16[rows, channels], the upper halves of float32; None where no rows were kept.
        means: float64[channels]; None where not asked for.
        extremes: least and greatest value of every channel, float32[channels]; None where not asked for.
    """

    low: float
    high: float
    histogram: Histogram | None = None
    halves: Array | None = None
    means: Array | None = None
    extremes: tuple[Array, Array] | None = None

    @property
    def rows(self) -> Array | None:
        """float32[rows, channels]; None where none were kept, empty where samples differ in their channels."""
        return None if self.halves is None else from_upper_half(self.halves)

    @classmethod
    def of(cls, observers: Sequence[Observer]) -> TensorSummary:
        """Read observers, at most one of each kind."""
        found = dict[str, Any]()
        for each in observers:
            if isinstance(each, Histogram):
                found["histogram"] = each
            elif isinstance(each, RowSample):
                found["halves"] = each.halves()
            elif isinstance(each, ChannelMeans):
                found["means"] = each.means()
            elif isinstance(each, ChannelExtremes):
                found["extremes"] = each.extremes()
        if "histogram" in found:
            return cls(found["histogram"].low, found["histogram"].high, **found)
        lows, highs = found.get("extremes", ((), ()))
        return cls(*_ends(lows, highs), **found)

    def divided(self, factors: Array) -> TensorSummary:
        """Return the statistics that this tensor would have with its channels divided.

        Args:
            factors: float32, positive; one for each channel, or for as many channels that follow each other as there
                are of each behind a Flatten. Extremes of channels are known.
        """
        assert self.extremes is not None, "only channels that were observed can be divided"
        by, rows = np.repeat(factors, len(self.extremes[0]) // len(factors)), self.rows
        low, high = (np.asarray(each / by, np.float32) for each in self.extremes)
        return TensorSummary(
            *_ends(low, high),
            halves=rows if rows is None or not rows.size else round_to_upper_half(rows / by),
            means=None if self.means is None else self.means / by,
            extremes=(low, high),
        )


def _ends(lows: ArrayLike, highs: ArrayLike) -> tuple[float, float]:
    """Return the extremes of all channels; inf and -inf where there are none."""
    return float(np.min(lows, initial=np.inf)), float(np.max(highs, initial=-np.inf))


Summaries = Mapping[str, TensorSummary]
