"""The accuracy of rows: SQNR of their outputs against a reference's, a figure and no verdict.

There are few sets of inputs, and their noise is not considered; `onnxport validate` judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from onnxport.bench.inputs import Inputs
from onnxport.bench.params import BenchParams
from onnxport.bench.plan import RUNTIMES, Planned
from onnxport.bench.report import Accuracy, Row, Settings
from onnxport.bench.session import Session, Subject, Trial
from onnxport.core.arrays import Array
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.ort.integer_products import holds_integer_products
from onnxport.validate.metrics import METRICS, OutputSums

Outputs = Mapping[str, Array]

_SQNR = METRICS["sqnr"]
# Precisions with calibrated ranges of activations, and the SQNR in dB that these reach on suitable samples.
_CALIBRATED = ("int8", "int16x8")
_LOW_SQNR = 20.0
# Of inputs; nor are there more than timed runs, so that a comparison never takes much longer than the measurement.
_MOST_SETS = 100


class AccuracyMeter:
    """Compares the outputs of every row with the reference's, over the sets of inputs of `Inputs.compared`.

    The reference is the one that `params` name, else the first .onnx file of `plans`; `inputs` are for one that is no
    row.
    """

    def __init__(self, params: BenchParams, plans: Sequence[Planned], inputs: Inputs) -> None:
        self._params, self._inputs = params, inputs
        models = (plan.artifact.path for plan in plans if plan.artifact.format == "onnx")
        self._path = params.reference or next(models, None)
        self.notes: list[str] = []

    def measure(self, session: Session, trials: Mapping[int, Trial]) -> dict[int, Accuracy]:
        """Return the accuracy of `trials` by their keys, without those that have nothing to compare."""
        by_batch: dict[int | None, dict[int, Trial]] = {}
        for key, trial in trials.items():
            if trial.failure is None:
                by_batch.setdefault(trial.subject.settings.batch, {})[key] = trial
        if self._path is None:
            return {}
        found: dict[int, Accuracy] = {}
        for batch, rows in by_batch.items():
            with ExitStack() as opened:
                found |= self._compare(session, batch, rows, opened)
        return found

    def _compare(
        self, session: Session, batch: int | None, rows: Mapping[int, Trial], opened: ExitStack
    ) -> dict[int, Accuracy]:
        """Return the accuracy of the rows of one batch; the reference runs once per set of inputs."""
        comparisons = {key: Comparison() for key in rows}
        try:
            answers = self._reference(session, batch, opened)
            runs = {key: self._answers(session, trial, opened) for key, trial in rows.items()}
            for expected in answers:
                for key in tuple(comparisons):
                    self._add(comparisons, key, rows[key], expected, runs[key])
        except OnnxportError as error:
            self.notes.append(f"no accuracy: the reference gave no outputs: {error}")
            return {}
        found = {}
        for key, comparison in comparisons.items():
            worst = comparison.worst(str(self._path))
            if worst is not None:
                found[key] = worst
            else:
                path = rows[key].subject.path
                self.notes.append(
                    f"no accuracy for {path}: no float output matches {self._path} by name and shape"
                )
        return found

    def _add(
        self,
        comparisons: dict[int, Comparison],
        key: int,
        trial: Trial,
        expected: Outputs,
        answers: Iterator[Outputs],
    ) -> None:
        """Add a row's next outputs to its comparison; end the comparison of a row that fails."""
        try:
            given = next(answers, None)
        except OnnxportError as error:
            path = trial.subject.path
            self.notes.append(f"no accuracy for {path}: it gave no outputs to compare: {error}")
            del comparisons[key]
        else:
            if given is not None:
                comparisons[key].add(expected, given)

    def _answers(self, session: Session, trial: Trial, opened: ExitStack) -> Iterator[Outputs]:
        """Return a trial's outputs for each set, with exact integer sums where this CPU's kernels may saturate."""
        assert trial.ports is not None
        path, settings = trial.subject.path, trial.subject.settings
        sets = self._inputs.compared(trial.ports.inputs, settings.batch, min(self._params.runs, _MOST_SETS))
        is_cpu = (settings.provider or "CPU").upper().startswith("CPU")
        if settings.runtime != RUNTIMES["onnx"] or not is_cpu or not holds_integer_products(path):
            return (session.answers(trial, feeds) for feeds in sets)
        exact = opened.enter_context(IsolatedRuntime(path, timeout=self._params.timeout))
        return (exact.run(feeds) for feeds in sets)

    def _reference(self, session: Session, batch: int | None, opened: ExitStack) -> Iterator[Outputs]:
        """Return the outputs of the reference's first row at this batch, or of a session of its own."""
        assert self._path is not None
        for trial in session.running:
            if trial.subject.path == self._path and trial.subject.settings.batch == batch:
                return self._answers(session, trial, opened)
        artifact = Artifact.open(self._path)
        settings = Settings(runtime=RUNTIMES[artifact.format], threads=self._params.threads[0], batch=batch)
        subject = Subject(artifact.path, settings, self._inputs.feeding(batch))
        alone = opened.enter_context(Session([subject], timeout=self._params.timeout))
        alone.load()
        alone.feed()
        (trial,) = alone.trials
        if trial.failure is not None:
            raise trial.failure.error
        return self._answers(alone, trial, opened)


class Comparison:
    """The errors of a row's floating-point outputs, summed over sets of inputs."""

    def __init__(self) -> None:
        self._sums: dict[str, OutputSums] = {}
        self._sets = 0

    def add(self, expected: Outputs, found: Outputs) -> None:
        """Count a set; outputs that the reference lacks, or has in another shape, do not count."""
        self._sets += 1
        for name, array in found.items():
            own = expected.get(name)
            if own is not None and own.shape == array.shape and _is_float(name, own):
                self._sums.setdefault(name, OutputSums()).add(own, array.astype(own.dtype), 0.0)

    def worst(self, reference: str) -> Accuracy | None:
        """Return the SQNR of the worst output against `reference`'s; None where no output was compared."""
        values = [(_SQNR.value(sums), name) for name, sums in self._sums.items()]
        known = [(sqnr, name) for sqnr, name in values if sqnr is not None]
        if not known:
            return None
        worst, output = min(known)
        return Accuracy(reference=reference, sqnr=worst, output=output, sets=self._sets)


def _is_float(name: str, array: Array) -> bool:
    return _SQNR.may(TensorSpec(name, array.dtype.name, array.shape))


def uncalibrated_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Warn where generated inputs make a quantized model look worse than it is."""
    quantized = {row.artifact for row in rows if row.precision in _CALIBRATED}
    for row in rows:
        found = row.accuracy
        if found is None or found.sqnr >= _LOW_SQNR:
            continue
        if not quantized.isdisjoint((row.artifact, found.reference)):
            yield (
                "generated inputs may be outside of the ranges that a quantized model was calibrated for; then its "
                "SQNR is too low: give your own samples with --inputs DIR"
            )
            return
