"""Checks of calibration samples for signs of a mistake.

A finding is no error unless the user asks for --strict. So nothing is reported that right samples could cause as well;
tests/quantize/calibration/test_lint.py has the networks between whose figures the thresholds lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.quantize.calibration.image_encodings import (
    ImageEncoding,
    channel_axis,
    narrowest_encoding,
    possible_encodings,
)
from onnxport.quantize.calibration.input_statistics import ExpectedStatistics, Moments
from onnxport.samples.duplicates import duplicates
from onnxport.samples.readers import Sample, SampleFile

LOOKED_AT = 16  # samples that are read, from all over the folder; of duplicates all are sought
_FEW = 10
_MANY_BLANK = 0.25  # of those looked at
# Spread of the first layer against what the model tells: of right samples 0.4 to 1.4 times as large (8 times a bias in
# networks of random weights), of bytes in place of normalized values 30 times and more.
_SPREAD = {"BatchNormalization": 12.0, "Conv": 20.0}
# Nats. Right samples are below 0.6, and no other form is 3 times as near; of wrong ones the right form is 20 times so.
_UNLIKE, _NEARER = 0.25, 8.0
# Right photos in the other order of channels were never nearer in 800 draws of 16 (of 12 some were); those in the wrong
# order are 1.4 times farther than turned round in 97 of 100 draws.
_ORDER_NEARER, _ORDER_ALIKE, _ORDER_SAMPLES = 1.4, 0.08, 16


@dataclass(frozen=True)
class Findings:
    """The findings."""

    findings: tuple[str, ...]  # a sentence each
    facts: Mapping[str, Any]  # what it rests on, for the report


@dataclass
class _InputStatistics:
    """Statistics of one input over the samples read."""

    low: float = np.inf
    high: float = -np.inf
    blank: list[str] = field(default_factory=list)
    begun: int = 0

    def add(self, array: Array, label: str) -> None:
        if not array.size:
            return
        low, high = float(array.min()) + 0.0, float(array.max()) + 0.0  # of -0.0 no word
        self.low, self.high = min(self.low, low), max(self.high, high)
        if low == high and array.size > 1:
            self.blank.append(label)


def check_samples(
    model: Model, calibration: Sequence[SampleFile], held_back: Sequence[SampleFile] = ()
) -> Findings:
    """Check the samples of a float model without functions; InputError if one cannot be read or does not fit."""
    count = len(calibration)
    chosen = [calibration[number * count // min(count, LOOKED_AT)] for number in range(min(count, LOOKED_AT))]
    expectation = ExpectedStatistics.of(model)
    look = _Check(model.inputs, chosen, expectation)
    unlike = tuple(look.unlike())
    findings = (*_too_few(count, look), *_repeated(calibration, held_back), *_constant(look), *unlike)
    ranges = {name: [seen.low, seen.high] for name, seen in look.seen.items() if np.isfinite(seen.low)}
    facts = {"samples": count, "looked_at": len(chosen), "ranges": ranges, "findings": list(findings)}
    facts |= {"unlike": list(unlike)} if unlike else {}
    return Findings(findings, facts | ({"first_layer": look.figures} if look.figures else {}))


class _Check:
    """One reading of the samples, and more in other encodings where the model implies its training data."""

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        files: Sequence[SampleFile],
        expectation: ExpectedStatistics | None,
    ) -> None:
        self.files, self._expectation = files, expectation
        self.seen = {spec.name: _InputStatistics() for spec in inputs}
        self.rows = 0
        self.figures: dict[str, Any] = {}
        self._spec = next((spec for spec in inputs if expectation and spec.name == expectation.input), None)
        self._moments = Moments()
        for file in files:
            self._add(file.load())

    def _add(self, sample: Sample) -> None:
        self.rows += max((array.shape[0] if array.ndim else 1 for array in sample.feeds.values()), default=1)
        for name, array in sample.feeds.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                continue  # integers get no grid; what is not finite is an error, which calibration names
            seen = self.seen[name]
            seen.add(array, sample.label)
            seen.begun += name in sample.begun
            if self._expectation is not None and name == self._expectation.input:
                self._expectation.measure(self._moments, array)

    def unlike(self) -> Iterator[str]:
        """Report values, or a channel order, unlike those of training."""
        expectation = self._expectation
        spread = expectation.spread(self._moments) if expectation and self._moments.count else None
        if expectation is None or spread is None:
            return
        self.figures = {"node": expectation.node, "spread": spread}
        own = expectation.divergence(self._moments)
        found = None
        if own is not None:
            self.figures["divergence"] = own
            found = self._form(expectation, own) if own >= _UNLIKE else self._order(expectation, own)
        found = found or self._scale(expectation, spread)
        if found:
            yield found

    def _scale(self, expectation: ExpectedStatistics, spread: float) -> str | None:
        """Report values far too large or too small."""
        limit = _SPREAD["Conv" if expectation.mean is None else "BatchNormalization"]
        if 1 / limit <= spread <= limit:
            return None
        times = f"{spread:.3g} times" if spread > 1 else f"1/{1 / spread:.3g}"
        return (
            f"{self._said(expectation)}, so the input of node {expectation.node!r} has {times} the spread of training; "
            "scale them as in training (--preprocess scale, mean, std)"
        )

    def _form(self, expectation: ExpectedStatistics, own: float) -> str | None:
        """Report another image encoding where it fits the model far better."""
        source, axis = self._source()
        if source is None or axis is None:
            return None
        others = [form for form in possible_encodings(self._channels(axis)) if form != source]
        found = [(self._divergence(expectation, source, form), form) for form in others]
        nearest, best = min(found, key=lambda each: each[0])
        if nearest > own / _NEARER:
            return None
        fix = "for images leave out scale, mean and std"
        if options := best.options:
            fix = f"for images give {options}; prepare arrays in this way before saving"
        return f"{self._said(expectation)}, while node {expectation.node!r} was trained on {best.name}; {fix}"

    def _order(self, expectation: ExpectedStatistics, own: float) -> str | None:
        """Report BGR for RGB, or the reverse."""
        source, axis = self._source()
        if source is None or axis is None or self._channels(axis) != 3 or len(self.files) < _ORDER_SAMPLES:
            return None
        other = self._divergence(expectation, source, source, turned=True)
        self.figures["divergence_of_other_order"] = other
        if other > _ORDER_ALIKE or own < other * _ORDER_NEARER:
            return None
        return (
            f"the channels of {expectation.input!r} seem to be swapped (BGR for RGB or the reverse): swapped, they fit "
            f"node {expectation.node!r} {own / other:.1f} times better (--preprocess color)"
        )

    def _divergence(
        self,
        expectation: ExpectedStatistics,
        source: ImageEncoding,
        form: ImageEncoding,
        *,
        turned: bool = False,
    ) -> float:
        """Return the divergence in another encoding or channel order."""
        _, axis = self._source()
        assert axis is not None
        moments = Moments()
        for file in self.files:
            array = file.load().feeds[expectation.input]
            pixels = source.bytes_of(array, axis)
            other = form.of_bytes(np.flip(pixels, axis) if turned else pixels, axis)
            expectation.measure(moments, np.ascontiguousarray(other, dtype=array.dtype))
        found = expectation.divergence(moments)
        assert found is not None, "asked only of what knows its statistics"
        return found

    def _source(self) -> tuple[ImageEncoding | None, int | None]:
        """Return the samples' apparent encoding and channel axis."""
        axis = None if self._spec is None else channel_axis(self._spec)
        if self._spec is None or axis is None:
            return None, None
        seen = self.seen[self._spec.name]
        return narrowest_encoding(seen.low, seen.high, self._channels(axis)), axis

    def _channels(self, axis: int) -> int:
        assert self._spec is not None
        channels = self._spec.shape[axis]
        assert isinstance(channels, int), "channel_axis finds no other"
        return channels

    def _said(self, expectation: ExpectedStatistics) -> str:
        seen = self.seen[expectation.input]
        return f"the input {expectation.input!r} has values from {seen.low:.4g} to {seen.high:.4g}"


def _too_few(count: int, look: _Check) -> Iterator[str]:
    if count < _FEW and look.rows < _FEW:
        samples = f"{count} samples say" if count > 1 else "one sample says"
        yield f"{samples} little about the ranges in use; give 100 or more"


def _repeated(calibration: Sequence[SampleFile], held_back: Sequence[SampleFile]) -> Iterator[str]:
    files = (*calibration, *held_back)
    groups = duplicates(files)
    if groups:
        spare = sum(len(group) - 1 for group in groups)
        first, second = (files[place].label for place in groups[0][:2])
        duplicate = "is a duplicate" if spare == 1 else "are duplicates"
        yield f"{spare} of {len(files)} samples {duplicate}: {second} equals {first}"


def _constant(look: _Check) -> Iterator[str]:
    looked = len(look.files)
    for name, seen in look.seen.items():
        if seen.begun == looked:
            yield (
                f"the state {name!r} began with zeros in every sample, so its range was not seen; put states of a "
                "running stream into the files"
            )
        elif len(seen.blank) == looked and seen.low == seen.high:
            yield f"the input {name!r} is always {seen.low:.4g} in the {looked} samples checked"
        elif len(seen.blank) > max(1, looked * _MANY_BLANK):
            yield (
                f"the input {name!r} has a single value in {len(seen.blank)} of {looked} samples: "
                + (", ".join(seen.blank[:3]))
            )
