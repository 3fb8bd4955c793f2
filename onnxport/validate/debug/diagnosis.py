"""Diagnose a verdict: find the node at fault, or the nodes that lose accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import compare
from onnxport.validate.debug import memory, repro, text
from onnxport.validate.debug.failed_runs import find_stop
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.local_error import LocalError, Replay
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.debug.rounding import Rounds
from onnxport.validate.debug.search import Trail, search
from onnxport.validate.debug.taps import Sides
from onnxport.validate.judge import Judge
from onnxport.validate.precision import kept_float32, least_rounded
from onnxport.validate.progress import Tell
from onnxport.validate.reference import Reference
from onnxport.validate.report import Diagnosis, LayerFigure, NodeRef, OutputReport, Report, Worst
from onnxport.validate.signature import unfit_sizes

Phase = Callable[[str], AbstractContextManager[None]]

# The most nodes to name together where only outputs show; the name of a whole network does not help.
_FEW = 8
# Sets of inputs to search for a fault, and to confirm it.
_MOST_SETS = 3

# Operators that stand for a fused group: the node with the weights is the likeliest at fault.
_MAIN = frozenset(
    "Conv ConvTranspose Gemm MatMul Einsum LSTM GRU RNN ConvInteger MatMulInteger QLinearConv".split()
)


def diagnose(
    reference: Artifact,
    candidate: Artifact,
    params: DebugParams,
    graph: Model | None,
    output: Path | None,
    phase: Phase = lambda step: nullcontext(),
    tell: Tell | None = None,
) -> Report:
    """Judge a candidate, and find the cause when the two do not agree.

    Args:
        graph: the reference in memory.
        output: the folder that gets the node at fault with its inputs; None for no folder.
        phase: reports the beginning and end of a step: "validate", "search".
        tell: see Judge.

    Raises:
        UsageError: the reference is no ONNX file, or the two do not take and give the same tensors.
        OnnxportError: one of the two cannot run.
    """
    if reference.format != "onnx" or graph is None:
        raise UsageError(
            f"{reference.path} is not a readable ONNX model",
            fix="give the ONNX model first and the artefact second",
        )
    if output is not None:
        repro.check_place(output)
    limit = memory.Limit(params.memory_bytes, params.searched_within)
    with Judge(reference, params, graph=graph, tell=tell) as judge:
        with phase("validate"):
            report = judge.verdict(candidate)
        if report.passed and not params.layers:
            agree = text.KEPT if text.is_lossy(report) else text.AGREE
            return report.model_copy(update={"diagnosis": Diagnosis(summary=agree, node=None)})
        precision = report.candidate.precision
        least = least_rounded(candidate, precision)
        rounds = Rounds.of(report.reference.precision, precision, kept_float32(candidate), least)
        with phase("search"):
            known = judge.reference
            with Sides(Network(graph), candidate, params, known, rounds, known.unread) as sides:
                if unfit_sizes(known.shapes, sides.candidate.inputs):
                    # At some sizes alone: what nodes do there is not what the verdict is about.
                    found = Diagnosis(summary=text.SIZES, node=None)
                else:
                    found = _FaultSearch(known, candidate, params, limit, sides, report).diagnosis(output)
            note = limit.exceeded()
    if note:
        found = found.model_copy(update={"notes": (*found.notes, note)})
    return report.model_copy(update={"diagnosis": found})


class _FaultSearch:
    """The search for the fault behind one report."""

    def __init__(
        self,
        reference: Reference,
        candidate: Artifact,
        params: DebugParams,
        limit: memory.Limit,
        sides: Sides,
        report: Report,
    ) -> None:
        self._reference, self._candidate, self._params, self._limit = reference, candidate, params, limit
        self._sides, self._report = sides, report
        self._lossy = text.is_lossy(report)
        self._notes: list[str] = []

    def diagnosis(self, output: Path | None) -> Diagnosis:
        """Find the fault."""
        large = len(self._sides.network.nodes) > _FEW
        if large and not self._sides.has_taps and not self._report.passed:
            return Diagnosis(summary=text.describe_no_taps(self._candidate, self._report), node=None)
        answered, trail = self._search_sets()
        if answered is None:
            return Diagnosis(summary=self._report.reason, node=None, notes=tuple(self._notes))
        tapping = self._tapping(answered, trail)
        if trail.untried:
            self._notes.append(text.describe_untried(trail.untried))
        if self._lossy:
            return self._losses(answered, trail, tapping)
        if trail.fault is None or self._report.passed:
            return self._no_fault(answered, trail, tapping)
        return self._fault(answered, trail, trail.fault, tapping, output)

    def _search_sets(self) -> tuple[AnsweredSet | None, Trail]:
        """Return the inputs that show the fault with their trail; the last ones that ran if none does."""
        last, found, stopped = None, Trail(), None
        for answered in self._suspicious_sets():
            try:
                last, found = answered, self._search(answered)
            except UsageError as error:  # RunError is one: not on inputs of these sizes
                stopped = answered, error
                continue
            if found.fault is not None or self._report.passed or self._lossy:
                return last, found
        if stopped is not None:
            where, why = stopped
            feeds, _ = self._reference.answers(where)
            trail = find_stop(self._sides, self._candidate, self._params, feeds, why)
            if trail.fault is not None:
                return where, trail
        return last, found

    def _suspicious_sets(self) -> list[AnsweredSet]:
        """Return the sets of inputs to search, the one with the worst element first.

        Companions overflow at a lower precision: there one comes last, for faults that nothing else shows.
        """
        worst = [each.worst.input_set for each in self._wrong if each.worst is not None]
        sets = sorted(self._reference.sets, key=lambda each: each.label not in worst)
        if self._sides.rounds.precision == "float32" and not self._lossy:
            return sets[:_MOST_SETS]
        usual = [each for each in sets if not each.adversarial][:_MOST_SETS]
        return [*usual, *[each for each in sets if each.adversarial][:1]]

    @property
    def _wrong(self) -> list[OutputReport]:
        return [each for each in self._report.outputs if each.verdict == "not equivalent"]

    def _search(self, answered: AnsweredSet) -> Trail:
        """Search the first step at which a model with a state is at fault; the last step if it never is."""
        first, _ = self._reference.answers(answered)
        trail = self._search_step(first)
        for step in range(1, self._reference.steps):
            if trail.fault is not None:
                break
            trail = self._search_step(self._reference.at_step(first, dict(trail.tapped), step))
        return trail

    def _search_step(self, feeds: Feeds) -> Trail:
        sizes = self._sides.sizes(feeds)
        ends = [each.name for each in self._wrong] or list(self._sides.network.outputs)
        ends = [name for name in ends if name in sizes]
        shown = {name: sizes[name] for name in self._sides.shared}
        room = self._limit.room(self._candidate, shown)
        if room.note:
            self._notes.append(room.note)
        return search(self._sides, feeds, ends, sizes, room.bytes, ranking=self._lossy)

    def _tapping(self, answered: AnsweredSet, trail: Trail) -> str:
        """Return what showing intermediate values changed in the candidate's answers."""
        if not trail.tapped:
            return ""
        _, answers = self._reference.answers(answered)
        alone = self._sides.alone(trail.feeds)
        moved = [name for name in answers if not _same(alone[name], trail.tapped[name])]
        self._note_plain_reference(answers, trail)
        shows_inner = trail.given - {spec.name for spec in self._sides.candidate.outputs}
        kernels = text.PLAIN_KERNELS if self._candidate.format == "tflite" and shows_inner else ""
        if not moved:
            return kernels
        faulty = {
            side: any(
                compare(
                    name, answers[name], given[name], answered.noise[name], self._reference.tolerance
                ).fault
                for name in answers
            )
            for side, given in (("alone", alone), ("tapped", trail.tapped))
            if self._reference.steps == 1  # else the answers hold all steps
        }
        fixed = faulty == {"alone": True, "tapped": False}
        change = text.describe_tapping(moved, alone, trail.tapped, fixed=fixed)
        return f"{change}; {kernels}" if kernels and not fixed else change

    def _note_plain_reference(self, answers: Feeds, trail: Trail) -> None:
        """Note where the figures mostly come from the reference, whose nodes run alone here."""
        for name in [name for name in trail.plain if name in answers and name in trail.layers]:
            moved = text.max_difference(answers[name], trail.plain[name])
            if moved > trail.layers[name].max_abs / 2:
                self._notes.append(text.describe_plain_reference(name, moved))
                return

    def _no_fault(self, answered: AnsweredSet, trail: Trail, tapping: str) -> Diagnosis:
        agree = self._report.passed
        summary = text.AGREE if agree else text.summarize_no_fault(trail, tapping, self._report)
        return self._finding(answered, trail, tapping, summary=summary, node=None)

    def _finding(self, answered: AnsweredSet, trail: Trail, tapping: str, **fields: Any) -> Diagnosis:
        return Diagnosis(
            input_set=answered.label,
            tapping=tapping,
            runs=self._sides.runs,
            layers=self._layers(trail),
            notes=tuple(dict.fromkeys(self._notes)),
            **fields,
        )

    def _layers(self, trail: Trail) -> tuple[LayerFigure, ...]:
        return tuple(trail.layers[name] for name in self._sides.network.values if name in trail.layers)

    def _losses(self, answered: AnsweredSet, trail: Trail, tapping: str) -> Diagnosis:
        """Rank the losses: no node is at fault where only quality applies."""
        lost = text.rank_losses(self._layers(trail))
        most = text.largest_loss(lost)
        if answered.source == "generated":
            self._notes.append(text.GENERATED)

        def node(value: str) -> NodeRef:
            return self._main(value, self._group(value, self._sides.network.between(value, trail.given)))

        worst = None if most is None else node(most.node.value)
        return self._finding(answered, trail, tapping, summary=text.summarize_losses(lost, node), node=worst)

    def _fault(
        self, answered: AnsweredSet, trail: Trail, fault: LocalError, tapping: str, output: Path | None
    ) -> Diagnosis:
        group = self._group(fault.value, trail.group)
        node = self._main(fault.value, group)
        self._confirm(answered, trail, fault)
        if trail.others:
            self._notes.append(text.describe_others(trail.others))
        folder = None

        def summary(shown: LocalError) -> str:
            return text.summarize_fault(node, group, shown)

        if output is not None and not trail.tapped:
            self._notes.append(text.NO_REPRO)
        elif output is not None:
            fault = repro.write(output, self._sides, trail.feeds, trail, self._candidate, summary)
            folder = str(output)
        worst = Worst(
            index=fault.index, reference=fault.expected, candidate=fault.given, input_set=answered.label
        )
        candidates = tuple(group) if len(group) > 1 else ()
        found = {"summary": summary(fault), "node": node, "candidates": candidates, "worst": worst}
        return self._finding(answered, trail, tapping, **found, repro=folder)

    def _group(self, value: str, nodes: Sequence[int]) -> list[NodeRef]:
        """Return the nodes that the candidate joins to make `value`."""
        network = self._sides.network
        own = network.producers[value]
        refs = [network.ref(value if index == own else _first_output(network, index)) for index in nodes]
        return [self._with_stage(ref) for ref in refs if ref.op != "Constant"]

    def _main(self, value: str, group: Sequence[NodeRef]) -> NodeRef:
        """Return the node that stands for a group: the one with the weights, else the one that gives `value`."""
        own = self._with_stage(self._sides.network.ref(value))
        return next((ref for ref in group if ref.op in _MAIN), own) if len(group) > 1 else own

    def _with_stage(self, ref: NodeRef) -> NodeRef:
        stage = "candidate model" if self._candidate.format == "onnx" else self._candidate.format
        return ref.model_copy(update={"stage": stage})

    def _confirm(self, shown: AnsweredSet, trail: Trail, fault: LocalError) -> None:
        """Check the node on other sets of inputs."""
        given = [*trail.needs, fault.value]
        labels: dict[bool, list[str]] = {True: [], False: []}
        others = [each for each in self._reference.sets if each is not shown]
        others.sort(key=lambda each: each.adversarial)
        for answered in others[: _MOST_SETS - 1]:
            feeds, _ = self._reference.answers(answered)
            try:
                values = self._sides.fetch(feeds, given).candidate
            except OnnxportError:
                continue  # the verdict covers inputs on which the candidate cannot run
            replay = Replay(self._sides.network, given, self._sides.sizes(feeds), self._sides.rounds)
            found = replay.compare([fault.value], feeds, values).get(fault.value)
            if found is not None:
                labels[found.share > 1].append(answered.label)
        if labels[True] or labels[False]:
            self._notes.append(text.describe_confirmation(labels[True], labels[False]))


def _first_output(network: Network, index: int) -> str:
    return next(name for name in network.nodes[index].output if name)


def _same(one: Array, other: Array) -> bool:
    if one.dtype.kind == "f":
        return bool(np.array_equal(one, other, equal_nan=True))
    return bool(np.array_equal(one, other))
