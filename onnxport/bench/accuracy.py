"""The accuracy of rows: SQNR of their outputs against a reference's, a figure and no verdict.

There is one set of inputs, and its noise is not considered; `onnxport validate` judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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


class AccuracyMeter:
    """Compares the outputs of every row with the reference's, which runs once per batch.

    The reference is the one that `params` name, else the first .onnx file of `plans`; `inputs` are for one that is no
    row.
    """

    def __init__(self, params: BenchParams, plans: Sequence[Planned], inputs: Inputs) -> None:
        self._params, self._inputs = params, inputs
        models = (plan.artifact.path for plan in plans if plan.artifact.format == "onnx")
        self._path = params.reference or next(models, None)
        self._expected: dict[int | None, Outputs | None] = {}
        self.notes: list[str] = []

    def measure(self, session: Session, trial: Trial) -> Accuracy | None:
        """Return a trial's accuracy; None where there is nothing to compare."""
        if self._path is None or trial.failure is not None:
            return None
        batch = trial.subject.settings.batch
        if batch not in self._expected:
            self._expected[batch] = self._reference_outputs(session, batch)
        expected = self._expected[batch]
        if expected is None:
            return None
        path = trial.subject.path
        try:
            found = worst_sqnr(str(self._path), expected, self._outputs(session, trial))
        except OnnxportError as error:
            self.notes.append(f"no accuracy for {path}: it gave no outputs to compare: {error}")
            return None
        if found is None:
            self.notes.append(
                f"no accuracy for {path}: no float output matches {self._path} by name and shape"
            )
        return found

    def _outputs(self, session: Session, trial: Trial) -> Outputs:
        """Return a trial's outputs, with exact integer sums where this CPU's kernels may saturate."""
        path, settings = trial.subject.path, trial.subject.settings
        is_cpu = (settings.provider or "CPU").upper().startswith("CPU")
        if settings.runtime != RUNTIMES["onnx"] or not is_cpu or not holds_integer_products(path):
            return session.answers(trial)
        with IsolatedRuntime(path, timeout=self._params.timeout) as exact:
            return exact.run(trial.feeds)

    def _reference_outputs(self, session: Session, batch: int | None) -> Outputs | None:
        """Return the outputs of the reference's first row at this batch, or of a session of its own."""
        assert self._path is not None
        for trial in session.running:
            if trial.subject.path == self._path and trial.subject.settings.batch == batch:
                return self._outputs(session, trial)
        try:
            artifact = Artifact.open(self._path)
            settings = Settings(runtime=RUNTIMES[artifact.format], threads=self._params.threads[0])
            subject = Subject(artifact.path, settings, self._inputs.feeding(batch))
            with Session([subject], timeout=self._params.timeout) as alone:
                alone.load()
                alone.feed()
                (trial,) = alone.trials
                if trial.failure is not None:
                    raise trial.failure.error
                return self._outputs(alone, trial)
        except OnnxportError as error:
            self.notes.append(f"no accuracy: the reference gave no outputs: {error}")
            return None


def worst_sqnr(reference: str, expected: Outputs, found: Outputs) -> Accuracy | None:
    """Return the SQNR of the worst floating-point output against `reference`'s; None where they have none in common."""
    values: list[tuple[float, str]] = []
    for name, array in found.items():
        own = expected.get(name)
        if own is None or own.shape != array.shape or not _is_float(name, own):
            continue
        sums = OutputSums()
        sums.add(own, array.astype(own.dtype), 0.0)
        sqnr = _SQNR.value(sums)
        if sqnr is not None:
            values.append((sqnr, name))
    if not values:
        return None
    worst, output = min(values)
    return Accuracy(reference=reference, sqnr=worst, output=output)


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
