"""The reference's answers to all sets of inputs, their noise, and what they prove; computed once for all verdicts."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.artifact import Referent, TensorSpec
from onnxport.formats.input_shapes import apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.runtimes.base import MemoryFullError, ReferenceRuntime, RunError
from onnxport.runtimes.memory_limit import MemoryLimit, format_size, needed_bytes
from onnxport.samples.columns import is_odd_nan
from onnxport.samples.domain import Domain, declared_domains, domains, without_functions
from onnxport.samples.footprint import Footprint
from onnxport.samples.generator import COMPANIONS
from onnxport.samples.input_domains import InputDomains
from onnxport.samples.neighbours import neighbour
from onnxport.samples.sample import Sample
from onnxport.samples.sizes import OpenSizes, Shapes
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.class_ties import add_class_ties
from onnxport.validate.comparison import Alternative
from onnxport.validate.dead_outputs import describe_dead_outputs
from onnxport.validate.evidence import Proof
from onnxport.validate.graph_analysis import (
    UNKNOWN_LENGTH,
    accumulation_length,
    added_constants,
    constant_outputs,
    gated_outputs,
    grid_steps,
    output_nodes,
    saturating_outputs,
    squashed_outputs,
    unread_inputs,
    voted_outputs,
)
from onnxport.validate.input_sets import GeneratedInputs, Loader
from onnxport.validate.metrics import scale_of
from onnxport.validate.noise_meter import NoiseMeter
from onnxport.validate.noise_runs import MOST_WEIGHTS, Answers
from onnxport.validate.params import GENERATED, READ, ValidateParams
from onnxport.validate.precision import precision_of
from onnxport.validate.progress import Counter, Tell
from onnxport.validate.report import NodeRef, Precision
from onnxport.validate.rollout import RolloutPlan, advance
from onnxport.validate.saturated_outputs import feed_between
from onnxport.validate.sessions import Oriented
from onnxport.validate.signature import check_tensors
from onnxport.validate.size_search import Search, patience
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, Tolerance

if TYPE_CHECKING:
    from onnxport.validate.near_ties import NearTies

# Bytes of inputs and answers that are kept; beyond, they are computed again when needed.
_KEPT = 256 * 2**20

# Precisions whose outputs may have known quantization steps.
_STEPPED = frozenset({"int8", "int16x8"})

_FEW = 5  # names in a note
_NEIGHBOURS = 9  # at most, of all samples together


class Reference:
    """A model that counts as right, its answers, their noise, and what they prove.

    These are the ExpectedAnswers of candidates of the same precision (fidelity.py).

    Args:
        artifact: the model's file, or a framework's model.
        params: which inputs to feed, and how to judge.
        runtime: the process that runs it.
        graph: the model in memory, if the caller has it; for a framework's model the exported graph, which shows what
            the inputs may hold.
        tell: see Judge.
        against: its name in the report.
        precision: of the model; what its file shows unless given.
    """

    def __init__(
        self,
        artifact: Referent,
        params: ValidateParams,
        runtime: ReferenceRuntime,
        graph: Model | None = None,
        tell: Tell | None = None,
        against: str = "the reference itself",
        precision: Precision | None = None,
    ) -> None:
        self.artifact, self._params, self._tell, self.against = artifact, params, tell, against
        self._limit = MemoryLimit.of(params.memory_limit, artifact)
        if graph is None and artifact.format == "onnx":
            graph = Model.load(artifact.path)
        self.graph = graph and without_functions(graph)
        self._runtime = runtime
        model = Oriented(runtime)
        check_tensors(model, str(artifact.path))
        read = domains(self.graph) if self.graph else declared_domains(model.inputs)
        known = {**read, **runtime.domains}
        rollout = RolloutPlan(model, self.graph, known, params)
        self.roll_out, self.steps, self._states = rollout.roll_out, rollout.steps, rollout.states
        self._domains = rollout.domains
        # Inputs that probes leave as they are.
        self._exact = {name for name, domain in known.items() if domain.is_exact}
        self._input_domains = InputDomains(self.graph, self._domains)
        self._model = self.roll_out(model)
        self._footprint = Footprint(self.graph, self.inputs, self.steps)
        self.name = runtime.name
        self.shapes = apply_shapes(self.inputs, params.shape)
        function = params.reference_runtime.get("function", "")
        self.precision = precision or precision_of(artifact, graph, function)
        self.tolerance = self._tolerance()
        self.sets: list[AnsweredSet] = []
        self._ranks: dict[str, int] = {}  # of the outputs, by the first answers
        self.notes: tuple[str, ...] = rollout.notes
        facts = (constant_outputs(self.graph), squashed_outputs(self.graph)) if self.graph else ()
        self._proof = Proof([spec.name for spec in self.outputs], *facts)
        self._batch_axes = OpenSizes(self.inputs, self.shapes).batch_axes
        self._bytes = 0
        self._fed: set[int] = set()
        self._halved: set[str] = set()
        self._progress = Counter(tell, "")
        self._noise = NoiseMeter(
            self.inputs,
            self.outputs,
            self.graph if self.owns_graph else None,
            self.precision,
            self.tolerance,
            self._exact,
            self.roll_out,
        )
        self._is_open = True
        self._generated: GeneratedInputs | None = None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, without declared sizes where an answer has another rank than the file declares."""
        return tuple(
            replace(spec, shape=(None,) * self._ranks[spec.name])
            if spec.shape and self._ranks.get(spec.name, len(spec.shape)) != len(spec.shape)
            else spec
            for spec in self._model.outputs
        )

    @property
    def declared(self) -> tuple[TensorSpec, ...]:
        """The outputs as the file declares them."""
        return tuple(self._model.outputs)

    def sets_for(self, candidate: Precision) -> tuple[AnsweredSet, ...]:
        """Return the sets that judge a candidate of this precision: float32 may decide otherwise on wide ones."""
        narrows = self.precision == "float64" and candidate != "float64"
        return tuple(each for each in self.sets if not (narrows and each.is_wide))

    @property
    def unread(self) -> tuple[TensorSpec, ...]:
        """Inputs that no output depends on, by the graph: a candidate may lack them."""
        if self.graph is None or not self.owns_graph:
            return ()
        names = unread_inputs(self.graph)
        return tuple(spec for spec in self.inputs if spec.name in names)

    @property
    def features(self) -> tuple[str, ...] | None:
        """See ReferenceRuntime.features."""
        return self._runtime.features

    @property
    def nodes(self) -> dict[str, NodeRef]:
        """Output name to the node that makes it, if the graph can be read."""
        return output_nodes(self.graph) if self.graph else {}

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the answers prove nothing of it."""
        return self._proof.doubts

    def _rows(self, sample: Sample) -> int:
        """Return the batch size of a set, 1 without an open batch."""
        name, axis = next(iter(self._batch_axes.items()), ("", 0))
        return int(sample.feeds[name].shape[axis]) if name else 1

    def prepare(self) -> None:
        """Run the reference and its probes on every set of inputs."""
        self._noise.open(self._model, self._runtime)
        self._progress = Counter(self._tell, "running the reference, input set")
        if self._params.inputs is not None:
            # Imported here: it imports what reads images, audio and tables.
            from onnxport.validate.given_inputs import feed_from_folder

            self.notes += feed_from_folder(
                self.inputs, self.shapes, self._params, self._states, self._answer, self._runtime.features
            )
            self._feed_neighbours()
        else:
            limits = size_limits(self.inputs, self._params.shape)
            sizes = OpenSizes(self.inputs, self.shapes, limits, self.graph)
            seconds = patience(self.artifact.size)
            search = Search(sizes, self._footprint, self._limit, seconds, self._tell)
            self._generated = generated = GeneratedInputs(
                self.inputs, self._input_domains, self._params.seed, self._answer, sizes, search
            )
            generated.feed(self._params.samples, self._proves_too_little, lambda: bool(self._proof.blind))
            if self.doubts:
                generated.search(self._proves_too_little, self._movement)
            self.notes += tuple(generated.notes)
        if self.steps == 1 and self.graph is not None and self.owns_graph:
            self.notes += tuple(
                describe_dead_outputs(self.graph, list(self.doubts)[:_FEW], self.tap, self.sets)
            )
        if odd := [answered.label for answered in self.sets if answered.nan]:
            more = f" and {len(odd) - _FEW} more" if len(odd) > _FEW else ""
            self.notes += (
                f"the inputs {', '.join(odd[:_FEW])}{more} have NaN, so their answers prove nothing",
            )
        if names := ", ".join(map(repr, self._proof.blind[:_FEW])):
            self.notes += (f"the rows of a batch never differed at {names}: swapped rows would not show",)
        self._close_if_kept()

    def _movement(self, feeds: Feeds) -> float:
        """Return how far inputs move outputs of which the sets so far prove nothing."""
        try:
            return self._proof.movement(self._model.run(feeds))
        except (RunError, MemoryFullError):
            return 0.0

    def _proves_too_little(self) -> bool:
        """Return whether there are doubts, after feeding inputs between two sets for each output that is saturated."""
        if self.steps == 1 and (
            names := [each for each in self._proof.saturated if each not in self._halved]
        ):
            self._halved.update(names)
            first = len(self.sets)
            with suppress(RunError, MemoryFullError):
                feed_between(names, self.sets, self._model.run, self._answer, lambda: self._proof.saturated)
            for answered in self.sets[first:]:
                answered.is_between = True
        return bool(self.doubts)

    def _feed_neighbours(self) -> None:
        """Feed neighbours of the user's samples while these prove nothing of some output."""
        given = list(self.sets)
        for number in range(_NEIGHBOURS):
            if not self._proves_too_little():
                break
            sample = given[number % len(given)]
            with suppress(RunError, MemoryFullError):
                self._answer(partial(self._neighbour, sample, number), None)
        if fed := sum(not each.is_between for each in self.sets[len(given) :]):
            self.notes += (f"{fed} neighbours of the samples were fed: the samples alone show too little",)

    def tap(self, feeds: Feeds, names: Sequence[str]) -> Answers:
        """Return values inside the model, by name; the outputs are among them."""
        self._reopen()
        try:
            return self._model.runtime.run(feeds, taps=names)
        finally:
            self._close_if_kept()

    def _neighbour(self, sample: AnsweredSet, number: int) -> Sample:
        feeds = sample.load().feeds
        shapes = {name: array.shape for name, array in feeds.items()}
        domains = self._input_domains.at(shapes, self._params.seed, number)
        moved = neighbour(feeds, domains, self._input_domains.settings, self._params.seed, number)
        return Sample(f"neighbour {number + 1} of {sample.label}", moved, "generated")

    def further_sets(self) -> Generator[AnsweredSet, None, None]:
        """Generate more sets, while those so far prove too little; none where the user gave inputs."""
        if self._generated is None:
            return
        self._reopen()
        self._noise.open(self._model, self._runtime)
        try:
            while self._generated.feed_further():
                yield self.sets[-1]
                if not self._is_open:  # measuring the noise of a set that failed may have closed it
                    self._reopen()
                    self._noise.open(self._model, self._runtime)
        finally:
            self._close_if_kept()

    def refine(self, answered: AnsweredSet) -> bool:
        """Measure the noise of a set with more probes; return whether more is known of it now.

        Of a companion, whose noise is an estimate, the first probes run alone. What these do not explain has all sets
        measured with all probes.
        """
        if answered.is_estimated and not self._noise.is_complete:
            self._refine_alone(answered)
            return True
        changed = self.measure_fully()
        if not (answered.is_estimated or answered.is_partial):
            return changed
        self._refine_alone(answered, is_thorough=True)
        return True

    def _refine_alone(self, answered: AnsweredSet, *, is_thorough: bool = False) -> None:
        self._reopen()
        self._noise.open(self._model, self._runtime)
        try:
            self._refine(answered, is_thorough=is_thorough)
        finally:
            self._close_if_kept()

    def measure_fully(self) -> bool:
        """Measure the noise of all sets with all probes, and feed further sets if they prove too little then.

        Returns:
            Whether that was not done before.
        """
        if self._noise.is_complete:
            return False
        self._reopen()
        self._noise.measure_fully()
        self._noise.open(self._model, self._runtime)
        self._proof = self._proof.anew()
        try:
            for answered in self.sets:
                _, answers = self.answers(answered)
                if answered.adversarial:
                    answered.is_estimated = True
                    continue
                self._refine(answered)
                if answered.is_evidence:
                    batch = self._rows(answered.load())
                    self._proof.add(answers, answered.noise, self.tolerance, batch, answered.shapes)
                    self._noise.count(answers, answered.noise)
            self._feed_more()
        finally:
            self._close_if_kept()
        return True

    def _feed_more(self) -> None:
        """Feed further sets, or the user's neighbours, while all prove too little."""
        if self._generated is None:
            self._feed_neighbours()
            return
        while self._proves_too_little() and self._generated.feed_further():
            pass
        if self.doubts:
            self._generated.search(self._proves_too_little, self._movement)

    def _refine(self, answered: AnsweredSet, *, is_thorough: bool = False) -> None:
        try:
            (_, answers), sample = self.answers(answered), answered.load()
            answered.is_partial = self._noise.is_known(sample) and not is_thorough
            answered.noise = self._measure_noise(sample, answers, is_thorough=is_thorough)
            answered.is_estimated = False
        except (RunError, MemoryFullError):  # no probe runs on it, so it proves nothing
            unknown = Noise(np.array([np.inf]), None, reshaped=True)
            answered.noise = dict.fromkeys(answered.noise, unknown)
            answered.is_estimated = answered.is_partial = False

    def alternatives(
        self, answered: AnsweredSet, names: Collection[str], tolerance: Tolerance
    ) -> dict[str, tuple[Alternative, ...]]:
        """Return what else right runtimes may answer to a set where decisions are within rounding (near_ties.py)."""
        ties = self._near_ties
        wanted = [] if ties is None else [name for name in names if name in ties.outputs]
        if ties is None or not wanted:
            return {}
        # It stays open: where one set differs, others do.
        self._reopen()
        found: dict[str, tuple[Alternative, ...]] = {}
        with suppress(RunError, MemoryFullError):
            feeds, answers = self.answers(answered)
            for name in wanted:
                found[name] = ties.alternatives(
                    name, answers[name], feeds, tolerance, is_adversarial=answered.adversarial
                )
        return found

    @cached_property
    def _near_ties(self) -> NearTies | None:
        """The decisions behind the outputs; most of those of lower precisions show in their noise."""
        graph = self.graph
        if graph is None or not self.owns_graph or self.steps > 1 or graph.weight_bytes > MOST_WEIGHTS:
            return None
        has_integers = self.precision in _STEPPED
        if self.tolerance.rule.mean_factor is not None and not has_integers:
            return None
        # Imported here: it is needed where answers differ.
        from onnxport.validate.near_ties import NearTies

        return NearTies(
            graph,
            lambda model, **options: self._noise.probed(self._runtime, model, **options),
            has_integers=has_integers,
        )

    def _measure_noise(
        self, sample: Sample, answers: Answers, *, is_thorough: bool = False
    ) -> dict[str, Noise]:
        """Return the noise of every answer, without elements that a decision within rounding turned."""
        noise = self._noise.measure(sample, answers, is_thorough=is_thorough)
        loud = [name for name, each in noise.items() if _is_loud(answers[name], each)]
        if loud and self._near_ties is not None:
            with suppress(RunError, MemoryFullError):
                for name in loud:
                    steady = self._near_ties.noise(name, answers[name], sample.feeds, self.tolerance)
                    noise[name] = noise[name] if steady is None else steady
        return noise if self.graph is None else add_class_ties(noise, self.graph, answers, self.tolerance)

    def accumulation_length(self, answered: AnsweredSet) -> int:
        """Return the length of the longest sum at the sizes of a set."""
        if self.graph is None:
            return self.tolerance.length
        return max(self.tolerance.length, accumulation_length(self.graph, answered.shapes))

    def run(self, feeds: Feeds) -> Answers:
        """Run the reference on inputs that are in none of the sets."""
        self._reopen()
        try:
            return self._model.run(feeds)
        finally:
            self._close_if_kept()

    def _reopen(self) -> None:
        if not self._is_open:
            self._runtime, self._is_open = self._runtime.again(), True
            self._model = self.roll_out(Oriented(self._runtime))

    def _close_if_kept(self) -> None:
        if all(answered.kept is not None for answered in self.sets):
            self.close()

    def answers(self, answered: AnsweredSet) -> tuple[Feeds, Answers]:
        """Return the inputs of a set and the reference's answers, from memory or computed again."""
        if answered.kept is not None:
            return answered.kept
        feeds = answered.load().feeds
        return feeds, self._model.run(feeds)

    def input_domains(self, shapes: Shapes) -> dict[str, Domain]:
        """Return what the inputs may hold at these sizes."""
        return self._input_domains.at(shapes, self._params.seed, 0)

    def at_step(self, first: Feeds, answers: Answers, step: int) -> Feeds:
        """Return the feeds of a model at `step`, which gave `answers` at the step before."""
        fed = {name: advance(array, self._domains[name], step) for name, array in first.items()}
        return {**fed, **{name: answers[output] for name, output in self._states.items()}} if step else first

    def feeds_of_steps(self, answered: AnsweredSet) -> Iterator[Feeds]:
        """Yield the feeds of each step of a set, with the state that the reference had then."""
        first, answers = self.answers(answered)
        yield first
        for step in range(1, self.steps):
            states = {
                output: answers[output].take(step - 1, axis=min(1, first[name].ndim))
                for name, output in self._states.items()
            }
            yield self.at_step(first, states, step)

    def expect(
        self, answered: AnsweredSet, feeds: Feeds, answers: Answers
    ) -> tuple[Answers, dict[str, Noise]]:
        """See ExpectedAnswers."""
        return answers, answered.noise

    def close(self) -> None:
        """Free the runtimes; kept answers stay."""
        self._noise.close()
        if self._is_open:
            self._runtime.close()
            self._is_open = False

    def _tolerance(self) -> Tolerance:
        given = Tolerance(
            UNKNOWN_LENGTH, rtol=self._params.rtol, atol=self._params.atol, precision=self.precision
        )
        if self.graph is None:
            return given
        return replace(
            given,
            length=accumulation_length(self.graph),
            saturating=saturating_outputs(self.graph),
            gated=gated_outputs(self.graph),
            voted=voted_outputs(self.graph),
            added=added_constants(self.graph),
            steps=grid_steps(self.graph, self.graph.graph.outputs) if self.precision in _STEPPED else {},
        )

    @property
    def owns_graph(self) -> bool:
        """Whether the graph is the reference's own; a framework's exported graph is the candidate, whose answers are no
        noise of the reference."""
        return self.artifact.format == "onnx"

    def _answer(self, load: Loader, seconds: float | None) -> None:
        """Run the reference and its probes on one set; the first run may take `seconds`."""
        self._progress.count(len(self.sets), self._planned)
        sample = load()
        self._exact |= self._input_domains.settings
        if sample.source != "generated":
            self._check_memory(sample)
        nan = any(
            _holds_nan(array, self._domains[name])
            for name, array in sample.feeds.items()
            if name not in self._input_domains.takes_nan
        )
        with nullcontext() if seconds is None else self._runtime.within(seconds):
            answers = self._model.run(sample.feeds)
        self._check_ranks(sample, answers)
        if sample.adversarial and not all(map(_is_finite, answers.values())):
            return  # where the reference itself overflows or divides by 0, right artefacts differ
        is_partial = not sample.adversarial and self._noise.is_known(sample)
        estimate = self._noise.estimate(sample, answers)
        noise = estimate or self._measure_noise(sample, answers)
        shapes = {name: array.shape for name, array in sample.feeds.items()}
        is_evidence = not sample.adversarial and not nan and not self._is_repeated(sample.feeds)
        if is_evidence:
            self._proof.add(answers, noise, self.tolerance, self._rows(sample), shapes)
            self._noise.count(answers, noise)
        self._bytes += sum(array.nbytes for array in (*sample.feeds.values(), *answers.values()))
        kept = (sample.feeds, answers) if self._bytes <= _KEPT else None
        about = sample.label, sample.source, shapes
        answered = AnsweredSet(load, *about, noise, kept, sample.adversarial, nan, sample.first_row)
        answered.is_partial = is_partial
        answered.is_estimated, answered.is_evidence = estimate is not None, is_evidence
        answered.is_wide = sample.source == "generated" and self._holds_wide(sample.feeds)
        self.sets.append(answered)

    def _check_ranks(self, sample: Sample, answers: Answers) -> None:
        """Refuse generated sizes at which an answer loses the declared rank that the first answers had.

        A Squeeze without axes leaves an axis in place where its size is not 1.
        """
        if self.steps > 1:  # these answers have an axis more
            return
        ranks = {name: answer.ndim for name, answer in answers.items()}
        self._ranks = self._ranks or ranks
        if self.graph is None or sample.source != "generated":
            return
        for value in self.graph.graph.outputs:
            name = value.name or ""
            if value.shape is None or len(value.shape) != self._ranks.get(name) or name not in ranks:
                continue
            if ranks[name] != len(value.shape):
                why = f"{name!r} has {ranks[name]} dimensions there, and {len(value.shape)} in the file"
                raise RunError("the answers at these sizes are not those that the model declares", why=why)

    def _holds_wide(self, feeds: Feeds) -> bool:
        tables = (feeds[name] for name, domain in self._domains.items() if domain.kind == "table")
        return any(
            table.dtype == np.float64 and not np.array_equal(table.astype(np.float32), table, equal_nan=True)
            for table in tables
        )

    def _is_repeated(self, feeds: Feeds) -> bool:
        """Return whether the same inputs were fed before, which proves nothing more."""
        digest = hash(tuple((name, array.shape, array.tobytes()) for name, array in sorted(feeds.items())))
        is_known = digest in self._fed
        self._fed.add(digest)
        return is_known

    @property
    def _planned(self) -> int:
        """About how many sets there will be."""
        planned = self._params.samples or (READ if self._params.inputs is not None else GENERATED)
        return planned if self._params.inputs is not None else planned + 1 + len(COMPANIONS)

    def _check_memory(self, sample: Sample) -> None:
        """Refuse the user's inputs on which a run takes too much memory."""
        estimate = self._footprint.at({name: array.shape for name, array in sample.feeds.items()})
        if not self._limit.allows(estimate):
            least = needed_bytes(estimate)
            why = f"it takes at least {format_size(least)}"
            raise self._limit.exceeded(f"running the reference on {sample.label}", why, least)


def _is_loud(answer: Array, noise: Noise) -> bool:
    """Return whether an answer's noise would prove nothing."""
    return answer.dtype.kind == "f" and noise.largest > CONCLUSIVE_NOISE * scale_of(answer)


def _is_finite(answer: Array) -> bool:
    return answer.dtype.kind != "f" or bool(np.isfinite(answer).all())


def _holds_nan(values: Array, domain: Domain) -> bool:
    """Return whether there is a NaN that is no missing value."""
    if values.dtype.kind != "f":
        return False
    odd = is_odd_nan(values, domain.columns) if domain.kind == "table" else np.isnan(values)
    return bool(odd.any())
