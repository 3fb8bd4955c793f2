"""The reference's answers to all sets of inputs, and what they are worth: computed once, asked by every verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.formats.artifact import Referent, TensorSpec
from onnxport.formats.input_shapes import apply_shapes, limits
from onnxport.formats.model import Model
from onnxport.runtimes.base import ReferenceRuntime, Runtime
from onnxport.runtimes.memory_limit import MemoryLimit, format_size, needed
from onnxport.runtimes.options import RuntimeOptions
from onnxport.samples.columns import is_odd_nan
from onnxport.samples.domain import Domain, declared_domains, domains, without_functions
from onnxport.samples.footprint import Footprint
from onnxport.samples.readers import Sample
from onnxport.samples.sizes import OpenSizes
from onnxport.validate.adversarial_noise import UsualNoise
from onnxport.validate.evidence import Proof
from onnxport.validate.graph_analysis import (
    UNKNOWN_LENGTH,
    accumulation_length,
    constant_outputs,
    has_16_bit_activations,
    output_nodes,
    output_steps,
    saturating_outputs,
    unread_inputs,
)
from onnxport.validate.input_sets import GeneratedInputs, Loader, feed_from_folder
from onnxport.validate.noise_runs import (
    MOVES,
    Answers,
    Probe,
    nudged_zeros,
    other_batch,
    other_kernels,
    perturbed_inputs,
    perturbed_weights,
)
from onnxport.validate.params import ValidateParams
from onnxport.validate.precision import precision_of
from onnxport.validate.report import NodeRef, Precision
from onnxport.validate.rollout import Rolling, at_step
from onnxport.validate.signature import Oriented, check_tensors
from onnxport.validate.size_search import Search, Tell, patience
from onnxport.validate.tolerance import Noise, Tolerance, measure_noise

# Bytes of inputs and answers that are kept; beyond, they are computed again when they are needed.
_KEPT = 256 * 2**20

# Their outputs may be of known quantization steps.
_STEPPED = frozenset({"int8", "int16x8"})

_FEW = 5  # names in a note


@dataclass
class Answered:
    """One set of inputs with the reference's answers.

    Attributes:
        load: makes or reads the inputs again, the same ones.
        label, source, shapes: see report.InputSet.
        noise: of each output.
        kept: the inputs and the answers, or None where all sets together are too large to be kept.
        adversarial: see Sample.
        first_row: see Sample.
        nan: whether an input holds NaN that is no missing value, so that an answer of NaN says nothing.
    """

    load: Loader
    label: str
    source: Literal["samples", "generated"]
    shapes: dict[str, tuple[int, ...]]
    noise: dict[str, Noise]
    kept: tuple[Feeds, Answers] | None
    adversarial: bool = False
    nan: bool = False
    first_row: int = 0


class Reference:
    """A model that is taken for right, its answers, their noise, and what they prove.

    A yardstick for candidates of the same precision (expected_answers.py).

    Args:
        artifact: the model's file, or a framework's model.
        params: which inputs, and how they are judged.
        runtime: the process that runs it.
        graph: the model in memory, where the caller has it already; of a framework's model what was exported from it,
            which tells what its inputs may hold.
        tell: is told how long the search for sizes has taken.
    """

    against = "the reference itself"

    def __init__(
        self,
        artifact: Referent,
        params: ValidateParams,
        runtime: ReferenceRuntime,
        graph: Model | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.artifact, self._params, self._tell = artifact, params, tell
        self._limit = MemoryLimit.of(params.memory_limit, artifact)
        if graph is None and artifact.format == "onnx":
            graph = Model.load(artifact.path)
        self.graph = graph and without_functions(graph)
        self._runtime = runtime
        model = Oriented(runtime)
        check_tensors(model, str(artifact.path))
        read = domains(self.graph) if self.graph else declared_domains(model.inputs)
        known = {**read, **runtime.domains}
        rolling = Rolling(model, self.graph, known, params)
        self.rolled, self.steps, self._states = rolling.rolled, rolling.steps, rolling.states
        self._domains = rolling.domains
        self._exact = frozenset(
            name for name, domain in known.items() if domain.kind == "table" and not domain.is_smooth
        )
        self._model = self.rolled(model)
        self._footprint = Footprint(self.graph, self.inputs, self.steps)
        self.name = runtime.name
        self.shapes = apply_shapes(self.inputs, params.shape)
        self.precision = precision_of(artifact, graph, params.reference_runtime.get("function", ""))
        self.tolerance = self._tolerance()
        self.sets: list[Answered] = []
        self.notes: tuple[str, ...] = rolling.notes
        constant = constant_outputs(self.graph) if self.graph else frozenset[str]()
        self._proof = Proof((spec.name for spec in self.outputs), constant)
        self._usual = UsualNoise()
        self._batch_axes = OpenSizes(self.inputs, self.shapes).batch_axes
        self._bytes = 0
        self._probes: list[Probe] = []
        self._closing: list[Runtime] = [self._model.runtime]
        self._folders: list[TemporaryDirectory[str]] = []
        self._progress = threading.Condition()
        self._failure: BaseException | None = None
        self._generated: GeneratedInputs | None = None
        self._ready = False

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._model.outputs

    @property
    def unread(self) -> tuple[TensorSpec, ...]:
        """Inputs that no output depends on, told by the graph: a candidate may do without them."""
        if self.graph is None or not self._is_its_graph:
            return ()
        names = unread_inputs(self.graph)
        return tuple(spec for spec in self.inputs if spec.name in names)

    @property
    def features(self) -> tuple[str, ...] | None:
        """See ReferenceRuntime.features."""
        return self._runtime.features

    @property
    def nodes(self) -> dict[str, NodeRef]:
        """Output name to the node that makes it, where the graph can be read."""
        return output_nodes(self.graph) if self.graph else {}

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the answers prove nothing of it."""
        return self._proof.doubts

    def _rows(self, sample: Sample) -> int:
        """The batch of a set; 1 where the model has none that is open."""
        name, axis = next(iter(self._batch_axes.items()), ("", 0))
        return int(sample.feeds[name].shape[axis]) if name else 1

    def prepare(self) -> None:
        """Runs the reference on every set of inputs; `wait` in other threads learns of each."""
        try:
            self._run_all()
        except BaseException as error:
            self._failure = error
            self.close()
            raise
        finally:
            with self._progress:
                self._ready = True
                self._progress.notify_all()

    def wait(self, sets: int | None = None) -> None:
        """Waits for the first `sets` sets, or for all, and raises what `prepare` failed with."""
        with self._progress:
            self._progress.wait_for(lambda: self._ready or (sets is not None and len(self.sets) >= sets))
        if self._failure is not None:
            raise self._failure

    def _run_all(self) -> None:
        self._probes = list(self._make_probes())
        if self._params.inputs is not None:
            self.notes += feed_from_folder(
                self.inputs, self.shapes, self._params, self._states, self._answer, self._runtime.features
            )
        else:
            sizes = OpenSizes(self.inputs, self.shapes, limits(self.inputs, self._params.shape))
            seconds = patience(self.artifact.size)
            search = Search(sizes, self._footprint, self._limit, seconds, self._tell)
            self._generated = generated = GeneratedInputs(
                self.inputs, self._domains, self._params.seed, self._answer, sizes, search
            )
            generated.feed(self._params.samples, lambda: bool(self.doubts), lambda: bool(self._proof.blind))
            self.notes += tuple(generated.notes)
        if odd := [answered.label for answered in self.sets if answered.nan]:
            more = f" and {len(odd) - _FEW} more" if len(odd) > _FEW else ""
            self.notes += (
                f"inputs hold NaN in {', '.join(odd[:_FEW])}{more}: what a model makes of NaN proves nothing",
            )
        if blind := self._proof.blind:
            names = ", ".join(map(repr, blind[:_FEW]))
            self.notes += (f"the rows of a batch never differed at {names}: a mix-up of rows would not show",)
        self._close_if_kept()

    def further(self) -> Generator[Answered, None, None]:
        """More sets, for a yardstick of which those that there are prove nothing; none beside inputs of the user's."""
        if self._generated is None:
            return
        self._reopen()
        self._probes = list(self._make_probes())
        try:
            while self._generated.feed_further():
                yield self.sets[-1]
        finally:
            self._close_if_kept()

    def ask(self, feeds: Feeds) -> Answers:
        """What the reference answers to inputs that are in none of the sets."""
        self._reopen()
        try:
            return self._model.run(feeds)
        finally:
            self._close_if_kept()

    def _reopen(self) -> None:
        if not self._closing:
            self._runtime = self._runtime.again()
            self._closing.append(self._runtime)
            self._model = self.rolled(Oriented(self._runtime))

    def _close_if_kept(self) -> None:
        if all(answered.kept is not None for answered in self.sets):
            self.close()

    def answers(self, answered: Answered) -> tuple[Feeds, Answers]:
        """The inputs of a set and the reference's answers, from memory or once more."""
        if answered.kept is not None:
            return answered.kept
        feeds = answered.load().feeds
        return feeds, self._model.run(feeds)

    def at_step(self, first: Feeds, answers: Answers, step: int) -> Feeds:
        """What a model is fed at `step`, which gave `answers` at the step before."""
        fed = {name: at_step(array, self._domains[name], step) for name, array in first.items()}
        return {**fed, **{name: answers[output] for name, output in self._states.items()}} if step else first

    def measured(
        self, answered: Answered, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """As a yardstick (expected_answers.py): its own answers and their noise."""
        return answers, answered.noise

    def close(self) -> None:
        """Frees the runtimes; answers that were kept stay."""
        while self._closing:
            self._closing.pop().close()
        while self._folders:
            self._folders.pop().cleanup()
        self._probes = []

    def _tolerance(self) -> Tolerance:
        length, saturating, steps = UNKNOWN_LENGTH, frozenset[str](), dict[str, float]()
        if self.graph is not None:
            length, saturating = accumulation_length(self.graph), saturating_outputs(self.graph)
            steps = output_steps(self.graph) if self.precision in _STEPPED else {}
        return Tolerance(
            length, saturating, self._params.rtol, self._params.atol, precision=self.precision, steps=steps
        )

    def _make_probes(self) -> Iterator[Probe]:
        run = self._model.run
        beside = other_batch(run, self.inputs)
        if beside is not None:
            yield beside
        movable = {"float32", "float64"} | ({"float16"} if self.precision in MOVES else set())
        if any(spec.dtype in movable and spec.name not in self._exact for spec in self.inputs):
            yield from (perturbed_inputs(run, seed, self._rounds_to, self._exact) for seed in (1, 2))
        elif self._is_its_graph and (shaken := self._shaken()) is not None:
            yield from self._other_kernels(lambda: self._apart(shaken))
        yield from self._other_kernels(self._runtime.other_kernels)

    @property
    def _rounds_to(self) -> Precision:
        """The precision whose roundings the inputs are moved by: of 16 bits where some activations have these."""
        return "int16x8" if self.graph and has_16_bit_activations(self.graph) else self.precision

    @property
    def _is_its_graph(self) -> bool:
        """Whether the graph is the reference's own; what was exported from a framework's model is the accused, whose
        answers are no noise of the reference."""
        return self.artifact.format == "onnx"

    def _shaken(self) -> Model | None:
        return perturbed_weights(self.graph, self.precision) if self.graph is not None else None

    def _apart(self, model: Model) -> Runtime | None:
        """A model in memory as a runtime in the reference's process: there its runs are bounded as all others."""
        folder = TemporaryDirectory(prefix="onnxport-")
        self._folders.append(folder)
        saved = model.save(Path(folder.name, "model.onnx"))
        return self._runtime.beside(RuntimeOptions(), saved.path)

    def _other_kernels(self, load: Callable[[], Runtime | None]) -> Iterator[Probe]:
        try:
            runtime = load()
        except InputError:  # an operator that ONNX Runtime has in its optimized form alone
            return
        if runtime is None:
            return
        self._closing.append(runtime)
        yield other_kernels(self.rolled(Oriented(runtime)).run)

    def _answer(self, load: Loader, seconds: float | None) -> None:
        """Runs the reference and its probes on one set; `seconds` is how long the first run may take."""
        sample = load()
        if sample.source != "generated":
            self._check_memory(sample)
        nan = any(_holds_nan(array, self._domains[name]) for name, array in sample.feeds.items())
        with nullcontext() if seconds is None else self._runtime.within(seconds):
            answers = self._model.run(sample.feeds)
        if sample.adversarial and not all(map(_is_finite, answers.values())):
            return  # where the reference itself overflows or divides by 0, right artefacts differ in how
        # The last two, other inputs or weights and other kernels, have to do for companions, which are full of zeros.
        companion = [*self._probes[-2:], nudged_zeros(self._model.run, self._exact)]
        chosen = companion if sample.adversarial else self._probes
        probes = [probe(sample.feeds, answers) for probe in chosen]
        noise = {
            name: measure_noise(answer, [probe[name] for probe in probes]) for name, answer in answers.items()
        }
        if sample.adversarial:
            noise = {name: self._usual.at_least(name, answers[name], known) for name, known in noise.items()}
        elif not nan:
            self._proof.add(answers, noise, self.tolerance, self._rows(sample))
            for name, answer in answers.items():
                self._usual.learn(name, answer, noise[name])
        self._bytes += sum(array.nbytes for array in (*sample.feeds.values(), *answers.values()))
        kept = (sample.feeds, answers) if self._bytes <= _KEPT else None
        shapes = {name: array.shape for name, array in sample.feeds.items()}
        answered = Answered(
            load,
            sample.label,
            sample.source,
            shapes,
            noise,
            kept,
            sample.adversarial,
            nan,
            sample.first_row,
        )
        with self._progress:
            self.sets.append(answered)
            self._progress.notify_all()

    def _check_memory(self, sample: Sample) -> None:
        """Refuses inputs of the user's on which a run takes too much memory."""
        estimate = self._footprint.at({name: array.shape for name, array in sample.feeds.items()})
        if not self._limit.allows(estimate):
            least = needed(estimate)
            why = f"it takes at least {format_size(least)}"
            raise self._limit.exceeded(f"running the reference on {sample.label}", why, least)


def _is_finite(answer: Array) -> bool:
    return answer.dtype.kind != "f" or bool(np.isfinite(answer).all())


def _holds_nan(values: Array, domain: Domain) -> bool:
    """Whether there is NaN that stands for no missing value."""
    if values.dtype.kind != "f":
        return False
    odd = is_odd_nan(values, domain.columns) if domain.kind == "table" else np.isnan(values)
    return bool(odd.any())
