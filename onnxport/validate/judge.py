"""The judge: does a candidate compute what its reference computes, up to what rounding explains?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import Artifact, Referent
from onnxport.formats.model import Model
from onnxport.runtimes.base import ReferenceRuntime, RunError, Runtime
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.budgets import Budgets
from onnxport.validate.comparison import compare
from onnxport.validate.evaluation import evaluate
from onnxport.validate.float_reference import FloatReference, floor_of
from onnxport.validate.graph_analysis import unreached_outputs
from onnxport.validate.params import NO_DEMANDS, ValidateParams
from onnxport.validate.precision import (
    INTEGER_WEIGHTS,
    kept_float32,
    least_rounded,
    load_reader,
    precision_beside,
    precision_of,
    read_onnx,
)
from onnxport.validate.progress import Tell
from onnxport.validate.reference import Reference
from onnxport.validate.report import RIGHT, Criterion, Judgement, Precision, Report, Side, overall
from onnxport.validate.rollout import Run
from onnxport.validate.sessions import Oriented, isolated, source_dtypes
from onnxport.validate.signature import check_signatures, split_map
from onnxport.validate.table_rows import differing_rows
from onnxport.validate.tensor_dump import Tensors, check_place

# Bytes of weights. With more, the reference waits until it is needed: it would lie in memory beside a compiler.
_AHEAD = 256 * 2**20
# `differs` compares one set at batch 1 and one at another size, if there is one.
_EARLY_SETS = 2

# Format and precision of files whose own numbers can be asked (lifted_reference.py).
_ROUNDED_FILES = frozenset(
    (("tflite", "float16 weights"), ("coreml", "float16 weights"), ("coreml", "float16"))
)

# Precisions that both sides may have, and yet differ by a rounding.
_SECOND_ROUNDINGS = INTEGER_WEIGHTS | {"int8 dynamic"}

_SYNTHETIC = "only generated inputs were fed; give your own with --inputs DIR"


_Judged = tuple[tuple[Judgement, ...], tuple[str, ...]]


class ReferenceRun(Closing):
    """A reference that answers all sets of inputs in a background thread, for one or more judges.

    ONNX Runtime releases the interpreter's lock while it computes, so the caller can convert meanwhile.

    Args:
        reference: the artefact or framework's model that counts as right; for the latter `runtime` is required.
        params: inputs, tolerances, budgets and metrics.
        runtime: the process that runs the reference, if the caller has started one.
        graph: the reference in memory, if the caller has it.
        tell: receives the progress of what takes more than a few seconds.
        then: called in the background when the answers are there; what it raises counts as the reference's error.
        precision: see Reference.

    Attributes:
        seconds: that the reference took.
        floats: the reference in float arithmetic, where that is something else.

    Raises:
        UsageError: a metric that cannot be imported, or a budget that cannot apply.
    """

    def __init__(
        self,
        reference: Referent,
        params: ValidateParams,
        runtime: ReferenceRuntime | None = None,
        graph: Model | None = None,
        tell: Tell | None = None,
        then: Callable[[], None] | None = None,
        precision: Precision | None = None,
    ) -> None:
        self.artifact, self.params, self.graph = reference, params, graph
        self._tell, self._then, self._precision = tell, then, precision
        self.budgets = Budgets.of(params)
        if graph is not None:
            self.budgets.check(graph.outputs)
        self._runtime = runtime or _start(reference, params)
        self.floats = FloatReference(params, tell)
        self._prepared: Future[Reference] = Future()
        # A daemon, which executors do not have: Ctrl-C must not wait for a long inference.
        self._thread = threading.Thread(target=self._prepare, name="judge", daemon=True)
        self.seconds = 0.0
        if graph is None or graph.weight_bytes <= _AHEAD:
            if graph is not None:
                graph.map_weights()
            self._thread.start()

    @property
    def reference(self) -> Reference:
        """See Judge.reference."""
        if self._thread.ident is None:
            self._thread.start()
        return self._prepared.result()

    def close(self) -> None:
        """Wait for the background thread and free runtimes and answers; calling it again does nothing."""
        if self._thread.ident is not None and self._prepared.exception() is None:
            self._prepared.result().close()
        self.floats.close()
        self._runtime.close()

    def abandon(self) -> None:
        """End the process without waiting for the background thread."""
        self._runtime.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):  # which must not wait
            self.abandon()
        else:
            self.close()

    def _prepare(self) -> None:
        """Compute inputs, answers and noise in the background thread."""
        started = time.perf_counter()
        try:
            check_place(self.params.report_tensors)
            reference = Reference(
                self.artifact, self.params, self._runtime, self.graph, self._tell, precision=self._precision
            )
            try:
                self.budgets.check(reference.outputs)
                reference.prepare()
                if self._then is not None:
                    self._then()
            except BaseException:
                reference.close()
                raise
        except BaseException as error:  # raised again in the thread that asks
            self.seconds = time.perf_counter() - started
            self._prepared.set_exception(error)
        else:
            self.seconds = time.perf_counter() - started
            self._prepared.set_result(reference)


class Judge(Closing):
    """Compares candidates with one reference. Every method waits for the reference's answers.

    Args:
        reference, params, runtime, graph, tell: see ReferenceRun.
        candidate: the artefact that `verdict` will get; its files need not exist yet. Its process starts when the
            reference's has answered and ended: a compiler needs the machine before, and both would lie in memory
            together. None to start it with the verdict.
        criterion: the only criterion to apply; None for those that the precisions call for (criteria.py).
        run: a reference of the same model and params that other judges ask, too; whoever made it closes it.

    Raises:
        UsageError: a metric that cannot be imported, or a budget that cannot apply.
    """

    def __init__(
        self,
        reference: Referent,
        params: ValidateParams,
        runtime: ReferenceRuntime | None = None,
        graph: Model | None = None,
        candidate: Artifact | None = None,
        *,
        criterion: Criterion | None = None,
        tell: Tell | None = None,
        run: ReferenceRun | None = None,
    ) -> None:
        self._artifact, self._params, self._criterion = reference, params, criterion
        self._candidate, self._tell = candidate, tell
        self._candidate_runtime: IsolatedRuntime | None = None
        self._is_shared = run is not None
        self._run = run or ReferenceRun(reference, params, runtime, graph, tell, self._start_candidate)
        self._budgets = self._run.budgets

    @property
    def seconds(self) -> float:
        """Time that the reference took."""
        return self._run.seconds

    @property
    def reference(self) -> Reference:
        """The reference with its inputs and answers.

        Raises:
            InputError: the reference cannot be loaded, or the user's inputs are bad.
            UsageError: no sizes were found for open dimensions, or given ones do not fit.
        """
        return self._run.reference

    def verdict(self, candidate: Artifact, *, checks_nodes: bool | None = None) -> Report:
        """Compare a candidate with the reference on every set of inputs.

        Args:
            checks_nodes: whether to check single nodes where only quality applies (rounding_errors.py); by default
                where the precisions choose the criteria.

        Raises:
            InputError: the candidate cannot be loaded.
            UsageError: its inputs or outputs differ from the reference's; the error lists both sides.
            MachineError: its runtime crashed or hung.
        """
        reference = self.reference
        started = time.perf_counter()
        with self._open(candidate) as runtime:
            graph = read_onnx(candidate)  # once: some files have many weights
            function = self._params.candidate_runtime.get("function", "")
            precision = precision_of(candidate, graph, function)
            floats = self._run.floats
            form = floats.form_of(reference, candidate, precision, function)
            in_floats = self._criterion != "quality" and floats.replaces(reference, form, precision)
            if in_floats:
                reference = floats.of(reference)
            precision = precision_beside(reference.precision, candidate, precision, function)
            oriented = self._renamed(candidate, runtime, graph)
            model = reference.roll_out(oriented)
            check_signatures(reference, model, self._names(candidate), reference.declared)
            kept = kept_float32(candidate, graph, function)
            del graph
            ask = partial(
                evaluate,
                reference,
                precision=precision,
                params=self._params,
                budgets=Budgets({}) if in_floats else self._budgets,
                kept=kept,
                criterion=self._criterion,
                least=least_rounded(candidate, precision),
                floor=floor_of(form, self._params),
                keeps_dynamic=form == "kept",
            )
            judgements, notes = ask(model, tell=self._tell)
            if checks_nodes is None:
                checks_nodes = self._criterion is None
            second = None
            if checks_nodes and not function and _may_round_anew(reference.precision, precision, judgements):
                second = self._judge_second_rounding(reference, candidate, precision, partial(ask, model))
                judgements, notes = second or (judgements, notes)
            measured = any(each.question == "quality" for each in judgements)
            if checks_nodes and measured and not function and second is None:
                # Imported here: it reads both graphs, which most verdicts do without.
                from onnxport.validate.translation.judgement import judge_translation

                translation, note = judge_translation(reference, candidate, precision)
                if _hangs_on_roundings(candidate, precision, translation, judgements):
                    from onnxport.validate.lifted_reference import ask_own_numbers

                    shown = partial(self._shown, candidate)
                    found = ask_own_numbers(reference, candidate, model, ask, judgements, shown)
                    judgements, notes = found or (judgements, notes)
                judgements += () if translation is None else (translation,)
                notes += (note,) if note else ()
            notes += _notes(reference, oriented)
            if in_floats:
                loss, note = floats.judgement(self.reference, form, self._budgets)
                judgements, notes = (*judgements, loss), (*notes, note)
            if checks_nodes and _is_quality_alone(judgements):
                # Imported here: it runs single nodes, which most verdicts do without.
                from onnxport.validate.rounding_errors import check_nodes

                fault, note = check_nodes(reference, candidate, self._params, precision)
                judgements += () if fault is None else (fault,)
                notes += (note,) if note else ()
            saturation = None
            if measured:
                from onnxport.validate.saturation import measure_saturation

                saturation = measure_saturation(reference, candidate)
                notes += () if saturation is None else (str(saturation),)
            verdict, reason = overall(judgements)
            if verdict == "not equivalent" and reference.features is not None:
                notes += differing_rows(reference, model, reference.features)
            report = Report(
                reference=_side(self._artifact, reference.name, self.reference.precision),
                candidate=_side(candidate, runtime.name, precision),
                verdict=verdict,
                reason=reason,
                judgements=judgements,
                fed=tuple(each.input_set(reference.steps) for each in reference.sets_for(precision)),
                notes=notes,
                seconds=round(time.perf_counter() - started, 4),
                saturation=saturation,
            )
            if self._params.report_tensors is not None:
                note = _save_tensors(self._params.report_tensors, reference, model, report)
                report = report.model_copy(update={"notes": (*notes, note)})
            return report

    def on(self, runtime: Mapping[str, str]) -> Judge:
        """Return a judge of the same reference without demands on quality, for candidates on another runtime."""
        params = self._params.model_copy(update={"candidate_runtime": dict(runtime), **NO_DEMANDS})
        return Judge(self._artifact, params, criterion=self._criterion, tell=self._tell, run=self._run)

    def differs(self, candidate: Model) -> str | None:
        """Return why a model in memory does not compute what the reference computes; None if it does.

        For optimizer passes, which need many quick answers: it compares the first two sets only.
        """
        from onnxport.runtimes.ort.runtime import OrtRuntime

        reference = self.reference
        if self._run.floats.replaces_in(reference, candidate):
            reference = self._run.floats.of(reference)
        try:
            with OrtRuntime.of_model(candidate) as runtime:
                model = reference.roll_out(Oriented(runtime, unread=reference.unread))
                faults = (_fault(reference, model, each) for each in reference.sets[:_EARLY_SETS])
                return next(filter(None, faults), None)
        except OnnxportError as error:
            return str(error)

    def feeds(self) -> Feeds:
        """Return the first set of inputs."""
        return self.reference.sets[0].load().feeds

    def refusal(self) -> OnnxportError | None:
        """Return the error in the model or the options that keeps the reference from running; None for none."""
        try:
            _ = self.reference
        except (InputError, UsageError) as error:
            return error
        except OnnxportError:  # of the machine, or a missing library
            return None
        return None

    def close(self) -> None:
        """Wait for the background thread and free runtimes and answers; calling it again does nothing."""
        if not self._is_shared:
            self._run.close()
        self._end_candidate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):  # which must not wait
            self._run.abandon()
            self._end_candidate()
        else:
            self.close()

    def _end_candidate(self) -> None:
        if self._candidate_runtime is not None:
            self._candidate_runtime.close()
            self._candidate_runtime = None

    def _start_candidate(self) -> None:
        if self._candidate is not None:
            self._candidate_runtime = isolated(self._candidate, self._params, "candidate")
            load_reader(self._candidate.format)  # while a compiler works

    def _open(self, candidate: Artifact) -> Runtime:
        """Return the candidate's runtime, from the process that waits for it or a new one."""
        waiting = self._candidate_runtime
        if waiting is None or waiting.path != candidate.path:
            return isolated(candidate, self._params, "candidate")
        self._candidate_runtime = None
        return waiting

    def _renamed(self, candidate: Artifact, runtime: Runtime, graph: Model | None) -> Oriented:
        """Return the candidate under the reference's names, as far as the user maps them."""
        reference = self.reference
        wanted = {spec.name: spec.dtype for spec in (*reference.inputs, *reference.outputs)}
        dtypes = {
            name: dtype
            for name, dtype in source_dtypes(graph, runtime).items()
            if wanted.get(name, dtype) == dtype  # else the reference is as narrow
        }
        side = Oriented(runtime, dtypes=dtypes)
        renames = split_map(self._params.map, reference, side, self._names(candidate))
        return Oriented(runtime, *renames, dtypes, reference.unread)

    def _judge_second_rounding(
        self, reference: Reference, candidate: Artifact, precision: Precision, ask: Callable[..., _Judged]
    ) -> _Judged | None:
        """See second_rounding.py."""
        from onnxport.validate.second_rounding import judge_second_rounding

        floats = self._run.floats.without_run_time_quantization(reference)
        measure = partial(ask, criterion="quality", tell=self._tell)
        return None if floats is None else judge_second_rounding(floats, candidate, precision, measure)

    def _shown(self, candidate: Artifact, runtime: Runtime) -> Run:
        """Return another runtime of the candidate as the reference's own."""
        return self.reference.roll_out(self._renamed(candidate, runtime, None))

    def _names(self, candidate: Artifact) -> tuple[str, str]:
        return str(self._artifact.path), str(candidate.path)


def _start(reference: Referent, params: ValidateParams) -> IsolatedRuntime:
    assert isinstance(reference, Artifact), "a framework's model comes with its runtime"
    return isolated(reference, params, "reference")


def _fault(reference: Reference, candidate: Run, answered: AnsweredSet) -> str:
    """Return what is wrong with the candidate's answer to one set, in a sentence; empty for nothing."""
    fault = _difference(reference, candidate, answered)
    while fault and reference.refine(answered):
        fault = _difference(reference, candidate, answered)
    return fault


def _difference(reference: Reference, candidate: Run, answered: AnsweredSet) -> str:
    feeds, answers = reference.answers(answered)
    given = candidate.run(feeds)
    for name, answer in answers.items():
        if name not in given:
            return f"the output {name!r} is gone"
        found = compare(name, answer, given[name], answered.noise[name], reference.tolerance)
        if found.fault:
            return f"{name!r}: {found.fault}"
    return ""


def _hangs_on_roundings(
    candidate: Artifact,
    precision: Precision,
    translation: Judgement | None,
    judgements: tuple[Judgement, ...],
) -> bool:
    """Return whether a file that is proven node for node fails for how its weights round (lifted_reference.py)."""
    is_proven = translation is not None and translation.verdict == "proven"
    may = (candidate.format, precision) in _ROUNDED_FILES
    return may and is_proven and any(each.verdict not in RIGHT for each in judgements)


def _may_round_anew(reference: Precision, candidate: Precision, judgements: tuple[Judgement, ...]) -> bool:
    """Return whether a candidate failed whose integers may be a second rounding (second_rounding.py)."""
    is_second = reference == candidate and candidate in _SECOND_ROUNDINGS
    return is_second and any(each.verdict not in RIGHT for each in judgements)


def _is_quality_alone(judgements: tuple[Judgement, ...]) -> bool:
    """Return whether the candidate passed, and nothing but a quality was found out."""
    return all(
        (each.question, each.verdict)
        in (("quality", "measured"), ("quality", "proven"), ("translation", "unproven"))
        for each in judgements
    )


def _save_tensors(path: Path, reference: Reference, model: Run, report: Report) -> str:
    """Write the tensors behind the verdict, from one more run since no set keeps them; return a note on it."""
    output = report.telling
    if output is None:
        return f"no tensors were written to {path}: the candidate gave no answers"
    label = output.worst.input_set if output.worst is not None else ""
    answered = next((each for each in reference.sets if each.label == label), reference.sets[0])
    feeds, answers = reference.answers(answered)
    try:
        given = model.run(feeds)
    except RunError as error:
        return f"no tensors were written to {path}: {error}"
    return Tensors(answered.label, feeds, answers, given).save(path)


def _notes(reference: Reference, model: Oriented) -> tuple[str, ...]:
    missing = {spec.name for spec in model.missing}
    notes = [*reference.notes, *getattr(model.runtime, "remarks", ())]
    if all(answered.source == "generated" for answered in reference.sets):
        notes.append(_SYNTHETIC)
    if reference.graph is not None:
        notes += (
            f"the output {name!r} depends on no input: it is a constant of the model"
            for name in unreached_outputs(reference.graph)
        )
    if missing:
        names = ", ".join(map(repr, sorted(missing)))
        which, it = ("input", "it") if len(missing) == 1 else ("inputs", "them")
        notes.append(f"the candidate lacks the {which} {names}; no output of the reference depends on {it}")
    for kind, ours, theirs in (
        ("inputs", reference.inputs, model.inputs),
        ("outputs", reference.outputs, model.outputs),
    ):
        order, other = ([spec.name for spec in side if spec.name not in missing] for side in (ours, theirs))
        if order != other:
            notes.append(f"the {kind} have another order than in the reference; they were matched by name")
    return tuple(notes)


def _side(artifact: Referent, runtime: str, precision: Precision) -> Side:
    return Side(
        path=str(artifact.path),
        format=artifact.format,
        runtime=runtime,
        size=artifact.size,
        digest=artifact.digest(),
        precision=precision,
    )
