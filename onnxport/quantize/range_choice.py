"""The choice between two sets of ranges, by the outputs' error on a few calibration samples.

Ranges of the least error cut off rare values, which carry the answer of some networks. Percentile ranges keep them. The
default ranges stay unless the others are clearly nearer to the float model: the samples were few, and one of them
outweighs all others in a sum of squares, so each sample counts alike, and its ratio of errors has to stand out from the
spread of the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.quantize.float_graph import FloatGraph
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.samples.readers import SampleFile

# Samples that decide; after the first of them a candidate that leads by too little is given up.
SAMPLES = 8
_FIRST = 4
# A clear lead: dB in the mean over the samples, and standard errors of that mean.
_LEAST_LEAD, _ERRORS = 0.5, 1.0
# dB that one sample counts at most: errors of a saturated classifier can be next to none.
_MOST = 20.0
# Bytes of float weights, at most: two int8 models of MiniLM (90 MB) took half as much memory again as one.
_LARGEST = 32 * 2**20


@dataclass(frozen=True)
class Lead:
    """By how much a candidate's error is below the default's.

    Attributes:
        ratios: of each sample, the default's error over the candidate's in dB, the mean over outputs.
    """

    ratios: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the samples in dB; 0 without samples."""
        return math.fsum(self.ratios) / len(self.ratios) if self.ratios else 0.0

    @property
    def is_clear(self) -> bool:
        """Whether the candidate is to be chosen."""
        if len(self.ratios) < SAMPLES:
            return False
        error = float(np.std(self.ratios, ddof=1)) / math.sqrt(len(self.ratios))
        return self.mean >= max(_LEAST_LEAD, _ERRORS * error)


def is_affordable(graph: FloatGraph, files: Sequence[SampleFile]) -> bool:
    """Return whether there are enough samples, and room for a second int8 model beside the first."""
    weights = [value.const_value for value in graph.model.graph.initializers.values()]
    return len(files) >= SAMPLES and sum(each.nbytes for each in weights if each is not None) <= _LARGEST


def measure_lead(
    graph: FloatGraph, default: Model, candidate: Model, files: Sequence[SampleFile], *, saturates: bool
) -> Lead:
    """Run the float model and both int8 ones on samples that lie evenly among `files`.

    Args:
        graph: its file is the float model.
        files: at least SAMPLES.
        saturates: whether sums of the int8 models may saturate on this CPU, and have to be computed otherwise.
    """
    options = RuntimeOptions(integers="exact" if saturates else "cpu")
    chosen = [files[len(files) * number // SAMPLES] for number in range(SAMPLES)]
    ratios: list[float] = []
    with (
        OrtRuntime(graph.path) as right,
        OrtRuntime.of_model(default, options) as first,
        OrtRuntime.of_model(candidate, options) as second,
    ):
        for file in (*chosen[::2], *chosen[1::2]):
            feeds = file.load().feeds
            wanted = right.run(feeds)
            ratios.append(compare_errors(wanted, first.run(feeds), second.run(feeds)))
            if len(ratios) == _FIRST and Lead(tuple(ratios)).mean < _LEAST_LEAD:
                break
    return Lead(tuple(ratios))


def compare_errors(
    wanted: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]
) -> float:
    """Return the error of `one` over that of `other` in dB, the mean over the float outputs, within 20 dB.

    Args:
        wanted: the float model's outputs.
    """
    found = []
    for name, right in wanted.items():
        if right.dtype.kind == "f" and one[name].shape == other[name].shape == right.shape:
            errors = [_squared_error(right, each[name]) for each in (one, other)]
            found.append(_decibels(*errors))
    return math.fsum(found) / len(found) if found else 0.0


def _squared_error(right: Array, made: Array) -> float:
    error = float(np.square(made.astype(np.float64) - right).sum())
    return error if math.isfinite(error) else math.inf


def _decibels(one: float, other: float) -> float:
    if one == other:
        return 0.0
    if not (one and other) or math.isinf(one) or math.isinf(other):
        return math.copysign(_MOST, one - other)
    return min(max(10 * math.log10(one / other), -_MOST), _MOST)
