"""The reference's own noise on each set of inputs: which probes are run, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import ReferenceRuntime, RunError, Runtime
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.samples.sample import Sample
from onnxport.validate.expanded_norms import expand_norms
from onnxport.validate.graph_analysis import has_16_bit_activations
from onnxport.validate.noise_runs import (
    MARGIN,
    MOST_WEIGHTS,
    MOVES,
    Answers,
    Probe,
    UsualNoise,
    other_batch,
    perturb_inputs,
    perturb_measured,
    perturb_terms,
    perturb_weights,
    perturb_zeros,
    widen_transforms,
)
from onnxport.validate.report import Precision
from onnxport.validate.rollout import Run
from onnxport.validate.sessions import Oriented
from onnxport.validate.tolerance import Noise, Tolerance, measure_noise


class Probed(Protocol):
    """Runs a model and, unless it is alone, its probes."""

    def __call__(self, feeds: Feeds, taps: Sequence[str], *, is_alone: bool = False) -> Sequence[Answers]:
        """Return answers, with the values inside named by `taps`; the model's own first."""


# Precisions of a reference of which one probe comes first; in 16 bits of floats no single one shows the rounding.
_FIRST: frozenset[Precision] = frozenset(
    {"float32", "int8", "int16x8", "int8 dynamic", "int8 weights", "int4 weights"}
)
# Numbers that a model takes: of at most so many, moving the weights shows the rounding of its sums.
_FEW = 16


@dataclass(frozen=True)
class _Probes:
    """Runs in other batches, of other inputs or weights, on other kernels, with transforms and norms in float64.

    Attributes:
        weights: returns probes of other weights, for inputs that cannot be moved, or are few.
    """

    batches: tuple[Probe, ...] = ()
    moves: tuple[Probe, ...] = ()
    kernels: tuple[Probe, ...] = ()
    transforms: tuple[Probe, ...] = ()
    weights: Callable[[], tuple[Probe, ...]] = tuple


class NoiseMeter:
    """Measures the noise of a reference's answers.

    Of float answers one probe comes first: moved inputs, or other batches where inputs cannot be moved. It shows how
    large the noise is, and the least that all probes would show. What passes with less noise passes with more, so only
    a candidate that fails needs all of them.

    Args:
        inputs, outputs: of the reference.
        graph: the reference's own graph; None where it cannot be read, or belongs to a candidate.
        precision, tolerance: of the reference.
        exact: inputs that probes leave as they are; the caller may add some later.
        roll_out: makes a model of one step one of all steps.
    """

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        outputs: Sequence[TensorSpec],
        graph: Model | None,
        precision: Precision,
        tolerance: Tolerance,
        exact: set[str],
        roll_out: Callable[[Run], Run],
    ) -> None:
        self._inputs, self._graph, self._precision = inputs, graph, precision
        self._exact, self._roll_out = exact, roll_out
        # The roundings of lower precisions add up and those of integers flip: each set needs its own noise.
        is_float = all(spec.dtype.startswith("float") for spec in outputs)
        self._is_smooth = is_float and tolerance.rule.mean_factor is None
        self._is_first = is_float and precision in _FIRST
        self._tolerance = tolerance
        self._usual = UsualNoise()
        self._probed: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()
        self._probes = _Probes()
        self._model: Run | None = None
        self._closing: list[Runtime] = []
        self._folders: list[ScratchFolder] = []

    def open(self, model: Run, runtime: ReferenceRuntime) -> None:
        """Prepare the probes of a reference that runs."""
        self._model = model
        if self._is_first and (first := self._first_probes(model, runtime)) is not None:
            self._probes = first
            return
        self._is_first = False
        beside = other_batch(model.run, self._inputs)
        batches = () if beside is None else (beside,)
        self._probes = _Probes(
            batches,
            tuple(self._moves(model, runtime)),
            (*self._other_kernels(runtime.other_kernels), *self._perturb_measured(runtime)),
            tuple(self._transforms(runtime)),
            cache(lambda: tuple(self._other_weights(runtime))),
        )

    def _first_probes(self, model: Run, runtime: ReferenceRuntime) -> _Probes | None:
        """Return the probe that comes first, with that of transforms; None where there is none without more weights.

        Moved weights would do for token ids and bytes, too, but cost a second model in memory.
        """
        movable = [spec for spec in self._inputs if spec.dtype in ("float32", "float64")]
        if all(spec.name in self._exact for spec in movable):
            first = other_batch(model.run, self._inputs)
        else:
            first = next(self._moves(model, runtime))
        if first is None:
            return None
        return _Probes(moves=(first,), transforms=tuple(self._transforms(runtime)))

    @property
    def is_complete(self) -> bool:
        """Whether noise is measured with all probes."""
        return not self._is_first

    def measure_fully(self) -> None:
        """Measure with all probes from the next `open` on, and forget what one probe showed."""
        self._is_first = False
        self._usual, self._probed = UsualNoise(), set()

    def estimate(self, sample: Sample, answers: Answers) -> dict[str, Noise] | None:
        """Return the least noise that `measure` would find, without a probe; None where that is unknown.

        It is known for a companion of sizes at which ordinary sets were probed. What passes with the least noise passes
        with more, so only a candidate that fails needs the probes.
        """
        if not sample.adversarial or not self.is_known(sample):
            return None
        return {
            name: self._usual.at_least(name, answer, measure_noise(answer, ()))
            for name, answer in answers.items()
        }

    def measure(self, sample: Sample, answers: Answers, *, is_thorough: bool = False) -> dict[str, Noise]:
        """Return the noise of every answer to a set.

        Where a set of the same sizes was probed before, its share of the scale counts, too; of a model that takes a
        few numbers, that of any set.

        Args:
            is_thorough: whether to run all probes although a set of the same sizes was probed before.
        """
        is_known = self.is_known(sample)
        chosen = self._choose(sample, is_known and not is_thorough)
        probes = [probe(sample.feeds, answers) for probe in chosen]
        noise = {
            name: measure_noise(answer, [probe[name] for probe in probes]) for name, answer in answers.items()
        }
        if not sample.adversarial:
            self._probed.add(_sizes(sample))
        if not sample.adversarial and not is_known and not self._is_small(sample):
            return noise
        margin = MARGIN if sample.adversarial else 1.0
        return {
            name: self._usual.at_least(name, answers[name], measured, margin)
            for name, measured in noise.items()
        }

    def is_known(self, sample: Sample) -> bool:
        """Return whether a set of the same sizes was probed before, so that few probes are enough."""
        return self._is_smooth and _sizes(sample) in self._probed

    def probed(
        self, runtime: ReferenceRuntime, model: Model | None = None, *, is_adversarial: bool = False
    ) -> Probed:
        """Return a run of the reference, or of another model beside it, that shows values inside, with its probes.

        Raises:
            RunError: the reference's process runs no such model.
        """
        own: Runtime | None = runtime if model is None else self._open_beside(model, runtime)
        if own is None:
            raise RunError("another model cannot be run beside the reference")
        self._closing += [] if model is None else [own]
        others: list[Runtime] = []
        with suppress(InputError):  # ONNX Runtime has some operators in their optimized form only
            others += filter(None, [own.other_kernels() if isinstance(own, IsolatedRuntime) else None])
        self._closing += others

        def run(feeds: Feeds, taps: Sequence[str], *, is_alone: bool = False) -> list[Answers]:
            tapped = partial(own.run, taps=taps)
            answers = tapped(feeds)
            if is_alone:
                return [answers]
            moves = [perturb_inputs(tapped, seed, self._precision, self._exact) for seed in (1, 2)]
            probes = [*moves, perturb_zeros(tapped, self._exact)] if is_adversarial else moves
            return [
                answers,
                *(probe(feeds, answers) for probe in probes),
                *(each.run(feeds, taps=taps) for each in others),
            ]

        return run

    def count(self, answers: Answers, noise: dict[str, Noise]) -> None:
        """Count the noise of an ordinary set as usual."""
        for name, answer in answers.items():
            self._usual.add(name, answer, noise[name], self._tolerance.floor(name, answer.dtype.name))

    def close(self) -> None:
        """Free the runtimes of the probes."""
        while self._closing:
            self._closing.pop().close()
        while self._folders:
            self._folders.pop().cleanup()
        self._probes, self._model = _Probes(), None

    def _is_small(self, sample: Sample) -> bool:
        """Return whether a set is a few numbers: moving these moves little of a sum whose terms cancel."""
        return self._is_smooth and sum(array.size for array in sample.feeds.values()) <= _FEW

    def _choose(self, sample: Sample, is_known: bool) -> tuple[Probe, ...]:
        """Return every probe for the first set of a size, and one of other inputs or weights where noise is known.

        Companions are full of zeros, which they move; where there is nothing but zeros the weights are moved instead.
        They are run in no other batch. The error of a transform depends on the inputs: each set needs its own.
        """
        probes = self._probes
        is_small = self._is_small(sample)
        if not sample.adversarial:
            chosen = probes.moves[:1] if is_known else (*probes.batches, *probes.moves, *probes.kernels)
            return (*chosen, *probes.transforms, *(probes.weights() if is_small and not is_known else ()))
        assert self._model is not None, "probes are run between open and close"
        zeros = perturb_zeros(self._model.run, self._exact)
        chosen = probes.moves[:1] if is_known else (*probes.moves[-1:], *probes.kernels)
        floats = [array for array in sample.feeds.values() if array.dtype.kind == "f"]
        is_stuck = bool(floats) and not any(
            array.any() for array in floats
        )  # without floats, weights move anyway
        return (*chosen, *probes.transforms, *(probes.weights() if is_stuck or is_small else (zeros,)))

    def _moves(self, model: Run, runtime: ReferenceRuntime) -> Iterator[Probe]:
        """Yield probes that move the inputs to their neighbours, or else, and in float16 too, the weights.

        ONNX Runtime's CPU computes float16 in float32: moved inputs show no rounding to float16, and what a constant
        stands for is known to half a step only.
        """
        movable = {"float32", "float64"} | ({"float16"} if self._precision in MOVES else set())
        if any(spec.dtype in movable and spec.name not in self._exact for spec in self._inputs):
            # Some activations have 16 bits: their roundings count.
            has_16_bits = self._graph is not None and has_16_bit_activations(self._graph)
            rounds_to: Precision = "int16x8" if has_16_bits else self._precision
            yield from (perturb_inputs(model.run, seed, rounds_to, self._exact) for seed in (1, 2))
            if self._precision != "float16":
                return
        yield from self._other_weights(runtime)

    def _other_weights(self, runtime: ReferenceRuntime) -> Iterator[Probe]:
        """Yield a probe that moves the weights; none for a large model."""
        if self._graph is not None and (moved := perturb_weights(self._graph, self._precision)) is not None:
            yield from self._other_kernels(lambda: self._open_beside(moved, runtime))

    def _perturb_measured(self, runtime: ReferenceRuntime) -> Iterator[Probe]:
        """Yield probes that move what is quantized at run time."""
        for seed in (1, 2) if self._graph is not None else ():
            if self._graph is not None and (moved := perturb_measured(self._graph, seed)) is not None:
                yield from self._other_kernels(partial(self._open_beside, moved, runtime))

    def _transforms(self, runtime: ReferenceRuntime) -> Iterator[Probe]:
        """Yield probes of a model with Fourier transforms or norms over space, these in float64, or with trees."""
        graph = self._graph
        if graph is not None and (moved := perturb_terms(graph)) is not None:
            yield from self._other_kernels(lambda: self._open_beside(moved, runtime))
        if graph is not None and (widened := widen_transforms(graph)) is not None:
            yield from self._other_kernels(lambda: self._open_beside(widened, runtime))
        if graph is None or graph.weight_bytes > MOST_WEIGHTS or not self._is_smooth:
            return
        if (expanded := expand_norms(graph)) is not None:
            yield from self._other_kernels(lambda: self._open_beside(expanded, runtime))

    def _open_beside(self, model: Model, runtime: ReferenceRuntime) -> Runtime | None:
        """Open a model in memory in the reference's process, where the limits on its runs hold."""
        folder = ScratchFolder()
        self._folders.append(folder)
        saved = model.save(Path(folder.name, "model.onnx"))
        return runtime.beside(RuntimeOptions(), saved.path)

    def _other_kernels(self, load: Callable[[], Runtime | None]) -> Iterator[Probe]:
        try:
            runtime = load()
        except InputError:  # ONNX Runtime has some operators in their optimized form only
            return
        if runtime is None:
            return
        self._closing.append(runtime)
        run = self._roll_out(Oriented(runtime)).run
        yield lambda feeds, answers: run(feeds)


def _sizes(sample: Sample) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, array.shape) for name, array in sample.feeds.items())
