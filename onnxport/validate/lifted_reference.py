"""What a `.tflite` file's own operators and numbers give in ONNX Runtime.

Weights that are rounded to 16 bits move what lies behind a threshold, or drown in it. So answers alone cannot tell
whether a right file differs from its source by more than another rounding would. Where each node and each constant of a
file is proven to be the source's, rounded (translation/), one question is left: do the kernels compute what the file
says? For that the file is written as an ONNX model with its own numbers, and its answers are expected within float32
noise. No rounding of weights is left between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.model import Model
from onnxport.formats.tflite.ports import read_signature
from onnxport.runtimes.base import RunError
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import Alternative
from onnxport.validate.near_ties import NearTies
from onnxport.validate.noise_meter import Probed
from onnxport.validate.noise_runs import Answers, perturb_inputs, perturb_zeros
from onnxport.validate.reference import Reference
from onnxport.validate.report import RIGHT, Judgement
from onnxport.validate.sessions import Oriented
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, Tolerance, group_scales, measure_noise
from onnxport.validate.translation.tflite import operators
from onnxport.validate.translation.tflite.artefact import prove_tflite
from onnxport.validate.translation.tflite.contents import read_stored
from onnxport.validate.translation.tflite.lift import Lifting
from onnxport.validate.translation.tflite.pieces import at_sizes

_PLAIN = RuntimeOptions(level="disable")


class Evaluate(Protocol):
    """Runs the candidate on every set and applies the criteria; evaluation.evaluate without its other arguments."""

    def __call__(self, *, lifted: LiftedReference) -> tuple[tuple[Judgement, ...], tuple[str, ...]]: ...


def ask_own_numbers(
    reference: Reference, path: Path, evaluate: Evaluate
) -> tuple[tuple[Judgement, ...], tuple[str, ...]] | None:
    """Evaluate a file that is its source node for node against what its own numbers give.

    Returns:
        Judgements and notes; None where it fails here, too, is not proven at other sizes that were fed, or cannot be
        written as an ONNX model.
    """
    if not _is_proven_at_all_sizes(reference, path):
        return None
    try:
        judgements, notes = evaluate(lifted=LiftedReference(reference, path))
    except (InputError, RunError):
        return None
    return (judgements, notes) if judgements[0].verdict in RIGHT else None


def _is_proven_at_all_sizes(reference: Reference, path: Path) -> bool:
    """Return whether the file is its source at each size that was fed; at one of them it is known to be."""
    fed = {tuple(sorted(each.shapes.items())): each for each in reference.sets}
    if len(fed) == 1:
        return True
    assert reference.graph is not None, "translations are of ONNX graphs"
    sets = (reference.answers(each)[0] for each in fed.values())
    try:
        return all(
            prove_tflite(reference.graph, path, [feeds], are_samples=False, rounding="float16").is_complete
            for feeds in sets
        )
    except (InputError, RunError):
        return False


class LiftedReference(Closing):
    """The answers that a `.tflite` file in float arithmetic should give, as ExpectedAnswers.

    Args:
        reference: what the file was made of.
        path: the file.

    Raises:
        InputError: an operator of the file is not known.
        RunError: LiteRT cannot run it.
    """

    against = "the file's own operators and numbers, computed by ONNX Runtime"

    def __init__(self, reference: Reference, path: Path) -> None:
        self._reference, self.tolerance = reference, reference.tolerance
        self._ends, self._stored = read_signature(path), read_stored(path)
        self._models: dict[tuple[tuple[str, tuple[int, ...]], ...], _Lifted] = {}
        self._least: dict[str, float] = {}

    @property
    def doubts(self) -> dict[str, str]:
        """Outputs whose noise hides everything. That an output never moves says nothing of a graph that is proven."""
        return {
            name: f"the noise of the file's own numbers is {share:.1%} of the output's scale"
            for name, share in self._least.items()
            if share > CONCLUSIVE_NOISE
        }

    def expect(
        self, answered: AnsweredSet, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """See ExpectedAnswers."""
        expected, *probes = self._at(feeds).run(feeds, is_adversarial=answered.adversarial)
        noise = {
            name: measure_noise(answer, [each[name] for each in probes]) for name, answer in expected.items()
        }
        for name, each in noise.items():
            if not answered.adversarial and expected[name].dtype.kind == "f":
                scale = float(group_scales(expected[name]).max(initial=0.0))
                share = each.largest / scale if scale else 0.0
                self._least[name] = min(self._least.get(name, share), share)
        return expected, noise

    def alternatives(
        self, answered: AnsweredSet, names: Collection[str], tolerance: Tolerance
    ) -> dict[str, tuple[Alternative, ...]]:
        """See ExpectedAnswers."""
        feeds, _ = self._reference.answers(answered)
        lifted = self._at(feeds)
        found: dict[str, tuple[Alternative, ...]] = {}
        if (ties := lifted.ties) is None:
            return {}
        with suppress(RunError):
            for name in (each for each in names if each in ties.outputs):
                found[name] = ties.alternatives(name, lifted.own(feeds)[name], feeds, tolerance)
        return found

    def close(self) -> None:
        for each in self._models.values():
            each.close()
        self._models.clear()

    def _at(self, feeds: Feeds) -> _Lifted:
        """Return the file at the sizes of a set."""
        sizes = tuple((name, array.shape) for name, array in feeds.items())
        if sizes not in self._models:
            stored, shapes = at_sizes(self._stored, self._ends, feeds)
            lifted = Lifting(stored, self._ends, shapes).run(operators.OPERATORS)
            if lifted.unknown:
                why = next(iter(lifted.unknown.values()))
                raise InputError("the file cannot be written as an ONNX model", why=why)
            self._models[sizes] = _Lifted(self._reference, lifted.model)
        return self._models[sizes]


class _Lifted(Closing):
    """The file at one size, with probes of its noise.

    Args:
        reference: whose steps it goes through.
    """

    def __init__(self, reference: Reference, model: Model) -> None:
        self._reference, self._model = reference, model
        self._opened: list[OrtRuntime] = []
        self._own, self._other = self._open(model), self._open(model, _PLAIN)

    def own(self, feeds: Feeds) -> Answers:
        """Return the answers alone."""
        return self._reference.roll_out(Oriented(self._own)).run(feeds)

    @cached_property
    def ties(self) -> NearTies | None:
        """The decisions behind its outputs, of a model of a single step."""
        return None if self._reference.steps > 1 else NearTies(self._model, self._probed)

    def run(self, feeds: Feeds, *, is_adversarial: bool) -> list[Answers]:
        """Return the answers, and those of probes."""
        run = self._reference.roll_out(Oriented(self._own)).run
        answers = run(feeds)
        probes = [perturb_inputs(run, seed) for seed in (1, 2)]
        probes += [perturb_zeros(run)] if is_adversarial else []
        others = self._reference.roll_out(Oriented(self._other)).run(feeds)
        return [answers, others, *(probe(feeds, answers) for probe in probes)]

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def _open(self, model: Model, options: RuntimeOptions | None = None) -> OrtRuntime:
        runtime = OrtRuntime.of_model(model) if options is None else OrtRuntime.of_model(model, options)
        self._opened.append(runtime)
        return runtime

    def _probed(self, model: Model | None, *, is_adversarial: bool = False) -> Probed:
        """See near_ties.OpenProbed."""
        own, other = (
            (self._own, self._other) if model is None else (self._open(model), self._open(model, _PLAIN))
        )

        def run(feeds: Feeds, taps: Sequence[str]) -> list[Answers]:
            tapped = partial(own.run, taps=taps)
            answers = tapped(feeds)
            moved = [perturb_inputs(tapped, seed)(feeds, answers) for seed in (1, 2)]
            return [answers, other.run(feeds, taps=taps), *moved]

        return run
