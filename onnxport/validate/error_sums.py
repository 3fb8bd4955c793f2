"""Sums over the elements of one output in all sets of inputs, from which the metrics follow.

No set is kept. Blocks of elements fit a processor's cache, which takes less time than passes over whole arrays, and
hardly any memory. Answers of another shape than the reference's are a fault, and not counted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.report import Histogram, NonFinite

_BLOCK = 1 << 16
_STRETCH = 1 << 12  # elements for one maximum

# As integers, floats of one sign are ordered by magnitude (IEEE 754); their difference counts the floats between.
_BITS = {"float32": np.int32, "float16": np.int16}

# A float64's sign, exponent and upper 4 bits of its fraction: sixteen bins an octave.
_FINE_SHIFT = 48
_FINE_BINS = 1 << 15

# Decades of |difference| / scale that a histogram shows.
_DECADES = tuple(float(decade) for decade in range(-10, 2))

CLASS_ROWS_SUM_TO = 1e-3  # how far the rows of class scores may be from 1
IMAGE_SIDE = 16  # pixels that a mask has at least along both of its last axes
MOST_LABELS = 256
TOP = 5


@dataclass
class ElementSums:
    """Sums over elements.

    Attributes:
        elements, differing: all elements, and those that are not equal (NaN equals NaN).
        finite: elements that are finite on both sides; all other sums are over these.
        absolute, squared, largest: of |candidate - reference|.
        signal, power, product: of reference^2, candidate^2, reference * candidate.
        scale: the largest finite magnitude of the reference.
        ulps: the largest number of floats between the two sides, over elements that are finite and of one sign on both;
            None for dtypes other than float32 and float16.
        fine: int64[bin], elements per upper 16 bits of |difference| as a float64.
    """

    elements: int = 0
    differing: int = 0
    finite: int = 0
    absolute: float = 0.0
    squared: float = 0.0
    largest: float = 0.0
    signal: float = 0.0
    power: float = 0.0
    product: float = 0.0
    scale: float = 0.0
    ulps: int | None = None
    reference_nan: int = 0
    candidate_nan: int = 0
    reference_infinite: int = 0
    candidate_infinite: int = 0
    broken: int = 0
    fine: Array = field(default_factory=lambda: np.zeros(_FINE_BINS, np.int64))

    def add(self, reference: Array, candidate: Array) -> None:
        """Count a set; both arrays have one shape, and hold numbers, booleans or strings."""
        self.elements += reference.size
        kind = reference.dtype.kind
        for ours, theirs in _blocks(reference, candidate):
            if kind == "f":
                self._add_floats(ours, theirs)
            else:
                differing = ours != theirs
                self.differing += int(np.count_nonzero(differing))
                if kind in "iub":
                    self._add_finite(ours.astype(np.float64), theirs.astype(np.float64))

    def _add_floats(self, ours: Array, theirs: Array) -> None:
        reference, candidate = ours.astype(np.float64), theirs.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            all_finite = math.isfinite(_dot(reference, reference) + _dot(candidate, candidate))
        if not all_finite:
            finite = self._count_nonfinite(reference, candidate)
            ours, theirs, reference, candidate = (
                side[finite] for side in (ours, theirs, reference, candidate)
            )
        self._add_finite(reference, candidate)
        if ours.dtype.name in _BITS and ours.dtype == theirs.dtype:
            self._add_ulps(ours, theirs)

    def _add_finite(self, reference: Array, candidate: Array) -> None:
        if not reference.size:
            return
        difference = candidate - reference
        np.abs(difference, out=difference)
        self.finite += difference.size
        self.absolute += float(difference.sum())
        self.squared += _dot(difference, difference)
        self.signal += _dot(reference, reference)
        self.power += _dot(candidate, candidate)
        self.product += _dot(reference, candidate)
        self.largest = max(self.largest, float(difference.max()))
        self.scale = max(self.scale, float(reference.max()), -float(reference.min()))
        self.fine += np.bincount(difference.view(np.int64) >> _FINE_SHIFT, minlength=_FINE_BINS)

    def _add_ulps(self, ours: Array, theirs: Array) -> None:
        bits = _BITS[ours.dtype.name]
        mine, other = ours.view(bits), theirs.view(bits)
        steps = np.abs(mine - other)  # wraps for opposite signs, which do not count
        steps[(mine ^ other) < 0] = 0
        self.ulps = max(self.ulps or 0, int(steps.max(initial=0)))

    def _count_nonfinite(self, reference: Array, candidate: Array) -> Array:
        """Count what is NaN or infinite; return bool[block], where both sides are finite."""
        nan = np.isnan(reference), np.isnan(candidate)
        infinite = np.isinf(reference), np.isinf(candidate)
        self.reference_nan += int(nan[0].sum())
        self.candidate_nan += int(nan[1].sum())
        self.reference_infinite += int(infinite[0].sum())
        self.candidate_infinite += int(infinite[1].sum())
        known = np.abs(reference[~(nan[0] | infinite[0])])
        self.scale = max(self.scale, float(known.max(initial=0.0)))
        finite: Array = ~(nan[0] | nan[1] | infinite[0] | infinite[1])
        same = (reference == candidate) | (nan[0] & nan[1])
        self.broken += int((~finite & ~same).sum())
        return finite

    @property
    def mean_abs(self) -> float:
        return self.absolute / self.finite if self.finite else 0.0

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio in dB; infinite without error, minus infinite without signal."""
        if not self.squared:
            return math.inf
        return 10.0 * math.log10(self.signal / self.squared) if self.signal else -math.inf

    @property
    def nonfinite(self) -> NonFinite | None:
        """The counts of non-finite elements; None where every element is finite on both sides."""
        counts = self.reference_nan, self.candidate_nan, self.reference_infinite, self.candidate_infinite
        if not any(counts):
            return None
        return NonFinite(
            reference_nan=counts[0],
            candidate_nan=counts[1],
            reference_infinite=counts[2],
            candidate_infinite=counts[3],
            differing=self.broken,
        )

    def histogram(self, scale: float, allowed: float) -> Histogram | None:
        """Return |difference| / scale in decades; None without a scale or a finite element.

        A difference within 3 % of the border of two decades may count in either.
        """
        if not scale or not self.finite:
            return None
        bins = np.flatnonzero(self.fine)
        bins = bins[bins > 0]  # bin 0 is 0
        middles = ((bins << _FINE_SHIFT) + (1 << (_FINE_SHIFT - 1))).view(np.float64)
        decades = np.log10(middles) - math.log10(scale)
        inside = np.clip(np.searchsorted(_DECADES, decades, side="right") - 1, 0, len(_DECADES) - 2)
        counts = np.bincount(inside, weights=self.fine[bins], minlength=len(_DECADES) - 1)
        return Histogram(
            edges=_DECADES,
            counts=tuple(int(count) for count in counts),
            equal=int(self.fine[0]),
            allowed=math.log10(allowed / scale) if allowed else None,
        )


def _dot(ours: Array, theirs: Array) -> float:
    # Not BLAS: it starts threads, which cost more than they save beside other computations.
    return float(np.einsum("i,i->", ours, theirs))


def _blocks(reference: Array, candidate: Array) -> Iterator[tuple[Array, Array]]:
    ours, theirs = reference.reshape(-1), candidate.reshape(-1)
    for start in range(0, ours.size, _BLOCK):
        yield ours[start : start + _BLOCK], theirs[start : start + _BLOCK]


@dataclass
class ClassAgreement:
    """How often both sides choose the same class.

    Class scores are floats [batch, classes], or [batch, ..., classes] whose rows are what a softmax gives: none
    negative, each with a sum of 1. There are at least two classes.

    Attributes:
        rows: decisions that were compared.
        first: rows where both choose the same class, or the reference rates the candidate's choice as high as its own,
            up to what rounding explains.
        among: rows where the reference's choice is among the candidate's best five, likewise.
        classes: the smallest number in any set.
    """

    rows: int = 0
    first: int = 0
    among: int = 0
    classes: int = 0
    refused: bool = False

    def add(self, reference: Array, candidate: Array, tie: float) -> None:
        """Count a set; scores that differ by at most `tie` are equal."""
        self.refused = self.refused or not looks_like_scores(reference)
        if self.refused or not reference.size:
            return
        classes = reference.shape[-1]
        ours, theirs = reference.reshape(-1, classes), candidate.reshape(-1, classes)
        rows = np.arange(len(ours))
        chosen, other = ours.argmax(axis=1), theirs.argmax(axis=1)
        # Float64: `tie` may be smaller than the spacing of float16 scores.
        best, rated = ours[rows, chosen].astype(np.float64), ours[rows, other].astype(np.float64)
        self.first += int(np.count_nonzero((chosen == other) | (rated >= best - tie)))
        limit = theirs[rows, chosen].astype(np.float64) + tie
        above = np.count_nonzero(theirs > limit.astype(theirs.dtype)[:, None], axis=1)
        self.among += int(np.count_nonzero((above < TOP) & ~np.isnan(limit)))
        self.rows += len(ours)
        self.classes = min(self.classes, classes) if self.classes else classes

    @property
    def top1(self) -> float | None:
        """Share of rows; None for other outputs than class scores."""
        return None if self.refused or not self.rows else self.first / self.rows

    @property
    def top5(self) -> float | None:
        """Share of rows; None also for five classes or fewer."""
        return None if self.refused or self.classes <= TOP else self.among / self.rows


def looks_like_scores(reference: Array) -> bool:
    """Return whether an output holds class scores, by the rule of ClassAgreement."""
    if reference.dtype.kind != "f" or reference.ndim < 2 or reference.shape[-1] < 2:
        return False
    if reference.ndim == 2 or not reference.size:
        return True
    rows = reference.reshape(-1, reference.shape[-1])
    return sum_to_one(rows[:1]) and sum_to_one(rows)  # the first row rules out most


def sum_to_one(rows: Array) -> bool:
    """Return whether every row holds probabilities: none negative, a sum of 1."""
    sums = rows.sum(axis=1, dtype=np.float32)
    return bool((np.abs(sums - 1) <= CLASS_ROWS_SUM_TO).all() and rows.min() >= 0)


@dataclass
class MaskOverlap:
    """Intersection over union of every class of a mask.

    A mask is an output of three or more axes, of the size of an image (of the axes longer than 1 the last two have at
    least 16 entries each), that holds booleans, labels (integers 0 to 255), or floats from 0 to 1, which are
    divided at 0.5 into two classes. Rows of class scores are no mask.

    Attributes:
        reference, candidate, both: int64[label], elements that have the label on this side, and on both.
    """

    reference: Array = field(default_factory=lambda: np.zeros(MOST_LABELS, np.int64))
    candidate: Array = field(default_factory=lambda: np.zeros(MOST_LABELS, np.int64))
    both: Array = field(default_factory=lambda: np.zeros(MOST_LABELS, np.int64))
    refused: bool = False

    def add(self, reference: Array, candidate: Array) -> None:
        """Count a set."""
        self.refused = self.refused or not looks_like_mask(reference)
        if self.refused:
            return
        for ours, theirs in _blocks(reference, candidate):
            mine, other = _labels(ours), _labels(theirs)
            for total, labels in (
                (self.reference, mine),
                (self.candidate, other),
                (self.both, mine[mine == other]),
            ):
                total += _counts(labels)

    @property
    def mean_iou(self) -> float | None:
        """The mean over the labels that occur on either side; None for none."""
        union = self.reference + self.candidate - self.both
        occurring = union > 0
        if self.refused or not occurring.any():
            return None
        return float((self.both[occurring] / union[occurring]).mean())


def looks_like_mask(reference: Array) -> bool:
    """Return whether an output is a mask, by the rule of MaskOverlap."""
    sides = [size for size in reference.shape if size > 1][-2:]
    if reference.ndim < 3 or len(sides) < 2 or min(sides) < IMAGE_SIDE:
        return False
    if reference.dtype.kind == "f":
        first = reference[(0,) * (reference.ndim - 1)]
        return _within(first, 0, 1) and _within(reference, 0, 1) and not looks_like_scores(reference)
    return reference.dtype.kind == "b" or (
        reference.dtype.kind in "iu" and _within(reference, 0, MOST_LABELS - 1)
    )


def _within(values: Array, low: int, high: int) -> bool:
    return bool(values.min() >= low and values.max() <= high)


def _labels(values: Array) -> Array:
    """Return bool[element] for two labels, else intp[element]; a candidate's label outside becomes the last one."""
    if values.dtype.kind == "f":
        return values >= 0.5
    return values if values.dtype.kind == "b" else np.clip(values.astype(np.intp), 0, MOST_LABELS - 1)


def _counts(labels: Array) -> Array:
    """Return int64[label]."""
    if labels.dtype.kind != "b":
        return np.bincount(labels, minlength=MOST_LABELS)
    counts = np.zeros(MOST_LABELS, np.int64)
    counts[1] = np.count_nonzero(labels)
    counts[0] = labels.size - counts[1]
    return counts


def worst_elements(values: Array, count: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return the `count` largest values other than 0, each with its index, the largest and earliest first."""
    flat = values.reshape(-1)
    if not flat.size:
        return []
    starts = np.arange(0, flat.size, _STRETCH)
    # The largest few lie in the blocks with the largest maxima.
    leading = np.argsort(-np.maximum.reduceat(flat, starts), kind="stable")[:count]
    places = np.concatenate([np.arange(start, min(start + _STRETCH, flat.size)) for start in starts[leading]])
    places = places[flat[places] > 0]
    if places.size > count:
        least = np.partition(flat[places], -count)[-count]
        places = places[flat[places] >= least]
    order = np.lexsort((places, -flat[places]))[:count]
    return [
        (float(flat[place]), tuple(int(i) for i in np.unravel_index(int(place), values.shape)))
        for place in places[order]
    ]
