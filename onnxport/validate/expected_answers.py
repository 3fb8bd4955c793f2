"""What a candidate's own arithmetic is held to: the reference itself, or the reference with its roundings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Protocol

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.runtimes.ort.session import OrtRuntime
from onnxport.validate.decisions import beside, decisions
from onnxport.validate.evidence import Proof
from onnxport.validate.graph_analysis import constant_outputs
from onnxport.validate.noise_runs import Answers, Run, perturbed_inputs
from onnxport.validate.reference import Answered, Reference
from onnxport.validate.report import Precision
from onnxport.validate.rounded_reference import ROUNDINGS, rounded
from onnxport.validate.signature import Oriented
from onnxport.validate.tolerance import NOISE_FACTOR, Noise, Tolerance, measure_noise

_WORDS = {True: "weights and activations", False: "weights"}


class Yardstick(Protocol):
    """Answers that a candidate's have to equal, up to a tolerance."""

    tolerance: Tolerance

    @property
    def against(self) -> str:
        """What it is, for the report."""
        ...

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the sets that were measured prove nothing of it."""
        ...

    def measured(
        self, answered: Answered, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """The yardstick's answers to one set, and their noise.

        Args:
            feeds, answers: the set's inputs, and the reference's own answers.
        """
        ...


def _values(model: Model) -> tuple[set[str], set[str]]:
    """The names of what its nodes compute, and of its constants."""
    constants = {name for graph in model.ir.graphs() for name in graph.initializers}
    computed = set[str]()
    for node in model.graph.all_nodes():
        (constants if node.op_type == "Constant" else computed).update(v.name or "" for v in node.outputs)
    return computed, constants


class RoundedReference:
    """A float32 reference with the roundings of `precision`; its noise is what other roundings of that size do.

    Two probes: the reference's own answers, which are without these roundings, and a second rounded model whose
    weights and inputs were moved by up to half a step first, so that it rounds otherwise all the way.
    """

    def __init__(self, reference: Reference, precision: Precision, kept: Collection[str] = ()) -> None:
        """Raises InputError where ONNX has no such rounding of this model, or ONNX Runtime refuses it."""
        dtype, results = ROUNDINGS[precision]
        assert reference.graph is not None, "criteria.py asks this of ONNX references only"
        computed, constants = _values(reference.graph)
        known, fixed = set(kept) & computed, set(kept) & constants
        but = f", {len(known)} of its values kept in float32" if known else ""
        self.against = f"the reference with {_WORDS[results]} rounded to {dtype.name.lower()}{but}"
        nearest, other = (
            rounded(reference.graph, precision, dither=seed, keep=known | fixed) for seed in (None, 1)
        )
        if nearest is None or other is None:
            raise InputError(f"opset {reference.graph.opset} has no Cast to {dtype.name.lower()}")
        self.tolerance = replace(reference.tolerance, precision=precision)
        self._nearest, self._other = OrtRuntime.of_model(nearest), OrtRuntime.of_model(other)
        # The logits of several steps are not to be had.
        self._decisions = decisions(reference.graph) if reference.steps == 1 else {}
        taps = sorted({each.logits for each in self._decisions.values()})
        sides = [Oriented(each) for each in (self._nearest, self._other)]
        runs: list[Run] = [partial(side.run, taps=taps) for side in sides]
        answering: list[Run] = [reference.rolled(side).run for side in sides]
        self._run, run_other = runs if taps else answering
        self._moved = perturbed_inputs(run_other, 1, precision)
        self._proof = Proof((spec.name for spec in reference.outputs), constant_outputs(reference.graph))

    @property
    def doubts(self) -> dict[str, str]:
        return self._proof.doubts

    def measured(
        self, answered: Answered, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        expected, moved = self._run(feeds), self._moved(feeds, answers)
        # Noise of float32 counts as it does for float32.
        weight = NOISE_FACTOR / self.tolerance.rule.factor
        noise = {
            name: measure_noise(expected[name], [answer, moved[name]]).beside(answered.noise[name], weight)
            for name, answer in answers.items()
        }
        found = {
            name: each.noise(expected[each.logits], moved[each.logits])
            for name, each in self._decisions.items()
        }
        noise = beside(noise, found)
        if not (answered.adversarial or answered.nan):
            self._proof.add(expected, noise, self.tolerance)
        return expected, noise

    def close(self) -> None:
        self._nearest.close()
        self._other.close()
