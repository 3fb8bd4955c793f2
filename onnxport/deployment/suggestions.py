"""One change to the model that would make a runtime take more of it, found by trying.

Our optimizer applies the remedies for the refusals to copies, and the runtime is probed or estimated again. The report
has the change that removes most refusals, with its command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onnxport.core.child_process import ChildBug
from onnxport.core.errors import OnnxportError
from onnxport.core.shell_words import join, quote
from onnxport.deployment.estimation import Estimate
from onnxport.deployment.params import DeploymentParams
from onnxport.deployment.placement import ProbedModel, estimate_runtime, probe
from onnxport.deployment.report import Change, Placement
from onnxport.deployment.runtimes import Runtime
from onnxport.formats.artifact import Artifact, Dim
from onnxport.optimizers.params import LOWEST_OPSET, NEWEST_OPSET

# Waits for the placement of a changed model; None if the runtime does not answer.
_Answer = Callable[[], Placement | None]

# Changes per runtime: an estimate costs a fraction of a second, a runtime that converts the model first several.
_TRIED = {"estimated": 3, "asked": 1}


@dataclass(frozen=True)
class _Candidate:
    """A change."""

    said: str  # its description for the user
    options: Mapping[str, Any]  # fields of OptimizeParams
    words: tuple[str, ...] = ()  # the same on the command line


class Suggestions:
    """Tries changes on copies of one model, each copy made once.

    Args:
        artifact: the model as the user named it.
        subject: the model as it was probed.
        pool: runs the probes.
    """

    def __init__(
        self, artifact: Artifact, subject: ProbedModel, params: DeploymentParams, pool: ThreadPoolExecutor
    ) -> None:
        self._artifact, self._subject, self._params, self._pool = artifact, subject, params, pool

    def add_to(self, answers: Mapping[Runtime, Estimate]) -> list[Placement]:
        """Return the placements, each with the change that removes most refusals, if one does."""
        if self._subject.model is None:
            return [each.placement for each in answers.values()]
        remedies = {runtime: self._remedies(runtime, answer) for runtime, answer in answers.items()}
        tried: dict[Runtime, list[tuple[_Candidate, _Answer]]] = {}
        for remedy in dict.fromkeys(remedy for each in remedies.values() for remedy in each):
            if made := self._make_copy(remedy):
                candidate, changed = made
                for runtime in (each for each in answers if remedy in remedies[each]):
                    later = self._reevaluate(runtime, changed, answers[runtime].placement)
                    tried.setdefault(runtime, []).append((candidate, later))
        return [
            self._add_best(answer.placement, tried.get(runtime, ())) for runtime, answer in answers.items()
        ]

    def _remedies(self, runtime: Runtime, answer: Estimate) -> list[str]:
        """Return the remedies to try for a placement (`Reason.remedies`), the likeliest first."""
        placement = answer.placement
        if placement.extent in ("all", "unknown"):
            return []
        # Every change simplifies the graph as well, so simplifying alone comes last.
        known = [remedy for remedy in answer.remedies if remedy != "optimize"]
        usable = list(filter(self._is_possible, dict.fromkeys((*known, "shape", "optimize"))))
        return usable[: 1 if not runtime.has_table else _TRIED[placement.how]]

    def _is_possible(self, remedy: str) -> bool:
        assert self._subject.model is not None
        word, _, number = remedy.partition(" ")
        if word == "opset":
            return LOWEST_OPSET <= int(number) <= NEWEST_OPSET and int(number) != self._subject.model.opset
        return word != "shape" or not all(spec.is_static for spec in self._subject.model.inputs)

    def _reevaluate(self, runtime: Runtime, changed: ProbedModel, before: Placement) -> _Answer:
        """Probe or estimate the changed model, as was done before."""
        if before.how == "estimated" and runtime.has_table:
            after = estimate_runtime(changed, runtime).placement
            return lambda: after
        return self._pool.submit(probe, changed, runtime, self._params.timeout).result

    def _add_best(self, before: Placement, tried: Sequence[tuple[_Candidate, _Answer]]) -> Placement:
        """Return `before` with the change that removes most refusals, if one does."""
        best: Change | None = None
        for candidate, later in tried:
            after = later()
            if after is None or after.extent == "unknown":
                continue
            mends = _count_refusals(before) - _count_refusals(after)
            if mends > (best.mends if best else 0):
                command = join(("onnxport", "optimize", str(self._artifact.path), *candidate.words))
                best = Change(said=candidate.said, command=command, mends=mends)
        if best is None and before.change is not None:  # by its own probe
            named = before.change.command.replace(" MODEL ", f" {quote(str(self._artifact.path))} ")
            best = before.change.model_copy(update={"command": named})
        return before.model_copy(update={"change": best}) if best else before

    def _make_copy(self, remedy: str) -> tuple[_Candidate, ProbedModel] | None:
        """Make the changed copy; return None if our optimizer cannot."""
        folder = self._subject.folder / remedy.replace(" ", "-")
        folder.mkdir()
        to = folder / self._artifact.path.name
        try:
            candidate = self._candidate(remedy)
            if candidate is None:
                return None
            self._subject.variants.change(self._artifact.path, candidate.options, to)
            again = self._params.shape if self._subject.notes else {}  # otherwise the copy has the sizes
            return candidate, ProbedModel.prepare(Artifact.open(to), again, folder, self._subject.variants)
        except (OnnxportError, ChildBug):  # it cannot be suggested
            return None

    def _candidate(self, remedy: str) -> _Candidate | None:
        given = {name: _format_dims(dims) for name, dims in self._params.shape.items()}
        word, _, number = remedy.partition(" ")
        if word == "shape":
            sizes = self._subject.variants.sizes(self._artifact.path, self._params.shape)
            if sizes is None:
                return None
            given = {name: _format_dims(dims) for name, dims in sizes.items()}
            listed = ", ".join(f"{name}={dims}" for name, dims in given.items())
            return _Candidate(f"fixed sizes (such as {listed})", {"shape": given}, _shape_options(given))
        changes: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
            "optimize": ("a simplified graph", {}, ()),
            "declared": ("dropping its declared shapes", {"drop_shapes": True}, ("--drop-shapes",)),
            "opset": (f"opset {number}", {"opset": number}, ("--opset", number)),
            "float16": ("float16", {"fp16": True}, ("--fp16",)),
        }
        said, options, words = changes[word]
        if self._subject.notes:  # optimize changes no size that the file fixes
            return _Candidate(said, options, words)
        shape = {"shape": given} if given else {}
        return _Candidate(said, {**options, **shape}, (*words, *_shape_options(given)))


def _count_refusals(placement: Placement) -> int:
    """Return the number of refusals: all nodes if the whole model is refused."""
    return max(placement.nodes, 1) if placement.why else len(placement.fallbacks)


def _format_dims(dims: Sequence[Dim]) -> str:
    return ",".join("?" if dim is None else str(dim) for dim in dims)


def _shape_options(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for name, dims in given.items() for word in ("--shape", f"{name}={dims}"))
