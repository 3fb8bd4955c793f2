"""What an artefact's own operators and numbers give in ONNX Runtime.

Numbers that are rounded to 16 bits move what lies behind a threshold, or drown in it. So answers alone cannot tell
whether a right file differs from its source by more than another rounding would. Where each node and each constant of a
file is proven to be the source's, rounded (translation/), one question is left: do the kernels compute what the file
says? For that the file is written as an ONNX model with its own numbers, and its answers are expected within float32
noise. No rounding of weights is left between the two.

The values of a Core ML package in float16 are rounded on their way, too, and two right evaluations of one package may
be as far apart as either is from the source. So both sides compute in float32 here, and what is left of the package is
that each result is rounded to its type, as its program declares. Quality is still that of the package as it is: its
answers are finite where the source's are, and within the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError, Runtime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.budgets import Budgets
from onnxport.validate.comparison import Alternative
from onnxport.validate.near_ties import NearTies
from onnxport.validate.noise_meter import Probed
from onnxport.validate.noise_runs import Answers, perturb_inputs, perturb_zeros
from onnxport.validate.reference import Reference
from onnxport.validate.report import RIGHT, Criterion, Judgement
from onnxport.validate.rollout import Run
from onnxport.validate.sessions import Oriented
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, Tolerance, group_scales, measure_noise
from onnxport.validate.translation.judgement import PROVERS
from onnxport.validate.translation.proof import source_at

_PLAIN = RuntimeOptions(level="disable")

_AS_STORED = "the file's own operators and numbers, computed by ONNX Runtime"
_IN_FLOAT32 = f"{_AS_STORED}, both in float32"

Judged = tuple[tuple[Judgement, ...], tuple[str, ...]]
# Writes a file as an ONNX model at the sizes of a set; raises InputError where that cannot be done.
Lift = Callable[[Feeds], Model]


class Evaluate(Protocol):
    """Runs a candidate on every set and applies the criteria; evaluation.evaluate without its other arguments."""

    def __call__(
        self,
        candidate: Run,
        *,
        lifted: LiftedReference | None = None,
        criterion: Criterion | None = None,
        is_proven: bool = True,
        budgets: Budgets = ...,
    ) -> Judged: ...


def ask_own_numbers(
    reference: Reference,
    candidate: Artifact,
    model: Run,
    evaluate: Evaluate,
    found: tuple[Judgement, ...],
    orient: Callable[[Runtime], Run],
) -> Judged | None:
    """Evaluate a file that is its source node for node against what its own numbers give.

    Args:
        model: the candidate, running.
        found: its judgements so far.
        orient: shows a runtime of the candidate as the reference's own.

    Returns:
        Judgements and notes; None where it fails here, too, is not proven at other sizes that were fed, or cannot be
        written as an ONNX model.
    """
    if not _is_proven_at_all_sizes(reference, candidate):
        return None
    assert reference.graph is not None, "translations are of ONNX graphs"
    try:
        if candidate.format == "tflite":
            lifted = LiftedReference(reference, lift_tflite(candidate.path, reference.graph))
            judgements, notes = evaluate(model, lifted=lifted, is_proven=True)
        else:
            judgements, notes = _ask_in_float32(reference, candidate.path, evaluate, orient)
            if judgements[0].verdict in RIGHT:
                quality = tuple(each for each in found if each.question == "quality")
                if any(each.verdict not in RIGHT for each in quality):
                    quality, more = evaluate(model, criterion="quality", is_proven=True)
                    notes += more
                judgements = (judgements[0], *quality)
    except (InputError, RunError):
        return None
    return (judgements, notes) if judgements[0].verdict in RIGHT else None


def _ask_in_float32(
    reference: Reference, path: Path, evaluate: Evaluate, orient: Callable[[Runtime], Run]
) -> Judged:
    """Evaluate a package in float32."""
    # Imported here: it needs coremltools.
    from onnxport.runtimes.mlprogram.runtime import MilRuntime

    with closing(MilRuntime(path, rounds=False)) as wide:
        lifted = LiftedReference(reference, lift_mlpackage(path), _IN_FLOAT32)
        return evaluate(
            orient(wide), lifted=lifted, criterion="fidelity", is_proven=True, budgets=Budgets({})
        )


def lift_tflite(path: Path, source: Model) -> Lift:
    """Return what writes a `.tflite` file as an ONNX model.

    Args:
        source: what it was made of; its nodes stand for operators that ONNX has not (stand_ins.py).
    """
    # Imported here: it needs LiteRT.
    from onnxport.validate.translation.tflite.artefact import TfliteArtefact

    def lift(feeds: Feeds) -> Model:
        artefact = TfliteArtefact(path, feeds)
        if artefact.unknown:
            artefact.match(source_at(source, artefact, feeds), rounding="")
        _check_known(artefact.unknown)
        return artefact.lifted

    return lift


def lift_mlpackage(path: Path) -> Lift:
    """Return what writes the default function of an `.mlpackage` as an ONNX model in float32."""
    # Imported here: it needs coremltools.
    from onnxport.validate.translation.mlpackage.artefact import lift_function

    def lift(feeds: Feeds) -> Model:
        found = lift_function(path, feeds, rounds=False)
        _check_known(found.unknown)
        return found.model

    return lift


def _check_known(unknown: Mapping[str, str]) -> None:
    if unknown:
        why = next(iter(unknown.values()))
        raise InputError("the file cannot be written as an ONNX model", why=why)


def _is_proven_at_all_sizes(reference: Reference, candidate: Artifact) -> bool:
    """Return whether the file is its source at each size that was fed; at one of them it is known to be."""
    fed = {tuple(sorted(each.shapes.items())): each for each in reference.sets}
    if len(fed) == 1:
        return True
    assert reference.graph is not None, "translations are of ONNX graphs"
    sets = (reference.answers(each)[0] for each in fed.values())
    try:
        return all(
            PROVERS[candidate.format](reference.graph, candidate.path, [feeds], False, "float16").is_complete
            for feeds in sets
        )
    except (InputError, RunError):
        return False


class LiftedReference(Closing):
    """The answers that a file in float arithmetic should give, as ExpectedAnswers.

    Args:
        reference: what the file was made of.
        lift: writes the file as an ONNX model.
        against: its name in the report.

    Raises:
        InputError: an operator of the file is not known.
        RunError: ONNX Runtime cannot run it.
    """

    def __init__(self, reference: Reference, lift: Lift, against: str = _AS_STORED) -> None:
        self._reference, self.tolerance, self.against = reference, reference.tolerance, against
        self._lift = lift
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
            self._models[sizes] = _Lifted(self._reference, self._lift(feeds))
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

        def run(feeds: Feeds, taps: Sequence[str], *, is_alone: bool = False) -> list[Answers]:
            tapped = partial(own.run, taps=taps)
            answers = tapped(feeds)
            if is_alone:
                return [answers]
            moved = [perturb_inputs(tapped, seed)(feeds, answers) for seed in (1, 2)]
            return [answers, other.run(feeds, taps=taps), *moved]

        return run
