"""The choice between two sets of ranges, by the outputs' error on a few calibration samples.

Ranges of the least error cut off rare values, which carry the answer of some networks. Percentile ranges keep them. The
default ranges stay unless the others are clearly nearer to the float model: the samples were few, and one of them
outweighs all others in a sum of squares, so each sample counts alike, and its ratio of errors has to stand out from the
spread of the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.quantize.calibration.answers import Answers, part_of
from onnxport.quantize.float_graph import FloatGraph
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.samples.readers import SampleFile

# Samples that decide.
SAMPLES = 8
# After so many of them a candidate is given up whose mean lead is below so many dB.
_GIVEN_UP = {2: -1.0, 4: 0.5}
# A clear lead: dB in the mean over the samples, and standard errors of that mean.
_LEAST_LEAD, _ERRORS = 0.5, 1.0
# dB that one sample counts at most: errors of a saturated classifier can be next to none.
_MOST = 20.0
# Bytes of float weights, at most: two int8 models of MiniLM (90 MB) took half as much memory again as one.
_LARGEST = 32 * 2**20
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


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


def outputs_to_compare(graph: FloatGraph) -> list[str]:
    """Return the float outputs that a node makes."""
    return [
        value.name or ""
        for value in graph.model.graph.outputs
        if value.producer() is not None and value.dtype in _FLOATS
    ]


def choose_samples(count: int) -> list[int]:
    """Return the numbers of the samples that decide, evenly among `count`, in the order in which they are run."""
    numbers = [count * number // SAMPLES for number in range(SAMPLES)]
    return [*numbers[::2], *numbers[1::2]]


def measure_lead(
    answers: Mapping[str, Answers],
    default: Model,
    candidate: Model,
    files: Sequence[SampleFile],
    *,
    saturates: bool,
) -> Lead:
    """Run both int8 models on the samples that decide.

    Args:
        answers: the float model's, of each output to compare.
        files: all samples, at least SAMPLES.
        saturates: whether sums of the int8 models may saturate on this CPU, and have to be computed otherwise.
    """
    # A thread each: several threads of one session spin, which cost more than they saved.
    options = RuntimeOptions(integers="exact" if saturates else "cpu", threads=1)
    ratios: list[float] = []
    with (
        OrtRuntime.of_model(default, options) as first,
        OrtRuntime.of_model(candidate, options) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        for number in choose_samples(len(files)):
            wanted = {name: each.parts[number] for name, each in answers.items()}
            feeds = files[number].load().feeds
            one, other = threads.map(lambda runtime: runtime.run(feeds), (first, second))  # noqa: B023
            ratios.append(compare_errors(wanted, one, other))
            if Lead(tuple(ratios)).mean < _GIVEN_UP.get(len(ratios), -math.inf):
                break
    return Lead(tuple(ratios))


def compare_errors(
    wanted: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]
) -> float:
    """Return the error of `one` over that of `other` in dB, the mean over the outputs, within 20 dB.

    Args:
        wanted: parts of the float model's outputs; see answers.py.
        one, other: the outputs of two int8 models.
    """
    found = []
    for name, right in wanted.items():
        parts = [part_of(each[name]) for each in (one, other)]
        if all(part.shape == right.shape for part in parts):
            found.append(_decibels(*(_squared_error(right, part) for part in parts)))
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
