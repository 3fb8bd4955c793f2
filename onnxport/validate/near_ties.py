"""Elements of an answer that hang on a decision within rounding, and what they are where it goes the other way.

    scores * (scores == MaxPool(scores))    keeps the peaks of a map
    x * (x > limit)                         keeps what is large enough
    Softmax(logits)                         gives 0 or 1 between logits far above 1

Where two numbers differ by less than rounding, one right runtime keeps an element, at its full size, that another one
drops. Probes show such elements only if they happen to turn them. So the numbers that are compared are fetched from the
reference, and get a tolerance as if they were outputs. Where the tolerances of two numbers overlap, the decision is
undecided, and the element may be what either outcome makes of it, up to the tolerance of that outcome. What is neither
is a fault.

Comparisons count that reach an output element by element: behind others, a decision may change everything. The order of
a TopK is a decision, too (order_ties.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model
from onnxport.samples.value_uses import constant
from onnxport.validate.comparison import Alternative
from onnxport.validate.decision_graph import (
    Choice,
    Window,
    ends,
    find_choices,
    force_outcomes,
    is_rounded,
    outcome_name,
)
from onnxport.validate.graph_analysis import grid_steps, is_saturating
from onnxport.validate.noise_meter import Probed
from onnxport.validate.order_graph import find_orders
from onnxport.validate.order_ties import OrderTies
from onnxport.validate.softmax_decisions import LARGEST_EXPONENT, Decision, find_decisions
from onnxport.validate.tolerance import Noise, Tolerance, measure_noise

# The least and the largest that a right runtime may compute; of a comparison, whether it holds surely and possibly.
Interval = tuple[Array, Array]

# A tolerance of logits. Below, shares move by a few percent of themselves, which the output's own tolerance allows for.
_LEAST_DOUBT = 0.05


class OpenProbed(Protocol):
    """Opens the reference, or another model beside it, with its probes."""

    def __call__(self, model: Model | None, *, is_adversarial: bool = False) -> Probed: ...


class NearTies:
    """The decisions behind the outputs of one model.

    Args:
        model: without functions.
        open_probed: opens the model and others.
        has_integers: whether the model computes in integers. Noise shows comparisons there, but not logits on a grid,
            which right runtimes may round to a neighbour: only Softmax counts.
    """

    def __init__(self, model: Model, open_probed: OpenProbed, *, has_integers: bool = False) -> None:
        self._model, self._open = model, open_probed
        self._choices, self._shares = {} if has_integers else find_choices(model), find_decisions(model)
        logits = {each.logits for each in self._shares.values()}
        values = (value for node in model.graph for value in node.outputs if value.name in logits)
        self._steps = grid_steps(model, values) if has_integers else {}
        decided = self._choices.keys() | self._shares.keys()
        orders = {} if has_integers else find_orders(model)
        self._orders = {
            name: ties
            for name, found in orders.items()
            if name not in decided and (ties := OrderTies(model, name, found, open_probed)).is_known
        }

    @property
    def outputs(self) -> frozenset[str]:
        """The outputs that hang on decisions."""
        return frozenset(self._choices) | frozenset(self._shares) | frozenset(self._orders)

    def alternatives(
        self, name: str, answer: Array, feeds: Feeds, tolerance: Tolerance, *, is_adversarial: bool = False
    ) -> tuple[Alternative, ...]:
        """Return what else right runtimes may answer for an output.

        Args:
            answer: the reference's.
            is_adversarial: whether the feeds are a companion.

        Raises:
            RunError, MemoryFullError: a model does not run on the feeds.
        """
        if name in self._orders:
            ties = self._orders[name]
            return ties.alternatives(answer, feeds, tolerance, is_adversarial=is_adversarial)
        if name not in self._shares:
            found = self._outcomes_of(name, answer, feeds, tolerance, is_adversarial)
            hang = np.logical_or.reduce([own != found[0][0] for own, _ in found[1:]]) if found else answer
            return tuple(
                OtherOutcome(own, _allowed(name, own, noise, tolerance), hang) for own, noise in found
            )
        decision = self._shares[name]
        probed = self._open(None, is_adversarial=is_adversarial)(feeds, [decision.logits])
        of_logits = replace(tolerance, steps=self._steps)
        logits = _interval([answers[decision.logits] for answers in probed], of_logits, decision.logits)
        allowed = tolerance.allowed(name, answer, measure_noise(answer, ()))
        return (SharesBetween.of(decision, logits, allowed),)

    def noise(self, name: str, answer: Array, feeds: Feeds, tolerance: Tolerance) -> Noise | None:
        """Return the noise of an output while comparisons keep their outcomes; None where it hangs on none."""
        if name in self._orders:
            return self._orders[name].noise(feeds, tolerance)
        if name not in self._choices:
            return None
        found = self._outcomes_of(name, answer, feeds, tolerance, is_adversarial=False)
        return (
            reduce(lambda noise, other: noise.combine(other, 1.0), (noise for _, noise in found))
            if found
            else None
        )

    def _outcomes_of(
        self, name: str, answer: Array, feeds: Feeds, tolerance: Tolerance, is_adversarial: bool
    ) -> list[tuple[Array, Noise]]:
        """Return the answers, with their noise, for all outcomes of comparisons; none where each is decided."""
        choices = self._choices[name]
        numbers = {value.name or "": value for choice in choices for value in choice.numbers}
        known = {key: _known(value, feeds) for key, value in numbers.items()}
        taps = [key for key, array in known.items() if array is None]
        probed = self._open(None, is_adversarial=is_adversarial)(feeds, taps)
        intervals = {
            key: _interval_of(value, [answers[key] for answers in probed], tolerance)
            if (array := known[key]) is None
            else (array, array)
            for key, value in numbers.items()
        }
        outcomes = [
            _outcomes(choice, [intervals[value.name or ""] for value in choice.numbers]) for choice in choices
        ]
        if all(np.array_equal(*either) for either in outcomes):
            return []
        model = force_outcomes(self._model, choices, [surely.ndim for surely, _ in outcomes])
        forced, found = self._open(model, is_adversarial=is_adversarial), []
        for chosen in itertools.product(*outcomes):
            given = {outcome_name(number): outcome for number, outcome in enumerate(chosen)}
            own, *probes = (answers[name] for answers in forced({**feeds, **given}, ()))
            if own.shape != answer.shape:
                return []
            found.append((own, measure_noise(own, probes)))
        return found


def _allowed(name: str, answer: Array, noise: Noise, tolerance: Tolerance) -> Array:
    return tolerance.allowed(name, answer, noise) if answer.dtype.kind == "f" else np.zeros(())


def _known(value: ir.Value, feeds: Feeds) -> Array | None:
    """Return a constant or an input; None for a value that nodes compute."""
    found = constant(value)
    return feeds.get(value.name or "") if found is None and value.producer() is None else found


def _interval_of(value: ir.Value, answers: Sequence[Array], tolerance: Tolerance) -> Interval:
    """Return what a right runtime may compute for a value, by the reference's own and its probes' numbers."""
    if not is_rounded(value):
        return answers[0], answers[0]
    name = value.name or ""
    if is_saturating(value):
        tolerance = replace(tolerance, saturating=tolerance.saturating | {name})
    least, most = _interval(answers, tolerance, name)
    exact = np.isin(answers[0], ends(value))
    return np.where(exact, answers[0], least), np.where(exact, answers[0], most)


def _interval(answers: Sequence[Array], tolerance: Tolerance, name: str = "") -> Interval:
    own, *probes = answers
    room = tolerance.derived(name, own, measure_noise(own, probes))
    return own - room, own + room


def _outcomes(choice: Choice, numbers: Sequence[Interval]) -> Interval:
    """Return bool[shape] each: where a comparison holds surely, and where it may hold."""
    if choice.window is not None:
        least, most = numbers[0]
        surely = least >= find_rivals(most, choice.window)
        possibly = most >= find_rivals(least, choice.window)
        return (surely, possibly) if choice.for_peak else (~possibly, ~surely)
    first, second = numbers if choice.op.startswith("Greater") else (numbers[1], numbers[0])
    compare = np.greater_equal if choice.op.endswith("OrEqual") else np.greater
    return compare(first[0], second[1]), compare(first[1], second[0])


def find_rivals(values: Array, window: Window) -> Array:
    """Return the largest of an element's neighbours in the window, without itself."""
    axes = len(window.sizes)
    pads = [(0, 0)] * (values.ndim - axes) + [
        (before, size - 1 - before) for size, before in zip(window.sizes, window.before, strict=True)
    ]
    padded = np.pad(values, pads, constant_values=-np.inf)
    largest = np.full(values.shape, -np.inf)
    for place in itertools.product(*map(range, window.sizes)):
        if place == window.before:
            continue
        spatial = zip(place, values.shape[-axes:], strict=True)
        shifted = (slice(None),) * (values.ndim - axes) + tuple(slice(at, at + size) for at, size in spatial)
        np.maximum(largest, padded[shifted], out=largest)
    return largest


@dataclass(frozen=True)
class OtherOutcome:
    """The answer where comparisons within rounding have one of their outcomes.

    Attributes:
        answer, allowed: the answer, and the absolute difference that is allowed.
        hang: bool[shape], the elements that hang on such comparisons.
    """

    answer: Array
    allowed: Array
    hang: Array

    def ratios(self, candidate: Array) -> Array:
        """See Alternative."""
        if self.answer.dtype.kind != "f":
            return np.where(self.hang & (candidate == self.answer), 0.0, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = np.abs(candidate.astype(np.float64) - self.answer.astype(np.float64))
            ratios = np.where(difference > 0, difference / self.allowed, difference)
        return np.where(self.hang, ratios, np.inf)

    def spread(self, accepted: Array) -> Array:
        """See Alternative."""
        return accepted


@dataclass(frozen=True)
class SharesBetween:
    """The shares that a Softmax makes of logits within their tolerance, where that is large.

    Attributes:
        least, most: float64[shape]; the same where logits are exact enough.
        allowed: beyond these.
        hang: bool[shape], the rows of inexact logits.
        decision: the Softmax.
    """

    least: Array
    most: Array
    allowed: Array
    hang: Array
    decision: Decision

    @classmethod
    def of(cls, decision: Decision, logits: Interval, allowed: Array) -> SharesBetween:
        low, high = (decision.rows(each.astype(np.float64)) for each in logits)
        least, most = _share(low - _others(high)), _share(high - _others(low))
        hang = np.broadcast_to((high - low).max(axis=-1, keepdims=True) > 2 * _LEAST_DOUBT, low.shape)
        shape = logits[0].shape
        return cls(
            decision.unflatten(least, shape),
            decision.unflatten(most, shape),
            allowed,
            decision.unflatten(hang, shape),
            decision,
        )

    def ratios(self, candidate: Array) -> Array:
        """See Alternative."""
        given = candidate.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.maximum(np.maximum(self.least - given, given - self.most), 0.0)
            ratios = np.where(beyond > 0, beyond / self.allowed, beyond)
        return np.where(self.hang, ratios, np.inf)

    def spread(self, accepted: Array) -> Array:
        """Return the whole rows: a share that grows is taken from the others."""
        rows = self.decision.rows(accepted)
        whole = np.broadcast_to(rows.any(axis=-1, keepdims=True), rows.shape)
        return self.decision.unflatten(whole, accepted.shape)


def _share(lead: Array) -> Array:
    """Return a class's share by its lead: the logarithm of how much it has against all others together."""
    with np.errstate(invalid="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(-lead, -LARGEST_EXPONENT, LARGEST_EXPONENT))))


def _others(rows: Array) -> Array:
    """Return, for every class, the logarithm of the sum of the others' exponentials."""
    first = np.argmax(rows, axis=-1)[:, None]
    rest = rows.copy()
    np.put_along_axis(rest, first, -np.inf, -1)
    largest, second = np.take_along_axis(rows, first, -1), rest.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(rows - largest)
        others = largest + np.log(np.maximum(exponentials.sum(axis=-1, keepdims=True) - exponentials, 0.5))
        beside_first = second + np.log(np.exp(rest - second).sum(axis=-1, keepdims=True))
    np.put_along_axis(others, first, beside_first, -1)
    return np.asarray(others)
