"""A float32 reference with the candidate's roundings: the answers that fidelity expects of a lower precision.

Outputs of a Softmax have noise of decisions beside it (softmax_decisions.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from onnxport.core.arrays import Feeds
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
from onnxport.validate.softmax_decisions import find_decisions
from onnxport.validate.tolerance import NOISE_FACTOR, Noise, Tolerance, measure_noise


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
