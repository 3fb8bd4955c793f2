"""One change to the model that would make a runtime take more of it, found by trying.

What a runtime's refusals suggest is applied to a copy by our own optimizer, as `onnxport optimize` would, and the
runtime is asked or estimated again. The change that ends most refusals is told, with the command that makes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onnxport.core.child_process import ChildBug
from onnxport.core.errors import OnnxportError
from onnxport.deployment.estimation import Estimate
from onnxport.deployment.params import DeploymentParams
from onnxport.deployment.placement import Subject, asked, estimated
from onnxport.deployment.report import Change, Placement
from onnxport.deployment.runtimes import Runtime
from onnxport.formats.artifact import Artifact, Dim
from onnxport.optimizers.params import LOWEST_OPSET, NEWEST_OPSET

# What a runtime says of a changed model, when it has said it; None where it does not answer.
_Later = Callable[[], Placement | None]

# Changes per runtime: an estimate costs a fraction of a second, a runtime that converts the model first several.
_TRIED = {"estimated": 3, "asked": 1}


@dataclass(frozen=True)
class _Candidate:
    """A change.

    Attributes:
        said: what it is, for the user.
        options: OptimizeParams.
        words: the same on the command line.
    """

    said: str
    options: Mapping[str, Any]
    words: tuple[str, ...] = ()


class Mender:
    """Makes changed copies of one model, each once, whoever asks for it.

    Args:
        artifact: the model as the user named it.
        subject: the same as the runtimes were asked about it.
        pool: where runtimes are asked.
    """

    def __init__(
        self, artifact: Artifact, subject: Subject, params: DeploymentParams, pool: ThreadPoolExecutor
    ) -> None:
        self._artifact, self._subject, self._params, self._pool = artifact, subject, params, pool

    def mended(self, answers: Mapping[Runtime, Estimate]) -> list[Placement]:
        """The placements, each with the change that mends most of it, where one mends anything."""
        if self._subject.model is None:
            return [each.placement for each in answers.values()]
        wishes = {runtime: self._wishes(runtime, answer) for runtime, answer in answers.items()}
        tried: dict[Runtime, list[tuple[_Candidate, _Later]]] = {}
        for wish in dict.fromkeys(wish for each in wishes.values() for wish in each):
            if made := self._make(wish):
                candidate, changed = made
                for runtime in (each for each in answers if wish in wishes[each]):
                    later = self._again(runtime, changed, answers[runtime].placement)
                    tried.setdefault(runtime, []).append((candidate, later))
        return [self._best(answer.placement, tried.get(runtime, ())) for runtime, answer in answers.items()]

    def _wishes(self, runtime: Runtime, answer: Estimate) -> list[str]:
        """What may mend a placement, in the words of `Reason.mends`, the likeliest first."""
        placement = answer.placement
        if placement.extent in ("all", "unknown"):
            return []
        # Every change simplifies as well: alone that is the least.
        told = [wish for wish in answer.mends if wish != "optimize"]
        usable = [wish for wish in dict.fromkeys((*told, "shape", "optimize")) if self._is_possible(wish)]
        return usable[: 1 if not runtime.has_table else _TRIED[placement.how]]

    def _is_possible(self, wish: str) -> bool:
        assert self._subject.model is not None
        word, _, number = wish.partition(" ")
        if word == "opset":
            return LOWEST_OPSET <= int(number) <= NEWEST_OPSET and int(number) != self._subject.model.opset
        return word != "shape" or not all(spec.is_static for spec in self._subject.model.inputs)

    def _again(self, runtime: Runtime, changed: Subject, before: Placement) -> _Later:
        """What the runtime says of the changed model, in the way in which it was answered before."""
        if before.how == "estimated" and runtime.has_table:
            after = estimated(changed, runtime).placement
            return lambda: after
        return self._pool.submit(asked, changed, runtime, self._params.timeout).result

    def _best(self, before: Placement, tried: Sequence[tuple[_Candidate, _Later]]) -> Placement:
        best: Change | None = None
        for candidate, later in tried:
            after = later()
            mends = 0 if after is None or after.extent == "unknown" else _bad(before) - _bad(after)
            if mends > (best.mends if best else 0):
                command = shlex.join(("onnxport", "optimize", str(self._artifact.path), *candidate.words))
                best = Change(said=candidate.said, command=command, mends=mends)
        return before.model_copy(update={"change": best}) if best else before

    def _make(self, wish: str) -> tuple[_Candidate, Subject] | None:
        """The changed copy; None where nothing of ours makes it."""
        folder = self._subject.folder / wish.replace(" ", "-")
        folder.mkdir()
        to = folder / self._artifact.path.name
        try:
            candidate = self._candidate(wish)
            if candidate is None:
                return None
            self._subject.workshop.change(self._artifact.path, candidate.options, to)
            again = self._params.shape if self._subject.notes else {}  # others are written into the copy
            return candidate, Subject.of(Artifact.open(to), again, folder, self._subject.workshop)
        except (OnnxportError, ChildBug):  # a change that cannot be made is none to tell of
            return None

    def _candidate(self, wish: str) -> _Candidate | None:
        given = {name: _shown(dims) for name, dims in self._params.shape.items()}
        word, _, number = wish.partition(" ")
        if word == "shape":
            sizes = self._subject.workshop.sizes(self._artifact.path, self._params.shape)
            if sizes is None:
                return None
            given = {name: _shown(dims) for name, dims in sizes.items()}
            listed = ", ".join(f"{name}={dims}" for name, dims in given.items())
            return _Candidate(f"fixed sizes (such as {listed})", {"shape": given}, _shapes(given))
        own: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
            "optimize": ("a simplified graph", {}, ()),
            "declared": (
                "leaving out the shapes that it declares",
                {"drop_shapes": True},
                ("--drop-shapes",),
            ),
            "opset": (f"opset {number}", {"opset": number}, ("--opset", number)),
            "float16": ("float16", {"fp16": True}, ("--fp16",)),
        }
        said, options, words = own[word]
        if self._subject.notes:  # optimize changes no size that the file fixes
            return _Candidate(said, options, words)
        shape = {"shape": given} if given else {}
        return _Candidate(said, {**options, **shape}, (*words, *_shapes(given)))


def _bad(placement: Placement) -> int:
    """How many refusals there are; all nodes where the whole model is kept out."""
    return max(placement.nodes, 1) if placement.why else len(placement.fallbacks)


def _shown(dims: Sequence[Dim]) -> str:
    return ",".join("?" if dim is None else str(dim) for dim in dims)


def _shapes(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for name, dims in given.items() for word in ("--shape", f"{name}={dims}"))
