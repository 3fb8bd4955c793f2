"""The judge: does a candidate compute what the reference computes, up to what rounding explains?"""

from __future__ import annotations

import threading
import time
from contextlib import closing

from onnxport.core.errors import OnnxportError, UsageError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import Artifact, Referent
from onnxport.formats.model import Model
from onnxport.runtimes.base import ReferenceRuntime, RunError, Runtime
from onnxport.runtimes.process import IsolatedRuntime
from onnxport.validate.budgets import Budgets, judged
from onnxport.validate.comparison import compare
from onnxport.validate.evaluation import Hearing
from onnxport.validate.lowered_precision_checks import saturation_of, with_single_nodes
from onnxport.validate.narrowed_ports import source_dtypes
from onnxport.validate.output_mapping import mapped
from onnxport.validate.params import ValidateParams
from onnxport.validate.precision import kept_float32, precision_of
from onnxport.validate.reference import Answered, Reference
from onnxport.validate.report import (
    InputSet,
    Judgement,
    Precision,
    Question,
    Report,
    Side,
    overall,
)
from onnxport.validate.rollout import Run
from onnxport.validate.sessions import isolated
from onnxport.validate.signature import Oriented, check_signatures, unfit_sizes
from onnxport.validate.size_search import Tell
from onnxport.validate.table_rows import differing_rows
from onnxport.validate.tensor_dump import Tensors, check_place

# What `differs` looks at: a set at batch 1 and one at another size, where there is one.
_EARLY_SETS = 2

_SYNTHETIC = "only generated inputs were fed; --inputs DIR takes your own"


class Judge(Closing):
    """Compares candidates with one reference; the reference's answers are computed once, by the first who asks.

    Args:
        reference: the artefact, or framework's model, that is taken for right; of the latter comes `runtime`, too.
        params: inputs, tolerances, budgets and metrics.
        graph: the reference in memory, where the caller has it already.
        runtime: the process that runs it, where the caller has started one.
        only: the one question that is asked of candidates, see Hearing; None for those that the precisions raise.
        tell: is told how many seconds of how many the search for sizes has taken.

    Raises:
        UsageError: a metric that cannot be imported, or a budget on one that nobody knows.
    """

    def __init__(
        self,
        reference: Referent,
        params: ValidateParams,
        *,
        graph: Model | None = None,
        runtime: ReferenceRuntime | None = None,
        only: Question | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._artifact, self._params, self._graph, self._only = reference, params, graph, only
        self._tell = tell
        check_place(params.report_tensors)
        self._budgets = Budgets.of(params)
        self._runtime = runtime or _started(reference, params)
        self._reference: Reference | None = None
        self._expected: IsolatedRuntime | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Computes inputs, reference answers and noise; safe to call from any thread, and more than once.

        Raises:
            InputError: ONNX Runtime cannot load the reference, or the user's inputs are bad.
            UsageError: no sizes were found for open dimensions, or given ones do not fit.
        """
        with self._lock:
            started, reference = self._reference is not None, self._begun()
        if started:
            reference.wait()
        else:
            reference.prepare()

    def expect(self, candidate: Artifact) -> None:
        """Starts the process that is to run the candidate, whose files need not exist yet."""
        if self._expected is None:
            self._expected = isolated(candidate, self._params, "candidate")

    def verdict(self, candidate: Artifact, *, audited: bool | None = None) -> Report:
        """The candidate against the reference on every set of inputs.

        Args:
            audited: whether single nodes are looked at where quality alone is asked (rounding_errors.py); where the
                judge asks all questions unless given.

        Raises:
            InputError: the candidate cannot be loaded.
            UsageError: its inputs or outputs are other ones than the reference's; both sides are listed.
            MachineError: its runtime crashed or hung.
        """
        started = time.perf_counter()
        with self._loaded(candidate) as runtime:  # first, so that a process starts while the reference works
            self.prepare()
            seen = self._renamed(candidate, runtime)
            return self._judged(candidate, seen, started, self._only is None if audited is None else audited)

    def differs(self, candidate: Model) -> str | None:
        """Why a model in memory does not compute what the reference computes; None if it does.

        For optimizer passes, which ask often and early: the first two sets have to do, at two sizes where the model
        leaves any open. While `prepare` runs in another thread, only these are waited for.
        """
        from onnxport.runtimes.ort.session import OrtRuntime

        with self._lock:
            started, reference = self._reference is not None, self._begun()
        if not started:
            reference.prepare()
        reference.wait(_EARLY_SETS)
        try:
            with OrtRuntime.of_model(candidate) as runtime:
                faults = (
                    self._fault(reference.rolled(Oriented(runtime, unread=reference.unread)), each)
                    for each in reference.sets[:_EARLY_SETS]
                )
                return next(filter(None, faults), None)
        except OnnxportError as error:
            return str(error)

    @property
    def reference(self) -> Reference:
        """The reference with its inputs and answers; `prepare` comes first."""
        return self._prepared

    def close(self) -> None:
        """Frees runtimes and answers; calling it again does nothing."""
        with self._lock:
            if self._reference is not None:
                self._reference.close()
            self._runtime.close()
            if self._expected is not None:
                self._expected.close()
                self._expected = None

    def _begun(self) -> Reference:
        """The reference, loaded by the first who asks. The caller holds the lock."""
        if self._reference is None:
            reference = Reference(self._artifact, self._params, self._runtime, self._graph, self._tell)
            try:
                self._budgets.check(reference.outputs)
            except UsageError:
                reference.close()
                raise
            self._reference = reference
        return self._reference

    @property
    def _prepared(self) -> Reference:
        assert self._reference is not None, "prepare comes first"
        return self._reference

    def _loaded(self, candidate: Artifact) -> Runtime:
        """The candidate's runtime, in the process that expects it or in a new one."""
        with self._lock:
            if self._expected is None or self._expected.path != candidate.path:
                return isolated(candidate, self._params, "candidate")
            expected, self._expected = self._expected, None
            return expected

    def _renamed(self, candidate: Artifact, runtime: Runtime) -> Oriented:
        """The candidate under the reference's names, as far as the user maps them."""
        names = str(self._artifact.path), str(candidate.path)
        wanted = {spec.name: spec.dtype for spec in (*self._prepared.inputs, *self._prepared.outputs)}
        dtypes = {
            name: dtype
            for name, dtype in source_dtypes(candidate, runtime).items()
            if wanted.get(name, dtype) == dtype  # else the reference is as narrow
        }
        seen = Oriented(runtime, dtypes=dtypes)
        renames = mapped(self._params.map, self._prepared, seen, names)
        return Oriented(runtime, *renames, dtypes, self._prepared.unread)

    def _fault(self, candidate: Run, answered: Answered) -> str:
        """What is wrong with the candidate's answer to one set, in one sentence; empty when nothing is."""
        reference = self._prepared
        feeds, answers = reference.answers(answered)
        given = candidate.run(feeds)
        for name, answer in answers.items():
            if name not in given:
                return f"the output {name!r} is gone"
            found = compare(name, answer, given[name], answered.noise[name], reference.tolerance)
            if found.fault:
                return f"{name!r}: {found.fault}"
        return ""

    def _judged(self, candidate: Artifact, seen: Oriented, started: float, audited: bool) -> Report:
        reference, model = self._prepared, self._prepared.rolled(seen)
        check_signatures(reference, model, (str(self._artifact.path), str(candidate.path)))
        function = self._params.candidate_runtime.get("function", "")
        precision = precision_of(candidate, function=function)
        kept = kept_float32(candidate, function)
        metrics = self._budgets.user
        with Hearing(reference, precision, self._params, metrics, kept, self._only) as hearing:
            judgements = self._judgements(hearing, model)
            notes = (*hearing.notes, *self._notes(seen))
        if audited:
            judgements, said = with_single_nodes(reference, candidate, self._params, precision, judgements)
            notes += said
        saturation = saturation_of(reference, candidate, judgements)
        if saturation is not None:
            notes += (str(saturation),)
        verdict, reason = overall(judgements)
        if verdict == "not equivalent" and reference.features is not None:
            notes += differing_rows(reference, model, reference.features)
        fed = tuple(
            InputSet(label=s.label, shapes=s.shapes, source=s.source, steps=reference.steps)
            for s in reference.sets
        )
        report = Report(
            reference=_side(self._artifact, reference.name, reference.precision),
            candidate=_side(candidate, model.runtime.name, precision),
            verdict=verdict,
            reason=reason,
            judgements=judgements,
            fed=fed,
            notes=notes,
            seconds=round(time.perf_counter() - started, 4),
            saturation=saturation,
        )
        notes += self._saved(report, model)
        return report.model_copy(update={"notes": notes})

    def _saved(self, report: Report, model: Run) -> tuple[str, ...]:
        """Writes the tensors that the verdict speaks of, if they are asked for: no set is kept for that, it is run
        once more. What the user should know about it."""
        path, output = self._params.report_tensors, report.telling
        if path is None:
            return ()
        if output is None:
            return (f"no tensors were written to {path}: the candidate gave no answers",)
        label = output.worst.input_set if output.worst is not None else ""
        sets = self._prepared.sets
        answered = next((each for each in sets if each.label == label), sets[0])
        feeds, answers = self._prepared.answers(answered)
        try:
            given = model.run(feeds)
        except RunError as error:
            return (f"no tensors were written to {path}: {error}",)
        return (Tensors(answered.label, feeds, answers, given).save(path),)

    def _judgements(self, hearing: Hearing, model: Run) -> tuple[Judgement, ...]:
        """The candidate's answers to every question, with the user's budgets in the one that is about quality."""
        reference = self._prepared
        failure = unfit_sizes(reference.shapes, model.inputs)
        if failure:
            return (hearing.failed(failure),)
        try:
            for answered in tuple(reference.sets):
                self._hear(hearing, model, answered)
            if hearing.is_doubtful:
                self._hear_further(hearing, model)
        except RunError as error:
            return (hearing.failed(str(error)),)
        *others, last = hearing.judgements()
        return (*others, judged(last, self._budgets))

    def _hear(self, hearing: Hearing, model: Run, answered: Answered) -> None:
        feeds, answers = self._prepared.answers(answered)
        hearing.add(answered, feeds, answers, model.run(feeds))

    def _hear_further(self, hearing: Hearing, model: Run) -> None:
        """As the reference's own noise leads to more sets of inputs, so does that of a lower precision."""
        with self._lock, closing(self._prepared.further()) as further:
            for answered in further:
                self._hear(hearing, model, answered)
                if not hearing.is_doubtful:
                    return

    def _notes(self, model: Oriented) -> tuple[str, ...]:
        reference = self._prepared
        gone = {spec.name for spec in model.lacking}
        notes = [*reference.notes, *getattr(model.runtime, "remarks", ())]
        if all(answered.source == "generated" for answered in reference.sets):
            notes.append(_SYNTHETIC)
        if gone:
            named = ", ".join(map(repr, sorted(gone)))
            notes.append(f"the candidate does not take {named}, on which no output of the reference depends")
        for kind, ours, theirs in (
            ("inputs", reference.inputs, model.inputs),
            ("outputs", reference.outputs, model.outputs),
        ):
            if [spec.name for spec in ours if spec.name not in gone] != [
                spec.name for spec in theirs if spec.name not in gone
            ]:
                notes.append(
                    f"the {kind} are in another order than the reference's; they were matched by name"
                )
        return tuple(notes)


def _started(reference: Referent, params: ValidateParams) -> IsolatedRuntime:
    assert isinstance(reference, Artifact), "who hands over a framework's model has its process"
    return isolated(reference, params, "reference")


def _side(artifact: Referent, runtime: str, precision: Precision) -> Side:
    return Side(
        path=str(artifact.path),
        format=artifact.format,
        runtime=runtime,
        size=artifact.size,
        digest=artifact.digest(),
        precision=precision,
    )
