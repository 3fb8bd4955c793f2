"""A float32 reference with the candidate's roundings: the answers that fidelity expects of a lower precision.

Decisions need noise of their own. Between large logits a Softmax answers 0 or 1. Two probes that happen to decide alike
show no noise at all, where a third rounding decides otherwise; the logits show it. So a row whose first class leads by
no more than twice the noise of its logits gets at least the noise of moving the logits by that much: the other classes
together hold q of the answer, and q * e / (1 - q + q * e) when their logits gain t against the first's, with
e = exp(t).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import Alternative
from onnxport.validate.evidence import Proof
from onnxport.validate.folded_constants import fold_constants
from onnxport.validate.graph_analysis import constant_outputs
from onnxport.validate.noise_runs import Answers, Run, perturb_inputs
from onnxport.validate.reference import Reference
from onnxport.validate.report import Precision
from onnxport.validate.rounded_model import ROUNDINGS, round_model
from onnxport.validate.sessions import Oriented
from onnxport.validate.tolerance import (
    NOISE_FACTOR,
    Noise,
    Tolerance,
    group_maxima,
    measure_noise,
    root_mean_squares,
)

# The candidate and the probe are off by as much each.
_APART = 2.0
_LARGEST = 700.0  # that exp takes
# Since this opset Softmax works along one axis; before, on all axes from that one on.
_ONE_AXIS = 13


class RoundedReference(Closing):
    """A float32 reference with the roundings of `precision`, as ExpectedAnswers.

    Its noise is what other roundings of that size change. There are two probes: the reference's own answers, which have
    no such roundings; and a second rounded model whose weights and inputs move by up to half a step first, so that it
    rounds otherwise all the way.

    Args:
        kept: values that the candidate computes in float32 in spite of its precision.
        least: elements; constants of fewer stay float32.

    Raises:
        InputError: ONNX has no such rounding of this model, or ONNX Runtime refuses it.
    """

    def __init__(
        self, reference: Reference, precision: Precision, kept: Collection[str] = (), least: int = 0
    ) -> None:
        dtype, rounds_results = ROUNDINGS[precision]
        assert reference.graph is not None, "criteria.py calls for it with ONNX references only"
        computed, constants = _value_names(reference.graph)
        known, fixed = set(kept) & computed, set(kept) & constants
        but = f", {len(known)} of its values kept in float32" if known else ""
        rounded = "weights and activations" if rounds_results else "weights"
        self.against = f"the reference with {rounded} rounded to {dtype.name.lower()}{but}"
        # An artefact stores what constants give, and rounds that.
        graph = reference.graph if rounds_results else fold_constants(reference.graph)
        nearest, other = (
            round_model(graph, precision, dither=seed, keep=known | fixed, least=least) for seed in (None, 1)
        )
        if nearest is None or other is None:
            raise InputError(f"opset {reference.graph.opset} has no Cast to {dtype.name.lower()}")
        self.tolerance: Tolerance = replace(reference.tolerance, precision=precision)
        self._nearest, self._other = OrtRuntime.of_model(nearest), OrtRuntime.of_model(other)
        # The logits of several steps are not available.
        self._decisions = find_decisions(reference.graph) if reference.steps == 1 else {}
        # Logits that are an output as well are answered without.
        taps = sorted(
            {each.logits for each in self._decisions.values()} - {each.name for each in reference.outputs}
        )
        sides = [Oriented(each) for each in (self._nearest, self._other)]
        runs: list[Run] = (
            [partial(side.run, taps=taps) for side in sides]
            if taps
            else [reference.roll_out(side).run for side in sides]
        )
        self._run = runs[0]
        self._run_moved = perturb_inputs(runs[1], 1, precision)
        self._proof = Proof((spec.name for spec in reference.outputs), constant_outputs(reference.graph))

    @property
    def doubts(self) -> dict[str, str]:
        return self._proof.doubts

    def expect(
        self, answered: AnsweredSet, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """See ExpectedAnswers."""
        expected, moved = self._run(feeds), self._run_moved(feeds, answers)
        # Noise of float32 counts as it does for float32.
        weight = NOISE_FACTOR / self.tolerance.rule.factor
        noise = {
            name: measure_noise(expected[name], [answer, moved[name]]).combine(answered.noise[name], weight)
            for name, answer in answers.items()
        }
        for name, decision in self._decisions.items():
            own = decision.noise(expected[decision.logits], moved[decision.logits])
            noise[name] = noise[name].combine(own, 1.0)
        if not (answered.adversarial or answered.nan):
            self._proof.add(expected, noise, self.tolerance)
        return expected, noise

    def alternatives(
        self, answered: AnsweredSet, names: Collection[str], tolerance: Tolerance
    ) -> dict[str, tuple[Alternative, ...]]:
        """Return none: noise shows decisions here."""
        return {}

    def close(self) -> None:
        self._nearest.close()
        self._other.close()


def _value_names(model: Model) -> tuple[set[str], set[str]]:
    """Return the names of the values that nodes compute, and of the constants."""
    constants = {name for graph in model.ir.graphs() for name in graph.initializers}
    computed = set[str]()
    for node in model.graph.all_nodes():
        (constants if node.op_type == "Constant" else computed).update(v.name or "" for v in node.outputs)
    return computed, constants


@dataclass(frozen=True)
class Decision:
    """An output that a Softmax gives.

    Attributes:
        logits: the Softmax's input.
        axis: the first axis that it sums over.
        flattens: whether it sums over all axes from there on.
    """

    logits: str
    axis: int
    flattens: bool

    def noise(self, logits: Array, moved: Array) -> Noise:
        """Return the output's noise by its logits and a probe's; 0 where the first class leads far enough."""
        rows = self.rows(logits).astype(np.float64)
        apart = _moved_mass(rows, self.rows(moved).astype(np.float64))
        shares = self.unflatten(np.broadcast_to(apart[:, None], rows.shape), logits.shape)
        # What the first class loses goes to one other at most: two elements of the row.
        rms = root_mean_squares(shares * math.sqrt(2 / rows.shape[1]))
        return Noise(group_maxima(shares), None, rms=rms)

    def rows(self, values: Array) -> Array:
        """Return [row, class]: values of the output's shape, a row for each sum."""
        if self.flattens:
            return values.reshape(math.prod(values.shape[: self.axis]), -1)
        moved = np.moveaxis(values, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    def unflatten(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """Return rows in the output's shape."""
        if self.flattens:
            return rows.reshape(shape)
        moved = (*shape[: self.axis], *shape[self.axis + 1 :], shape[self.axis])
        return np.moveaxis(rows.reshape(moved), -1, self.axis)


def find_decisions(model: Model) -> dict[str, Decision]:
    """Map the graph outputs that a Softmax gives to their decisions."""
    found = {}
    for value in model.graph.outputs:
        node = value.producer()
        if node is None or node.op_type != "Softmax" or node.domain or value.shape is None or not value.name:
            continue
        source, flattens = node.inputs[0], model.opset < _ONE_AXIS
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1 if flattens else -1
        # Runtimes show values that nodes compute.
        if source is not None and source.name and source.producer() is not None:
            found[value.name] = Decision(source.name, axis % max(len(value.shape), 1), flattens)
    return found


def _moved_mass(rows: Array, moved: Array) -> Array:
    """Return how much of each row may go from the first class to others, or back; 0 for a decided row."""
    if rows.shape != moved.shape or rows.shape[-1] < 2:
        return np.zeros(len(rows))
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(rows + moved).all(axis=-1, keepdims=True)
        first = np.argmax(np.where(finite, rows, 0.0), axis=-1)[:, None]
        behind = rows - np.take_along_axis(rows, first, -1)
        change = np.abs(behind - (moved - np.take_along_axis(moved, first, -1))).max(axis=-1)
        np.put_along_axis(behind, first, -np.inf, -1)
        turned = finite[:, 0] & (-behind.max(axis=-1) <= _APART * change)
        others = np.exp(behind).sum(axis=-1)
        gain = np.exp(np.minimum(_APART * change, _LARGEST))
        # The others may also lose as much; the larger change counts.
        up, down = (others * factor / (1 + others * factor) for factor in (gain, 1 / gain))
        share = others / (1 + others)
        return np.where(turned, np.maximum(up - share, share - down), 0.0)
