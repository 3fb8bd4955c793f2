"""Whether two models take and give the same tensors; nothing is matched silently."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.runtimes.base import Runtime
from onnxport.validate.output_mapping import Names, Pairs, Signed, likely, renamed

Permutations = Mapping[str, tuple[int, ...]]


class Oriented:
    """A runtime seen in the axis order of the source, whatever layout the artefact has, and under other names if asked.

    Attributes:
        lacking: inputs of the source that the runtime does not have.

    Args:
        inputs, outputs: names to show, each with the runtime's own; the others stay.
        dtypes: the runtime's own names of what the source has in another float type, with that.
        unread: inputs of the source that the runtime need not have: what is fed to them goes nowhere.
    """

    def __init__(
        self,
        runtime: Runtime,
        inputs: Names | None = None,
        outputs: Names | None = None,
        dtypes: Mapping[str, str] | None = None,
        unread: Sequence[TensorSpec] = (),
    ) -> None:
        self.runtime = runtime
        self._inputs, self._outputs, self._dtypes = inputs or {}, outputs or {}, dtypes or {}
        own = {spec.name for spec in self._own_inputs}
        self.lacking = tuple(spec for spec in unread if spec.name not in own)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (*self._own_inputs, *self.lacking)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return renamed(map(self._source_order, self.runtime.outputs), self._outputs)

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """As `Runtime.run`, but arrays in and out have the source's axes."""
        permutations, gone = self._permutations, {spec.name for spec in self.lacking}
        feeds = {self._inputs.get(name, name): array for name, array in feeds.items() if name not in gone}
        physical = {
            name: array.transpose(permutations[name]) if name in permutations else array
            for name, array in feeds.items()
        }
        answers = self._run(physical, taps)
        shown = {own: name for name, own in self._outputs.items()}
        return {
            shown.get(name, name): array.transpose(_inverse(permutations[name]))
            if name in permutations
            else array
            for name, array in answers.items()
        }

    def _run(self, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        """Runs with the artefact's own types."""
        if not self._dtypes:
            return self.runtime.run(feeds, taps=taps)
        own = {spec.name: spec.dtype for spec in self.runtime.inputs if spec.name in self._dtypes}
        with np.errstate(over="ignore"):  # infinities are what the artefact is given, too
            fed = {name: each.astype(own[name]) if name in own else each for name, each in feeds.items()}
        answers = self.runtime.run(fed, taps=taps)
        return {name: each.astype(self._dtypes.get(name, each.dtype)) for name, each in answers.items()}

    @property
    def _own_inputs(self) -> tuple[TensorSpec, ...]:
        return renamed(map(self._source_order, self.runtime.inputs), self._inputs)

    @property
    def _permutations(self) -> Permutations:
        permutations: Permutations = getattr(self.runtime, "permutations", {})
        return permutations

    def _source_order(self, spec: TensorSpec) -> TensorSpec:
        spec = TensorSpec(spec.name, self._dtypes.get(spec.name, spec.dtype), spec.shape)
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
    """Refuses a pair whose names, counts, ranks or dtypes differ (SignatureMismatch)."""
    check_tensors(candidate, names[1])
    same = all(
        _match(ours, theirs)
        for ours, theirs in ((reference.inputs, candidate.inputs), (reference.outputs, candidate.outputs))
    )
    if not same:
        raise _mismatch(reference, candidate, names)


def _match(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> bool:
    known = {spec.name: spec for spec in theirs}
    return len(ours) == len(theirs) and all(
        spec.name in known and _compatible(spec, known[spec.name]) for spec in ours
    )


def _compatible(ours: TensorSpec, theirs: TensorSpec) -> bool:
    """The same dtype and rank. An empty shape is a scalar or an unknown rank; sizes are for the runs to tell."""
    ranks = len(ours.shape) == len(theirs.shape) or not ours.shape or not theirs.shape
    return ranks and ours.dtype == theirs.dtype


class SignatureMismatch(UsageError):
    """Two models with other tensors; `rows` has a line per tensor, what likely belongs together side by side."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", rows: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.rows = tuple(rows)

    def __str__(self) -> str:
        return "\n".join([f"{self.what}:", *self.rows, self.fix])


def _mismatch(reference: Signed, candidate: Signed, names: tuple[str, str]) -> SignatureMismatch:
    kinds = ("input", reference.inputs, candidate.inputs), ("output", reference.outputs, candidate.outputs)
    pairs = {kind: likely(ours, theirs) for kind, ours, theirs in kinds}
    table = [("", *names)]
    for kind, ours, theirs in kinds:
        table += [(kind, our, their) for our, their in _beside(ours, theirs, pairs[kind])]
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    complete = all(len(pairs[kind]) == len(ours) == len(theirs) for kind, ours, theirs in kinds)
    floats = any(_other_float(ours, theirs) for _, ours, theirs in kinds)
    return SignatureMismatch(
        "the two models do not take and give the same tensors",
        rows=[f"  {kind:<{widths[0]}}  {our:<{widths[1]}}  {their}" for kind, our, their in table],
        fix=_KEEP_FLOATS if floats else _way_out([p for found in pairs.values() for p in found], complete),
    )


_KEEP_FLOATS = (
    "a lower precision is judged behind the same inputs and outputs: keep their dtypes when you convert "
    "(onnxconverter-common: convert_float_to_float16(model, keep_io_types=True))"
)


def _other_float(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> bool:
    """Whether a tensor has another float type on the other side, and nothing else is different about it."""
    known = {spec.name: spec for spec in theirs}
    pairs = [(our, known[our.name]) for our in ours if our.name in known]
    return any(
        our.dtype != their.dtype and "float" in our.dtype and "float" in their.dtype for our, their in pairs
    )


def _beside(
    ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec], pairs: Pairs
) -> Iterator[tuple[str, str]]:
    """Both sides in the order of the first, then what the second has more.

    What does not fit stands beside what has its name, else beside what is in its place.
    """
    beside = {our.name: their for our, their in pairs}
    left = {their.name: their for their in theirs if their not in beside.values()}
    for our in ours:
        if our.name not in beside and our.name in left:
            beside[our.name] = left.pop(our.name)
    for our in ours:
        if our.name not in beside and left:
            beside[our.name] = left.pop(next(iter(left)))
        yield str(our), str(beside.get(our.name, "-"))
    for their in left.values():
        yield "-", str(their)


def _way_out(pairs: Pairs, complete: bool) -> str:
    renames = [(our.name, their.name) for our, their in pairs if our.name != their.name]
    found = ", ".join(f"{our!r} is {their!r}" for our, their in renames)
    if complete:
        options = " ".join(f"--map {shlex.quote(f'{our}={their}')}" for our, their in renames)
        return f"likely {found}; if so, give {options}"
    way_out = "export both with the same inputs and outputs, of equal dtypes and ranks"
    return f"likely {found}, but the others do not fit; {way_out}" if found else way_out


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
