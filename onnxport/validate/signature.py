"""Whether two models take and give the same tensors; nothing is matched silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Protocol

from onnxport.artifact import Dim, TensorSpec
from onnxport.errors import UsageError
from onnxport.validate.runtimes.base import Array, Feeds, Runtime


class Signed(Protocol):
    """What takes and gives tensors, in the source's axis order."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...


Permutations = Mapping[str, tuple[int, ...]]


class Oriented:
    """A runtime seen in the axis order of the source, whatever layout the artefact has."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._source_order(spec) for spec in self.runtime.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(self._source_order(spec) for spec in self.runtime.outputs)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """As `Runtime.run`, but arrays in and out have the source's axes."""
        permutations = self._permutations
        physical = {
            name: array.transpose(permutations[name]) if name in permutations else array
            for name, array in feeds.items()
        }
        answers = self.runtime.run(physical)
        return {
            name: array.transpose(_inverse(permutations[name])) if name in permutations else array
            for name, array in answers.items()
        }

    @property
    def _permutations(self) -> Permutations:
        permutations: Permutations = getattr(self.runtime, "permutations", {})
        return permutations

    def _source_order(self, spec: TensorSpec) -> TensorSpec:
        permutation = self._permutations.get(spec.name)
        if permutation is None or len(permutation) != len(spec.shape):
            return spec
        shape = tuple(spec.shape[axis] for axis in _inverse(permutation))
        return TensorSpec(spec.name, spec.dtype, shape)


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def check_tensors(model: Signed, name: str) -> None:
    """Refuses a model with values that are no tensors (UsageError)."""
    for spec in (*model.inputs, *model.outputs):
        if "(" in spec.dtype:
            raise UsageError(
                f"{spec.name!r} of {name} is no tensor but {spec.dtype}",
                why="only tensors can be compared",
                fix="export the model without it (scikit-learn: zipmap=False)",
            )


def check_signatures(reference: Signed, candidate: Signed, names: tuple[str, str]) -> None:
    """Refuses a pair whose names, counts, ranks or dtypes differ, both sides listed side by side (UsageError)."""
    check_tensors(candidate, names[1])
    same = all(
        _match(ours, theirs)
        for ours, theirs in ((reference.inputs, candidate.inputs), (reference.outputs, candidate.outputs))
    )
    if not same:
        raise UsageError(_side_by_side(reference, candidate, names))


def _match(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> bool:
    known = {spec.name: spec for spec in theirs}
    return len(ours) == len(theirs) and all(
        spec.name in known and _compatible(spec, known[spec.name]) for spec in ours
    )


def _compatible(ours: TensorSpec, theirs: TensorSpec) -> bool:
    """The same dtype and rank. An empty shape is a scalar or an unknown rank; sizes are for the runs to tell."""
    ranks = len(ours.shape) == len(theirs.shape) or not ours.shape or not theirs.shape
    return ranks and ours.dtype == theirs.dtype


def _side_by_side(reference: Signed, candidate: Signed, names: tuple[str, str]) -> str:
    rows = [("", names[0], names[1])]
    for kind, ours, theirs in (
        ("input", reference.inputs, candidate.inputs),
        ("output", reference.outputs, candidate.outputs),
    ):
        rows += [
            (kind, str(our or "-"), str(their or "-"))
            for our, their in zip_longest(ours, theirs, fillvalue=None)
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {kind:<{widths[0]}}  {our:<{widths[1]}}  {their}" for kind, our, their in rows]
    return "\n".join(["the two models do not take and give the same tensors:", *lines])


def unfit_sizes(shapes: Mapping[str, Sequence[Dim]], candidate: Sequence[TensorSpec]) -> str:
    """Why the candidate cannot take every size that the reference takes; empty when it can.

    Args:
        shapes: the reference's inputs with the sizes that the user gave.
        candidate: the candidate's inputs, in the source's axis order.
    """
    for spec in candidate:
        wanted = shapes[spec.name]
        if len(wanted) != len(spec.shape):
            continue
        for ours, theirs in zip(wanted, spec.shape, strict=True):
            if isinstance(theirs, int) and ours != theirs:
                takes = ", ".join("?" if dim is None else str(dim) for dim in wanted)
                fixed = ",".join(
                    "?" if dim is None or isinstance(dim, str) else str(dim) for dim in spec.shape
                )
                return (
                    f"it takes {spec} where the reference takes [{takes}]; "
                    f"if that is meant, give --shape {spec.name}={fixed}"
                )
    return ""
